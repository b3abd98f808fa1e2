/** Folders of the restore area that copies are put into: opened once each, synced together, closed at the end. */
import path from 'node:path';
import { codeOf } from '../../errors.js';
import type { MarkedDisk } from './marker.js';
import { type CopyPlace, type Folder, openFolder, syncFolder } from './restore-area.js';

/** Not to be asked for the folders of two places at once. */
export class OpenFolders {
  private readonly folders = new Map<string, Folder>();
  /** Folders above those that were opened since the last sync, by their paths on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();

  /** The folder of a place, made when missing. It stays open until `close`. @throws as `openFolder` */
  async open(place: CopyPlace): Promise<Folder> {
    const key = path.join(place.mountpoint, path.dirname(place.path));
    const known = this.folders.get(key);
    if (known) return known;
    const folder = await openFolder(place, place.path);
    this.folders.set(key, folder);
    const disk = { diskId: place.diskId, mountpoint: place.mountpoint };
    for (let dir = path.dirname(place.path); dir !== '/'; ) {
      dir = path.dirname(dir);
      this.above.set(path.join(place.mountpoint, dir), { disk, dir });
    }
    return folder;
  }

  /**
   * Makes what was put into them last, and the folders themselves: those above are synced, too, whoever has made what is in
   * them, since another process may not have come to that.
   */
  async sync(): Promise<void> {
    await Promise.all([...this.folders.values()].map((folder) => folder.handle.sync()));
    const due = [...this.above].filter(([key]) => !this.folders.has(key));
    this.above.clear();
    await Promise.all(
      due.map(async ([, { disk, dir }]) => {
        // nothing was put below one that has been tidied away, since it was empty
        await syncFolder(disk, dir).catch((error: unknown) => {
          if (codeOf(error) !== 'ENOENT') throw error;
        });
      }),
    );
  }

  async close(): Promise<void> {
    await Promise.all([...this.folders.values()].map((folder) => folder.handle.close()));
  }
}

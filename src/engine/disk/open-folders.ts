/** Folders of the restore area that copies are put into: opened once each, synced together, closed at the end. */
import path from 'node:path';
import { codeOf } from '../../errors.js';
import type { CallWatch } from '../calls.js';
import { ofDisk } from './failures.js';
import type { MarkedDisk } from './marker.js';
import { type CopyPlace, type Folder, openFolder, syncFolder } from './restore-area.js';

interface OpenFolder {
  folder: Folder;
  mountpoint: string;
}

/** Not to be asked for the folders of two places at once. All of it throws a DiskError where it may be the disk. */
export class OpenFolders {
  private readonly calls: CallWatch;
  private readonly folders = new Map<string, OpenFolder>();
  /** Folders above those that were opened since the last sync, by their paths on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();

  constructor(calls: CallWatch) {
    this.calls = calls;
  }

  /** The folder of a place, made when missing. It stays open until `close`. @throws as `openFolder` */
  async open(place: CopyPlace): Promise<Folder> {
    const { mountpoint } = place;
    const key = path.join(mountpoint, path.dirname(place.path));
    const known = this.folders.get(key);
    if (known) return known.folder;
    const folder = await ofDisk(this.calls, place, () => openFolder(place, place.path));
    this.folders.set(key, { folder, mountpoint });
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
    await this.each((folder) => folder.handle.sync());
    const due = [...this.above].filter(([key]) => !this.folders.has(key));
    this.above.clear();
    await Promise.all(
      due.map(async ([, { disk, dir }]) => {
        // nothing was put below one that has been tidied away, since it was empty
        await ofDisk(this.calls, disk, () => syncFolder(disk, dir)).catch((error: unknown) => {
          if (codeOf(error) !== 'ENOENT') throw error;
        });
      }),
    );
  }

  async close(): Promise<void> {
    await this.each((folder) => folder.handle.close());
  }

  private async each(call: (folder: Folder) => Promise<void>): Promise<void> {
    await Promise.all([...this.folders.values()].map((open) => ofDisk(this.calls, open, () => call(open.folder))));
  }
}

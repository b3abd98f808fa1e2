/** Folders of the restore area that copies are put into: opened once each, synced together, closed at the end. */
import path from 'node:path';
import { type CopyPlace, type Folder, openFolder } from './restore-area.js';

/** Not to be asked for the folders of two places at once. */
export class OpenFolders {
  private readonly folders = new Map<string, Folder>();

  /** The folder of a place, made when missing. It stays open until `close`. @throws as `openFolder` */
  async open(place: CopyPlace): Promise<Folder> {
    const key = path.join(place.mountpoint, path.dirname(place.path));
    const folder = this.folders.get(key) ?? (await openFolder(place, place.path));
    this.folders.set(key, folder);
    return folder;
  }

  /** Makes what was put into them last. */
  async sync(): Promise<void> {
    await Promise.all([...this.folders.values()].map((folder) => folder.handle.sync()));
  }

  async close(): Promise<void> {
    await Promise.all([...this.folders.values()].map((folder) => folder.handle.close()));
  }
}

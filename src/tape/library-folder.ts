/** The folder of a directory library: found, made, and known again as the one that it was. */
import { constants } from 'node:fs';
import { mkdir, open, opendir, rmdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../errors.js';
import { LibraryError } from './backend.js';

/**
 * A library that is made has a file from then on: an empty folder is what shows where a file system is not mounted. No volume has such
 * a name.
 */
const MARKER = '.tapegate-library';

/** Whatever the umask is, nobody else may write in what is made here. */
const OWN_FOLDER = 0o755;

export class LibraryFolder {
  readonly root: string;
  /** As it was opened: what is mounted over it, or taken away from it, is another folder. */
  private opened: { dev: bigint; ino: bigint } | undefined;

  constructor(root: string) {
    this.root = root;
  }

  /** @param make it may be missing, or empty, and is made then @throws LibraryError */
  async open(make: boolean): Promise<void> {
    if (make) await this.make();
    else if (await this.isEmpty()) throw new LibraryError('TRANSIENT', `the library ${this.root} ${EMPTY}`);
    await this.refuseOpen(this.root);
    this.opened = await this.look();
  }

  /**
   * Anybody could exchange what is on tape, where anybody may write: nothing is entrusted to that. Its owner, and a group that may
   * write, are whom its operators have chosen.
   * @throws LibraryError
   */
  private async refuseOpen(folder: string): Promise<void> {
    const { mode } = await stat(folder).catch((error: unknown) => this.tellMissing(error, ''));
    if ((mode & 0o002) === 0) return;
    const bits = (mode & 0o7777).toString(8).padStart(4, '0');
    throw new LibraryError(
      'POLICY',
      `everybody may write in ${folder} (mode ${bits}), and exchange what is on tape: nothing is written there before chmod o-w`,
    );
  }

  /** @throws LibraryError when there is no library that the volume could be in */
  async expect(volume: string): Promise<void> {
    const isEmpty = await this.isEmpty(`, which should have the volume ${volume},`);
    if (isEmpty)
      throw new LibraryError('TRANSIENT', `the library ${this.root} has no volume at all, and not ${volume}: ${AWAY}`);
  }

  /** @throws LibraryError when another folder is in the place of the one that was opened */
  async check(): Promise<void> {
    if (!this.opened) return;
    const { dev, ino } = await this.look();
    if (dev === this.opened.dev && ino === this.opened.ino) return;
    throw new LibraryError('TRANSIENT', `the library ${this.root} is not the folder that it was: ${AWAY}`);
  }

  /** Makes a volume's folder, durably; never the library with it. */
  async makeVolume(folder: string): Promise<void> {
    await this.check();
    try {
      await mkdir(folder, OWN_FOLDER);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return await this.refuseOpen(folder);
      if (codeOf(error) === 'ENOENT') await this.look();
      throw error;
    }
    await this.check().catch(async (error: unknown) => {
      await rmdir(folder).catch(() => {}); // empty still, and in no library; it may have gone with what it was made in
      throw error;
    });
    await syncFolder(this.root);
  }

  private async make(): Promise<void> {
    const first = await mkdir(this.root, { recursive: true, mode: OWN_FOLDER });
    if (await this.isEmpty()) {
      // neither a link is followed, nor a pipe waited for, that somebody has put there meanwhile
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const marker = await open(path.join(this.root, MARKER), flags, 0o644);
      await marker.sync().finally(() => marker.close());
    }
    await syncFolder(this.root);
    if (first === undefined) return;
    const above = path.dirname(first);
    for (let folder = this.root; folder !== above; ) {
      folder = path.dirname(folder);
      await syncFolder(folder);
    }
  }

  private async isEmpty(which = ''): Promise<boolean> {
    const library = await opendir(this.root).catch((error: unknown) => this.tellMissing(error, which));
    try {
      return (await library.read()) === null;
    } finally {
      await library.close();
    }
  }

  private async look(): Promise<{ dev: bigint; ino: bigint }> {
    return await stat(this.root, { bigint: true }).catch((error: unknown) => this.tellMissing(error, ''));
  }

  private tellMissing(cause: unknown, which: string): never {
    throw new LibraryError('TRANSIENT', `the library ${this.root}${which} is not there: ${messageOf(cause)}`, {
      cause,
    });
  }
}

const AWAY = 'it may not be mounted';
const EMPTY = `has no volume at all: ${AWAY}`;

export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

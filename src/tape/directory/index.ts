/** The library type `directory`, in which each volume is a directory that contains one file for each position. */
import { randomUUID } from 'node:crypto';
import fs, { constants, type Dir } from 'node:fs';
import { access, link, mkdir, open, opendir, readdir, rm, rmdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { codeOf, messageOf, TapeError } from '../../core/errors.js';
import { LibraryError, VolumeError, type WritableLibrary } from '../drive-library.js';
import { classifyFileError, readFileChunks } from '../file-chunks.js';
import { type DriveKind, file, settingsOf } from '../kind.js';

export const directory: DriveKind<{ directory: string }> = {
  contract: 'drive',
  findsBy: 'position',
  settings: settingsOf({ directory: file().describe("the library's directory") }),
  create: ({ directory }) => createDirectoryLibrary(directory),
};

const openFd = promisify(fs.open);
const syncFd = promisify(fs.fsync);

/**
 * Number of files that are synced concurrently, because concurrent syncs can share one commit of the file system's
 * journal.
 */
const SYNCS = 8;

/**
 * Creates the object for a library of the type `directory`.
 * @param dir the directory of the library, which `openLibrary` can create
 */
export function createDirectoryLibrary(dir: string): WritableLibrary {
  const root = path.resolve(dir);
  const library = new LibraryDirectory(root);
  /** Paths of files that have been written but not synced, keyed by the volume's directory. */
  const unsynced = new Map<string, string[]>();
  return {
    openLibrary: (make) => library.open(make),

    findLast: (names) => findLast(root, names),

    async mount(volume, _drive, signal) {
      signal.throwIfAborted();
      const directory = volumeDirectory(root, volume);
      if (!(await isExistingDirectory(directory))) {
        await library.expect(volume);
        throw new TapeError('MEDIA', `the library has no volume ${volume} (the directory ${directory} does not exist)`);
      }
      return {
        read: ({ position }, readSignal) => readFile(library, directory, position, readSignal),
        unmount: async () => {},
      };
    },

    async write(volume, position, bytes, signal) {
      const directory = volumeDirectory(root, volume);
      try {
        signal.throwIfAborted();
        await library.makeVolume(directory);
        const size = await writeFile(directory, position, bytes, signal);
        const files = unsynced.get(directory) ?? [];
        files.push(path.join(directory, nameOf(position)));
        unsynced.set(directory, files);
        return size;
      } catch (error) {
        if (error instanceof SourceError) throw error.cause;
        throw signal.aborted ? signal.reason : classify(error, `volume ${volume}, position ${position}`);
      }
    },

    async sync(volume, signal) {
      const directory = volumeDirectory(root, volume);
      const files = unsynced.get(directory) ?? [];
      // sync each file only once, because a second sync after a failed sync might succeed without writing the data
      unsynced.delete(directory);
      try {
        signal.throwIfAborted();
        await syncFiles(files, signal);
        if (files.length === 0) return;
        await syncPath(directory);
        await library.check(); // fails if another directory has replaced the library's directory
      } catch (error) {
        throw signal.aborted ? signal.reason : classify(error, `volume ${volume}`);
      }
    },
  };
}

async function findLast(root: string, names: RegExp): Promise<{ volume: string; position: bigint } | undefined> {
  const volumes = (await readdir(root)).filter((name) => names.test(name));
  const volume = volumes.reduce((a, b) => (isLater(b, a) ? b : a), '');
  if (volume === '') return undefined;
  let last = '0';
  for await (const { name } of await opendir(path.join(root, volume))) {
    if (/^\d{8,}$/.test(name) && isLater(name, last)) last = name;
  }
  return { volume, position: BigInt(last) };
}

/**
 * Returns the path to the directory of a volume. Rejects volume names that lead outside the library, because the
 * catalogue can contain any name.
 */
function volumeDirectory(root: string, volume: string): string {
  if (volume.includes('/') || volume.includes('\0') || volume.startsWith('.') || volume === '') {
    throw new TapeError('PERMANENT', `${JSON.stringify(volume)} is not a valid volume name in a directory library`);
  }
  return path.join(root, volume);
}

function nameOf(position: bigint): string {
  return String(position).padStart(8, '0');
}

/**
 * Returns whether the name `a` sorts after the name `b`. A longer name sorts after a shorter name, so `A10` follows
 * `A9`.
 */
const isLater = (a: string, b: string): boolean => (a.length === b.length ? a > b : a.length > b.length);

const MISSING = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'];

async function isExistingDirectory(directory: string): Promise<boolean> {
  try {
    return (await stat(directory)).isDirectory();
  } catch (error) {
    if (MISSING.includes(codeOf(error) ?? '')) return false;
    throw classify(error, directory);
  }
}

/** Returns the reason why a volume is unreadable; undefined if the volume is readable. */
async function findProblem(directory: string): Promise<string | undefined> {
  try {
    if (!(await isExistingDirectory(directory))) return `the volume ${directory} no longer exists`;
    await access(directory, constants.X_OK);
    return undefined;
  } catch (error) {
    return `cannot enter the volume ${directory}: ${messageOf(error)}`;
  }
}

function readFile(
  library: LibraryDirectory,
  directory: string,
  position: bigint | null,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (position === null)
    throw new TapeError(
      'PERMANENT',
      `cannot read the file from the volume ${directory}: the position of the file is unknown`,
    );
  const file = path.join(directory, nameOf(position));
  return readFileChunks(file, signal, async (error) => {
    const problem = error instanceof TapeError ? undefined : await findProblem(directory);
    if (problem === undefined) return classify(error, file);
    await library.expect(path.basename(directory));
    return new VolumeError('MEDIA', problem, { cause: error });
  });
}

/** Reports that the bytes to be written to the library could not be read from their source. */
class SourceError extends Error {}

async function* markErrors(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* bytes;
  } catch (error) {
    throw new SourceError('cannot read the data to write', { cause: error });
  }
}

async function writeFile(
  directory: string,
  position: bigint,
  bytes: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<bigint> {
  const file = path.join(directory, nameOf(position));
  const partial = path.join(directory, `.${nameOf(position)}.${randomUUID()}.part`);
  const handle = await open(partial, 'wx', OWN_FILE);
  let written = 0n;
  try {
    for await (const chunk of markErrors(bytes)) {
      signal.throwIfAborted();
      await handle.writeFile(chunk);
      written += BigInt(chunk.length);
    }
    signal.throwIfAborted();
    await link(partial, file); // use `link`, because `rename` would overwrite an existing file
    return written;
  } finally {
    await handle.close();
    await rm(partial, { force: true });
  }
}

async function syncFiles(files: readonly string[], signal: AbortSignal): Promise<void> {
  const left = files.values();
  const syncNext = async () => {
    for (const file of left) {
      signal.throwIfAborted();
      const fd = await openFd(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      try {
        if (!fs.fstatSync(fd).isFile()) throw new TapeError('PERMANENT', `${file} is not a regular file`);
        await syncFd(fd);
      } finally {
        fs.closeSync(fd);
      }
    }
  };
  await Promise.all(Array.from({ length: SYNCS }, syncNext));
}

function classify(error: unknown, where: string): unknown {
  return classifyFileError(error, where, 'no file at this position');
}

/**
 * Name of the marker file in each library that Tapegate has created. An empty directory without a marker file might be
 * an unmounted mount point. A volume cannot have the marker's name.
 */
const MARKER = '.tapegate-library';

/**
 * Permissions of directories in a library. Only the owner has access, because tape copies do not keep the permissions
 * of the original files, some of which might be private.
 */
const OWN_DIRECTORY = 0o700;
const OWN_FILE = 0o600;

class LibraryDirectory {
  readonly root: string;
  /**
   * Device and inode of the directory when the library was opened. If the device or inode changes, another directory or
   * file system is now at the same path.
   */
  private opened: { dev: bigint; ino: bigint } | undefined;

  constructor(root: string) {
    this.root = root;
  }

  async open(make: boolean): Promise<void> {
    if (make) await this.make();
    else if (await this.isEmpty()) throw new LibraryError('TRANSIENT', `the library ${this.root} ${EMPTY}`);
    await this.refuseOpen(this.root);
    this.opened = await this.identify();
  }

  /** Rejects a world-writable directory, because any user could replace tape files in it. @throws LibraryError */
  private async refuseOpen(directory: string): Promise<void> {
    const { mode } = await stat(directory).catch((error: unknown) => this.throwMissing(error, ''));
    if ((mode & 0o002) === 0) return;
    const bits = (mode & 0o7777).toString(8).padStart(4, '0');
    throw new LibraryError(
      'POLICY',
      `every user may write to ${directory} (mode ${bits}) and replace tape files: run chmod o-w on the directory before archiving`,
    );
  }

  /** Rejects an empty library, because its file system is probably not mounted. @throws LibraryError */
  async expect(volume: string): Promise<void> {
    const isEmpty = await this.isEmpty(`, which should contain the volume ${volume},`);
    if (isEmpty)
      throw new LibraryError('TRANSIENT', `the library ${this.root} contains no volumes, not even ${volume}: ${AWAY}`);
  }

  /** Rejects the library if another directory has replaced the opened directory. @throws LibraryError */
  async check(): Promise<void> {
    if (!this.opened) return;
    const { dev, ino } = await this.identify();
    if (dev === this.opened.dev && ino === this.opened.ino) return;
    throw new LibraryError('TRANSIENT', `the library ${this.root} is not the same directory as before: ${AWAY}`);
  }

  async makeVolume(directory: string): Promise<void> {
    await this.check();
    try {
      await mkdir(directory, OWN_DIRECTORY);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return await this.refuseOpen(directory);
      if (codeOf(error) === 'ENOENT') await this.identify();
      throw error;
    }
    await this.check().catch(async (error: unknown) => {
      // remove the volume's new directory, because it is not in this library: another directory has replaced the
      // library
      await rmdir(directory).catch(() => {});
      throw error;
    });
    await syncPath(this.root);
  }

  private async make(): Promise<void> {
    const first = await mkdir(this.root, { recursive: true, mode: OWN_DIRECTORY });
    if (await this.isEmpty()) {
      // do not follow a link or wait for a pipe, because another process might have created a link or pipe with the
      // marker's name
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const marker = await open(path.join(this.root, MARKER), flags, OWN_FILE);
      await marker.sync().finally(() => marker.close());
    }
    await syncPath(this.root);
    if (first === undefined) return;
    const above = path.dirname(first);
    for (let directory = this.root; directory !== above; ) {
      directory = path.dirname(directory);
      await syncPath(directory);
    }
  }

  private async isEmpty(which = ''): Promise<boolean> {
    const library = await opendir(this.root).catch((error: unknown) => this.throwMissing(error, which));
    return await isEmpty(library);
  }

  private async identify(): Promise<{ dev: bigint; ino: bigint }> {
    return await stat(this.root, { bigint: true }).catch((error: unknown) => this.throwMissing(error, ''));
  }

  private throwMissing(cause: unknown, which: string): never {
    throw new LibraryError('TRANSIENT', `the library ${this.root}${which} does not exist: ${messageOf(cause)}`, {
      cause,
    });
  }
}

/** Name of the file that records which Tapegate installation owns a library or a restore disk. */
export const ownerName = '.tapegate-disk-owner';

/** Returns whether a library contains no file other than `ownerName`. */
export async function isEmptyLibrary(root: string): Promise<boolean> {
  return await isEmpty(await opendir(root));
}

async function isEmpty(library: Dir): Promise<boolean> {
  // the `for await` loop closes the directory, even after `return`
  for await (const { name } of library) if (!name.startsWith(ownerName)) return false;
  return true;
}

const AWAY = 'its file system might not be mounted';
const EMPTY = `contains no volumes: ${AWAY}`;

async function syncPath(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** A mounted cartridge. Reads the cartridge's files by path, and lists all files for the command `scan`. */
import { constants } from 'node:fs';
import { access, lstat, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, oneLine, quote, TapeError } from '../../core/errors.js';
import { readEntries } from '../../core/text/file-names.js';
import { type FileOnVolume, LibraryError, type MountedVolume, VolumeError } from '../drive-library.js';
import { classifyFileError, readFileChunks } from '../file-chunks.js';
import { CommandFailure, type HeldLock, runCommand } from './commands.js';
import type { Drive } from './drive.js';
import { fill, type LtfsSettings } from './settings.js';

export interface ListedFile extends FileOnVolume {
  position: bigint;
  /** Modification time of the file, in nanoseconds since 1970. */
  mtimeNs: bigint;
}

export interface ListOptions {
  /** Logical path of a directory; if present, only files below this directory are listed. */
  below?: string | undefined;
  signal: AbortSignal;
  /**
   * Called for each directory entry that is skipped because its name is not UTF-8, or because it is neither a file nor
   * a directory.
   * @param why the reason, worded as the end of a sentence that begins with the path
   */
  onSkip?: (path: string, why: string) => void;
}

export interface ListableVolume extends MountedVolume {
  /** @throws TapeError */
  list(options: ListOptions): AsyncIterable<ListedFile>;
}

interface Found {
  entryPath: string;
  file: Omit<ListedFile, 'position'>;
}

const BLOCKS_AT_ONCE = 8;

/** Error codes which show that the process behind a FUSE file system has died. */
const GONE = ['ENOTCONN', 'ECONNABORTED', 'ESTALE', 'ENODEV', 'ENXIO'];

export class LtfsVolume implements ListableVolume {
  private readonly name: string;
  private readonly drive: Drive;
  private readonly settings: LtfsSettings;
  private readonly inUse: HeldLock;
  /**
   * Path of the directory on the cartridge that the setting `root` names. `base` is the same path with symbolic links
   * resolved.
   */
  private readonly top: string;
  private readonly base: string;
  /**
   * The last directory that was found to be inside `base`. Cached, because one check is enough for all files in a
   * directory.
   */
  private directory = '';

  private constructor(name: string, drive: Drive, settings: LtfsSettings, inUse: HeldLock, base: string) {
    this.name = name;
    this.drive = drive;
    this.settings = settings;
    this.inUse = inUse;
    this.top = path.join(drive.drive.mountPoint, settings.root);
    this.base = base;
  }

  /**
   * Mounts a cartridge in a drive.
   * @param waitSeconds maximum time to wait while another process uses the drive
   * @throws TapeError
   */
  static async open(
    name: string,
    { drive, settings, waitSeconds }: { drive: Drive; settings: LtfsSettings; waitSeconds: number },
    signal: AbortSignal,
  ): Promise<LtfsVolume> {
    const inUse = await drive.open(name, waitSeconds, signal);
    try {
      const base = await findBase(drive.drive.mountPoint, settings.root);
      return new LtfsVolume(name, drive, settings, inUse, base);
    } catch (error) {
      await drive.empty().catch(() => {}); // ignore a failure, because the next mount cleans up the drive
      inUse.close();
      throw explainRoot(name, settings.root, error);
    }
  }

  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.readPath(file.path, signal);
  }

  async unmount(): Promise<void> {
    try {
      await this.drive.empty();
    } finally {
      this.inUse.close();
    }
  }

  async *list({ below, signal, onSkip }: ListOptions): AsyncGenerator<ListedFile> {
    const start = below === undefined ? this.top : path.join(this.top, this.toTape(below));
    try {
      await this.expectInside(start);
      yield* this.addPositions(this.walk(start, signal, onSkip), signal);
    } catch (error) {
      throw signal.aborted ? signal.reason : await this.explain(error, start);
    }
  }

  /**
   * Asks LTFS for the start block of each file.
   * @returns the files with their start blocks, in the order of `files`
   * @throws TapeError
   */
  private async *addPositions(files: AsyncIterable<Found>, signal: AbortSignal): AsyncGenerator<ListedFile> {
    const asked: Promise<ListedFile>[] = [];
    try {
      for await (const { entryPath, file } of files) {
        const answer = this.findStart(entryPath, file.size, signal).then((position) => ({ ...file, position }));
        answer.catch(() => {}); // prevents an unhandled rejection; the later `await` throws the error
        asked.push(answer);
        const first = asked.length >= BLOCKS_AT_ONCE ? asked.shift() : undefined;
        if (first) yield await first;
      }
      for (const answer of asked.splice(0)) yield await answer;
    } finally {
      await Promise.allSettled(asked);
    }
  }

  private async findStart(entryPath: string, size: bigint, signal: AbortSignal): Promise<bigint> {
    if (size === 0n) return 0n; // an empty file does not have a start block on the tape
    const { commands, seconds } = this.settings;
    const args = fill(commands.startBlock, { file: entryPath });
    const said = await runCommand(args, { seconds: seconds.startBlock, signal }).catch((error: unknown) => {
      if (!(error instanceof CommandFailure)) throw error;
      throw new TapeError('TRANSIENT', `cannot read the start block of ${entryPath}: ${error.message}`, {
        cause: error,
      });
    });
    if (/^\d{1,18}$/.test(said.trim())) return BigInt(said.trim());
    const shown = JSON.stringify(oneLine(said, 100));
    throw new TapeError('PERMANENT', `the start block of ${entryPath} must be a number, not ${shown}`);
  }

  /** Walks a directory tree, without loading a whole directory into memory. */
  private async *walk(directory: string, signal: AbortSignal, onSkip: ListOptions['onSkip']): AsyncGenerator<Found> {
    for await (const { name, isText } of readEntries(directory)) {
      signal.throwIfAborted();
      const entryPath = path.join(directory, name);
      const logical = path.posix.join(this.settings.prefix, path.relative(this.top, entryPath));
      if (!isText) {
        onSkip?.(logical, 'has a name that is not UTF-8');
        continue;
      }
      const stats = await lstat(entryPath, { bigint: true });
      if (stats.isDirectory()) yield* this.walk(entryPath, signal, onSkip);
      else if (stats.isFile()) yield { entryPath, file: { path: logical, size: stats.size, mtimeNs: stats.mtimeNs } };
      else onSkip?.(logical, 'is neither a file nor a directory');
    }
  }

  private async *readPath(logical: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    let entryPath = this.top;
    try {
      entryPath = path.join(this.top, this.toTape(logical));
      signal.throwIfAborted();
      if (path.dirname(entryPath) !== this.directory) {
        await this.expectInside(path.dirname(entryPath));
        this.directory = path.dirname(entryPath);
      }
    } catch (error) {
      throw signal.aborted ? signal.reason : await this.explain(error, entryPath);
    }
    yield* readFileChunks(entryPath, signal, (error) => this.explain(error, entryPath));
  }

  /**
   * Converts a logical path to the path below `root` on the cartridge.
   * @throws TapeError PERMANENT if the path is invalid, or not below the library's prefix
   */
  private toTape(logical: string): string {
    const { prefix } = this.settings;
    const top = prefix === '/' ? '' : prefix;
    const isBelow = logical === prefix || logical.startsWith(`${top}/`);
    const parts = logical.slice(top.length + 1).split('/');
    const isPlain = logical === prefix || parts.every((part) => !['', '.', '..'].includes(part));
    if (isBelow && isPlain && !logical.includes('\0')) return parts.join('/');
    const why = isBelow ? 'is not the path of a file' : `is not below ${prefix}, the prefix of this library`;
    throw new TapeError('PERMANENT', `${quote(logical)} ${why}`);
  }

  /**
   * Rejects a directory outside the cartridge, because a symbolic link on the cartridge might lead to any directory on
   * the host.
   */
  private async expectInside(directory: string): Promise<void> {
    const real = await realpath(directory);
    if (real === this.base || real.startsWith(`${this.base}/`)) return;
    throw new TapeError('PERMANENT', `${directory} links to ${real}, outside the cartridge`);
  }

  /**
   * Converts a file system error to a tape error. If the cartridge is no longer mounted, returns a VolumeError, because
   * the file is not the cause.
   */
  private async explain(error: unknown, entryPath: string): Promise<unknown> {
    if (error instanceof TapeError || codeOf(error) === undefined) return error;
    const problem = GONE.includes(codeOf(error) ?? '') ? messageOf(error) : await this.findProblem();
    if (problem === undefined) return classifyFileError(error, entryPath, 'no such file on the cartridge');
    return new VolumeError('TRANSIENT', `${this.name} is no longer mounted: ${problem}`, { cause: error });
  }

  private async findProblem(): Promise<string | undefined> {
    try {
      if (!(await this.drive.isMounted())) return `nothing is mounted at ${this.drive.drive.mountPoint}`;
      await access(this.base, constants.R_OK | constants.X_OK);
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  }
}

/** @throws a file system error; VolumeError if `root` links to a directory outside the cartridge */
async function findBase(mountPoint: string, root: string): Promise<string> {
  const [mounted, base] = [await realpath(mountPoint), await realpath(path.join(mountPoint, root))];
  await access(base, constants.R_OK | constants.X_OK);
  if (base === mounted || base.startsWith(`${mounted}/`)) return base;
  throw new VolumeError('PERMANENT', `the directory ${root} on the cartridge links to ${base}, outside the cartridge`);
}

function explainRoot(name: string, root: string, error: unknown): TapeError {
  if (error instanceof TapeError) return error;
  const code = codeOf(error) ?? '';
  const options = { cause: error };
  if (code === 'ENOENT' || code === 'ENOTDIR') {
    return new VolumeError(
      'MEDIA',
      `the cartridge ${name} has no directory ${root}: the cartridge might not belong to this library`,
      options,
    );
  }
  if (code === 'EACCES' || code === 'EPERM') {
    const advice = 'if another user mounts the cartridge, use the mount options -o allow_other, or -o uid= and -o gid=';
    return new LibraryError('POLICY', `cannot read the cartridge ${name}: ${messageOf(error)} (${advice})`, options);
  }
  return new VolumeError('TRANSIENT', `the cartridge ${name} cannot be read: ${messageOf(error)}`, options);
}

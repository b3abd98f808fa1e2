/**
 * Reads copies for clients without access to the disk. Reads a file only if it is the recorded copy, and never follows
 * a symbolic link.
 *
 * Limits the number of concurrent calls, because a call that hangs in the kernel blocks one of the process's few
 * threads.
 */
import type { BigIntStats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, isExhausted, messageOf, TapeError } from '../../core/errors.js';
import { Limiter } from '../../core/limiter.js';
import { CallWatch, HungError } from '../call-watch.js';
import { openPlain, readChunks, startChecksum } from '../checksum.js';
import { AbsentError } from '../marker.js';
import { type Directory, withCopy } from '../restore-area.js';
import { isRenumbered, matchesRecord, matchesTimes, type RecordedCopy } from './copy.js';

/**
 * Reason why a copy cannot be read. `absent` means that the copy's disk is not mounted on this host. `gone` means that
 * there is no file at the copy's path. `changed` means that another file is at the copy's path. `private` means that
 * the caller requires a copy that every user on this host can read, but some users cannot read this copy. `busy` means
 * that the disk does not respond, or that too many clients are reading copies.
 */
export type Closed = 'absent' | 'gone' | 'changed' | 'private' | 'busy';

export interface ClosedCopy {
  closed: Closed;
  /** Message that explains to operators why the copy cannot be read. It contains paths on this host. */
  message: string;
}

/** An open copy, which the caller must close. */
export interface OpenCopy {
  /** The original file's modification time, in nanoseconds. */
  mtimeNs: bigint;
  /**
   * Reads the copy's bytes from `position` into the buffer.
   * @returns the number of bytes read, which is smaller than the buffer only at the end of the file
   * @throws TapeError if the disk hangs
   */
  read(buffer: Uint8Array, position: number): Promise<number>;
  isUnchanged(): Promise<boolean>;
  /** Closes the copy in the background. */
  close(): void;
}

/**
 * Maximum size, in bytes, of a copy that is compared with its checksum while the client waits. A larger copy is
 * compared in the background, and until then the client gets an error.
 */
const MAX_COMPARED_BYTES = 1024n ** 3n;
const MAX_CACHED = 10_000;
const DIRECTORY_MS = 5000;

interface OpenedFile {
  stats: BigIntStats;
  name: string;
  directory: Directory;
  isPublic: boolean;
  tick: () => void;
}

interface ReaderOptions {
  calls: number;
  seconds: number;
  mostCompared?: bigint;
  isStopping?: () => boolean;
}

export class CopyReader {
  private readonly watch: CallWatch;
  /**
   * Limits the number of concurrent calls. A call occupies a slot until the call ends, even if the caller has stopped
   * waiting.
   */
  private readonly slots: Limiter;
  private readonly waitMs: number;
  private readonly mostCompared: number | bigint;
  private readonly isStopping: () => boolean;
  private readonly compared = new Map<string, boolean>();
  private isComparing = false;
  private readonly directories = new Map<string, { isOpen: boolean; at: number }>();

  /** @param seconds seconds after which a call counts as hung */
  constructor({ calls, seconds, mostCompared = MAX_COMPARED_BYTES, isStopping = () => false }: ReaderOptions) {
    this.mostCompared = mostCompared;
    this.isStopping = isStopping;
    this.watch = new CallWatch({ disk: seconds, tape: seconds });
    this.slots = new Limiter(calls);
    this.waitMs = seconds * 1000;
  }

  /** @param isPublic whether the copy must be readable by every user on this host */
  async open(copy: RecordedCopy, { isPublic }: { isPublic: boolean }): Promise<OpenCopy | ClosedCopy> {
    let isGivenUp = false;
    const openKnown = async (file: string, directory: Directory, tick: () => void): Promise<OpenCopy | ClosedCopy> => {
      const name = path.join(directory.path, path.basename(copy.path));
      const handle = await openPlain(file, name);
      let closed: ClosedCopy | undefined;
      try {
        const stats = await handle.stat({ bigint: true });
        closed = await this.findMismatch(copy, handle, { stats, name, isPublic, directory, tick });
        if (closed === undefined && !isGivenUp) return this.opened(copy, handle, stats);
      } catch (error) {
        await handle.close();
        throw error;
      }
      await handle.close();
      return closed ?? { closed: 'busy', message: `opening ${name} took too long` };
    };
    try {
      return await this.call(copy, (tick) => withCopy(copy, (file, directory) => openKnown(file, directory, tick)));
    } catch (error) {
      isGivenUp = true; // if the hung call ends later, `openKnown` closes the file that it has opened
      return closedBy(error);
    }
  }

  /**
   * Returns the reason why clients must not read an open file; undefined if the file is the recorded copy and is
   * readable.
   */
  private async findMismatch(
    copy: RecordedCopy,
    handle: FileHandle,
    found: OpenedFile,
  ): Promise<ClosedCopy | undefined> {
    const { stats, name, isPublic, directory, tick } = found;
    if (isPublic && ((stats.mode & 4n) === 0n || !(await this.isPublicDirectory(directory.path)))) {
      return { closed: 'private', message: `${name} must be readable by every user of the host, but is not` };
    }
    if (matchesTimes(copy, stats)) return undefined;
    if (matchesRecord(copy, stats) || (await isRenumbered(copy, stats, directory.root))) {
      const isSame = await this.hasRecordedBytes(copy, handle, stats, tick);
      if (isSame) return undefined;
      if (isSame === undefined)
        return {
          closed: 'busy',
          message: `the ctime of ${name} has changed; Tapegate verifies the checksum before it serves the file`,
        };
    }
    return { closed: 'changed', message: `${name} is not the copy that Tapegate wrote` };
  }

  /**
   * Returns whether a file with a changed ctime still has the copy's bytes. A new ctime does not prove that the bytes
   * have changed, because a change of the owner or mode also sets the ctime.
   * @returns undefined until a background comparison has ended
   */
  private async hasRecordedBytes(
    copy: RecordedCopy,
    handle: FileHandle,
    stats: BigIntStats,
    tick: () => void,
  ): Promise<boolean | undefined> {
    if (copy.copyChecksum === null) return true;
    const key = JSON.stringify([copy.diskId, copy.path, String(stats.ino), String(stats.ctimeNs), copy.copyChecksum]);
    const known = this.compared.get(key);
    if (known !== undefined) return known;
    if (stats.size > this.mostCompared) {
      if (!this.isComparing) await this.compareLater({ ...copy, copyChecksum: copy.copyChecksum }, handle, stats, key);
      return undefined;
    }
    const checksum = await startChecksum(copy.copyChecksum);
    for await (const chunk of readChunks(handle)) {
      checksum.update(chunk);
      tick();
    }
    if ((await handle.stat({ bigint: true })).ctimeNs !== stats.ctimeNs) return false;
    return this.cache(key, checksum.digest() === copy.copyChecksum);
  }

  private cache(key: string, isSame: boolean): boolean {
    if (this.compared.size >= MAX_CACHED) this.compared.clear();
    this.compared.set(key, isSame);
    return isSame;
  }

  /**
   * Starts to compare a large copy with its checksum in the background. Reads each chunk in a separate call, so that
   * client requests can use the slots between these calls.
   */
  private async compareLater(
    copy: RecordedCopy & { copyChecksum: string },
    handle: FileHandle,
    { ctimeNs }: BigIntStats,
    key: string,
  ): Promise<void> {
    this.isComparing = true;
    const end = () => {
      this.isComparing = false;
    };
    const own = await open(`/proc/self/fd/${handle.fd}`).catch((error: unknown) => {
      end();
      throw error;
    });
    const compare = async () => {
      const checksum = await startChecksum(copy.copyChecksum);
      const chunks = readChunks(own);
      for (;;) {
        const { done, value } = await this.call(copy, () => chunks.next());
        if (done) break;
        if (this.isStopping()) return;
        checksum.update(value);
      }
      const now = await this.call(copy, () => own.stat({ bigint: true }));
      if (now.ctimeNs === ctimeNs) this.cache(key, checksum.digest() === copy.copyChecksum);
    };
    // ignore the error, because the next client that opens the copy starts another comparison
    void compare()
      .catch(() => {})
      .finally(end)
      .finally(() => this.closeLater(copy, own));
  }

  private async isPublicDirectory(directory: string): Promise<boolean> {
    const now = performance.now();
    const known = this.directories.get(directory);
    if (known && now - known.at < DIRECTORY_MS) return known.isOpen;
    const above = path.dirname(directory);
    const isOpen =
      ((await stat(directory)).mode & 1) !== 0 && (above === directory || (await this.isPublicDirectory(above)));
    if (this.directories.size >= MAX_CACHED) this.directories.clear();
    this.directories.set(directory, { isOpen, at: now });
    return isOpen;
  }

  private opened(copy: RecordedCopy, handle: FileHandle, { size, mtimeNs }: BigIntStats): OpenCopy {
    return {
      mtimeNs,
      read: async (buffer, position) =>
        await this.call(copy, async () => (await handle.read(buffer, 0, buffer.length, position)).bytesRead),
      isUnchanged: async () => {
        const now = await this.call(copy, () => handle.stat({ bigint: true }));
        return now.size === size && now.mtimeNs === mtimeNs;
      },
      close: () => void this.closeLater(copy, handle),
    };
  }

  /**
   * Closes a file descriptor. Waits for a slot without a time limit, because the descriptor would otherwise stay open
   * forever.
   */
  private async closeLater({ mountpoint }: RecordedCopy, handle: FileHandle): Promise<void> {
    const leave = await this.slots.take();
    const closed = this.watch.follow({ kind: 'disk', mountpoint }, () => handle.close().finally(leave));
    // ignore errors, because other calls report a hung disk
    await closed.catch(() => {});
  }

  private noAnswer(): TapeError {
    return new TapeError('TRANSIENT', `the restore disks have not answered for ${this.waitMs / 1000} s`);
  }

  private async call<T>({ mountpoint }: RecordedCopy, work: (tick: () => void) => Promise<T>): Promise<T> {
    const leave = await this.slots.take({ late: { ms: this.waitMs, error: () => this.noAnswer() } });
    return await this.watch.follow({ kind: 'disk', mountpoint }, (tick) => work(tick).finally(leave));
  }
}

/**
 * Converts an error that occurred while opening or reading a copy to the reason why clients cannot read the copy.
 * @throws any other error
 */
function closedBy(error: unknown): ClosedCopy {
  const closed = findClosed(error);
  if (closed === undefined) throw error;
  return { closed, message: messageOf(error) };
}

function findClosed(error: unknown): Closed | undefined {
  if (error instanceof AbsentError) return 'absent';
  if (error instanceof HungError || isExhausted(error)) return 'busy';
  if (error instanceof TapeError) return error.errorClass === 'POLICY' ? 'changed' : 'busy';
  const code = codeOf(error);
  if (code === 'ENOENT') return 'gone';
  return code === undefined ? undefined : 'busy'; // any other error code, such as EIO or EACCES, concerns the disk
}

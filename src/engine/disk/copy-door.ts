/**
 * Copies that are read for those who have no way to the disk: each is opened as one that is known, never as what a link or a stranger has put in its
 * place, and read through the descriptor from then on.
 *
 * Whoever serves them has few threads, and a call that hangs in the kernel keeps one for good. So no more than some of the calls go on at once, here
 * in all, and what has hung is told; the other threads stay with those who need no disk.
 */
import type { BigIntStats } from 'node:fs';
import { type FileHandle, stat } from 'node:fs/promises';
import path from 'node:path';
import { Limiter } from '../../core/limiter.js';
import { codeOf, isExhausted, messageOf, TapeError } from '../../errors.js';
import { CallWatch, HungError } from '../calls.js';
import { openPlain, startChecksum } from '../checksum.js';
import { isKnownBy, type LeftCopy } from './copy.js';
import { AbsentError } from './marker.js';
import { type Folder, withCopy } from './restore-area.js';

/**
 * Why a copy cannot be read: its disk is not on this host; nothing is in its place; what is there is not the copy; not everybody on this host may
 * read it; the disk does not answer, or there are too many readers.
 */
export type Closed = 'absent' | 'gone' | 'changed' | 'private' | 'busy';

export interface ClosedCopy {
  closed: Closed;
  /** For operators: it names places on this host. */
  message: string;
}

/** To be closed by whoever has it. */
export interface OpenCopy {
  /** When its bytes were last changed, which is as of the original. */
  mtimeNs: bigint;
  /** Fills the buffer from there on, or as far as the copy goes. @returns bytes read @throws TapeError where the disk hangs */
  read(buffer: Uint8Array, position: number): Promise<number>;
  /** Is it what it was when it was opened? */
  isUnchanged(): Promise<boolean>;
  /** Where the disk hangs, once it answers: nobody waits for that. */
  close(): void;
}

/** Of a larger one, of which only the time of change is another, the bytes are not compared on behalf of a reader. */
const MOST_COMPARED = 1024n ** 3n;
const CHUNK = 1024 * 1024;
/** Copies whose bytes were compared, and folders that were looked at. */
const MOST_KNOWN = 10_000;
const FOLDER_MS = 5000;

/** What was opened, and for whom. */
interface Found {
  stats: BigIntStats;
  name: string;
  folder: Folder;
  isPublic: boolean;
  tick: () => void;
}

export class CopyDoor {
  private readonly watch: CallWatch;
  /** A call has its slot until it has really ended, whoever still waits for it. */
  private readonly slots: Limiter;
  private readonly waitMs: number;
  /** Do they have the bytes that they had? */
  private readonly compared = new Map<string, boolean>();
  private readonly folders = new Map<string, { isOpen: boolean; at: number }>();

  /** @param seconds after which a call hangs */
  constructor({ calls, seconds }: { calls: number; seconds: number }) {
    this.watch = new CallWatch({ disk: seconds, tape: seconds });
    this.slots = new Limiter(calls);
    this.waitMs = seconds * 1000;
  }

  /** @param isPublic only where everybody on this host may read it */
  async open(copy: LeftCopy, { isPublic }: { isPublic: boolean }): Promise<OpenCopy | ClosedCopy> {
    let isGivenUp = false;
    const openKnown = async (file: string, folder: Folder, tick: () => void): Promise<OpenCopy | ClosedCopy> => {
      const name = path.join(folder.place, path.basename(copy.path));
      const handle = await openPlain(file, name);
      let closed: ClosedCopy | undefined;
      try {
        const stats = await handle.stat({ bigint: true });
        closed = await this.findWrong(copy, handle, { stats, name, isPublic, folder, tick });
        if (closed === undefined && !isGivenUp) return this.opened(copy, handle, stats);
      } catch (error) {
        await handle.close();
        throw error;
      }
      await handle.close();
      return closed ?? { closed: 'busy', message: `${name} was opened too late` };
    };
    try {
      return await this.call(copy, (tick) => withCopy(copy, (file, folder) => openKnown(file, folder, tick)));
    } catch (error) {
      isGivenUp = true; // what hangs may end all the same
      return closedBy(error);
    }
  }

  /** @returns undefined where it is the copy, and may be read */
  private async findWrong(copy: LeftCopy, handle: FileHandle, found: Found): Promise<ClosedCopy | undefined> {
    const { stats, name, isPublic, folder, tick } = found;
    if (isPublic && ((stats.mode & 4n) === 0n || !(await this.isOpenFolder(folder.place)))) {
      return { closed: 'private', message: `${name} is not for everybody on its host` };
    }
    if (isKnownBy(copy, stats) && (await this.hasItsBytes(copy, handle, stats, tick))) return undefined;
    return { closed: 'changed', message: `${name} is not the copy that was put there` };
  }

  /** What was done to it may have changed its owner or mode alone. */
  private async hasItsBytes(
    copy: LeftCopy,
    handle: FileHandle,
    stats: BigIntStats,
    tick: () => void,
  ): Promise<boolean> {
    if (copy.ctimeNs === stats.ctimeNs && copy.ino !== null) return true;
    if (copy.copyChecksum === null) return copy.ino !== null;
    const key = JSON.stringify([copy.diskId, copy.path, String(stats.ino), String(stats.ctimeNs), copy.copyChecksum]);
    const known = this.compared.get(key);
    if (known !== undefined) return known;
    if (stats.size > MOST_COMPARED) return false;
    const checksum = await startChecksum(copy.copyChecksum);
    const buffer = Buffer.allocUnsafe(CHUNK);
    for (let position = 0; ; ) {
      const { bytesRead } = await handle.read(buffer, 0, CHUNK, position);
      if (bytesRead === 0) break;
      checksum.update(buffer.subarray(0, bytesRead));
      position += bytesRead;
      tick();
    }
    if ((await handle.stat({ bigint: true })).ctimeNs !== stats.ctimeNs) return false;
    const isSame = checksum.digest() === copy.copyChecksum;
    if (this.compared.size >= MOST_KNOWN) this.compared.clear();
    this.compared.set(key, isSame);
    return isSame;
  }

  /** May everybody on this host go there? */
  private async isOpenFolder(place: string): Promise<boolean> {
    const now = performance.now();
    const known = this.folders.get(place);
    if (known && now - known.at < FOLDER_MS) return known.isOpen;
    const above = path.dirname(place);
    const isOpen = ((await stat(place)).mode & 1) !== 0 && (above === place || (await this.isOpenFolder(above)));
    if (this.folders.size >= MOST_KNOWN) this.folders.clear();
    this.folders.set(place, { isOpen, at: now });
    return isOpen;
  }

  private opened(copy: LeftCopy, handle: FileHandle, { size, mtimeNs }: BigIntStats): OpenCopy {
    return {
      mtimeNs,
      read: async (buffer, position) =>
        await this.call(copy, async () => (await handle.read(buffer, 0, buffer.length, position)).bytesRead),
      isUnchanged: async () => {
        const now = await this.call(copy, () => handle.stat({ bigint: true }));
        return now.size === size && now.mtimeNs === mtimeNs;
      },
      close: () => void this.closeInTurn(copy, handle),
    };
  }

  /** However long all places are kept by what hangs: what is not closed would be open for good. */
  private async closeInTurn({ mountpoint }: LeftCopy, handle: FileHandle): Promise<void> {
    const leave = await this.slots.take();
    const closed = this.watch.follow({ kind: 'disk', mountpoint }, () => handle.close().finally(leave));
    await closed.catch(() => {}); // of what is only read nothing is lost, and a disk that hangs is told by others
  }

  private noAnswer(): TapeError {
    return new TapeError('TRANSIENT', `the restore disks have not answered for ${this.waitMs / 1000} s`);
  }

  private async call<T>({ mountpoint }: LeftCopy, work: (tick: () => void) => Promise<T>): Promise<T> {
    const leave = await this.slots.take({ late: { ms: this.waitMs, error: () => this.noAnswer() } });
    return await this.watch.follow({ kind: 'disk', mountpoint }, (tick) => work(tick).finally(leave));
  }
}

/** @throws what says nothing of the copy or its disk */
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
  return code === undefined ? undefined : 'busy'; // the disk says why, such as EIO or EACCES
}

/**
 * The ready files of a staging library, as a mounted volume for drive/batch.ts. A file that breaks off is resumed from there.
 *
 * Files that a library fails to deliver are told apart from a library that cannot be read: a storage element that has lost one pool fails
 * for all files of that pool, and the others must not wait for them.
 */
import type { Context } from '../../context.js';
import { TapeError } from '../../errors.js';
import type { StagingRow } from '../../operations/staging/answers.js';
import { noteUnread, stageAgain } from '../../operations/staging/answers.js';
import { type FileOnVolume, LibraryError, type MountedVolume } from '../../tape/backend.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError, type StagedFile } from '../../tape/staging.js';
import { tapeSeconds, within } from '../calls.js';
import { PutOffError } from '../drive/retry.js';
import type { StagingPlace } from './place.js';
import { restSeconds } from './rests.js';

/** A file that breaks off so often with less than that between is left: byte by byte it would hold its reader for ever. */
const MOST_BREAKS = 3;
const LEAST_BYTES = 64 * 1024;

export class StagedSource implements MountedVolume {
  private readonly ctx: Context;
  private readonly place: StagingPlace;
  private readonly rows: ReadonlyMap<string, StagingRow>;
  private readonly unread: Unread;

  /**
   * @param rows what the library was asked of the files that are to be read
   * @param unread of the visit
   */
  constructor(ctx: Context, place: StagingPlace, rows: readonly StagingRow[], unread: Unread) {
    this.ctx = ctx;
    this.place = place;
    this.rows = new Map(rows.map((row) => [row.path, row]));
    this.unread = unread;
  }

  /** @throws PutOffError where the library could not give the file, and may give others; LibraryError where it cannot be read */
  async *read(file: FileOnVolume, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const row = this.rows.get(file.path);
    if (!row) throw new NotReadyError(`library ${this.place.name} was asked for ${file.path} no more`);
    if (this.unread.failure) throw this.unread.failure;
    try {
      yield* this.readOn(row, file, signal);
      this.unread.noteAnswer();
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof TapeError)) throw error;
      if (error instanceof NotReadyError || !(error instanceof LibraryError)) {
        this.unread.noteAnswer();
        throw error;
      }
      this.unread.note(file.path, error);
      await noteUnread(this.ctx, this.place.id, row);
      throw new PutOffError(error.message, restSeconds(error, row.attempts, Math.random()), { cause: error });
    }
  }

  /** From where it breaks off. */
  private async *readOn(
    row: StagingRow,
    { path, size, checksum }: FileOnVolume,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const file = { path, size, checksum, volume: row.volume, position: row.position };
    const version: ReadVersion = {};
    let from = 0n;
    for (let breaks = 0; ; ) {
      const begun = from;
      try {
        for await (const chunk of this.follow(file, { from, version }, signal)) {
          from += BigInt(chunk.length);
          yield chunk;
        }
        // a connection that ends early may look like the end of the file
        breaks = from - begun >= LEAST_BYTES ? 1 : breaks + 1;
        if (from >= size || from === begun || breaks >= MOST_BREAKS) return;
      } catch (error) {
        signal.throwIfAborted();
        // noted before the recall waits again, so that nobody takes it for ready then
        if (error instanceof NotReadyError) await stageAgain(this.ctx, this.place.id, row);
        breaks = from - begun >= LEAST_BYTES ? 1 : breaks + 1;
        // of what it had all bytes of, the library says that they were not right
        if (!isBreak(error) || from >= size || breaks >= MOST_BREAKS) throw error;
      }
    }
  }

  async unmount(): Promise<void> {}

  /**
   * Each chunk has its time, and 64 kB together have it; the time that the reader takes is not the library's. What takes too long is told to end: its connection, or its
   * process, would stay for good where nobody takes what it brings in the end.
   */
  private async *follow(
    file: StagedFile,
    { from, version }: { from: bigint; version: ReadVersion },
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const over = new AbortController();
    const stop = () => over.abort(signal.reason);
    signal.addEventListener('abort', stop);
    const iterator = this.place.library.read(file, from, over.signal, version)[Symbol.asyncIterator]();
    const limit = {
      seconds: tapeSeconds(this.ctx.config, this.place.library.ownSeconds?.read),
      signal,
      what: `a read of library ${this.place.name}`,
    };
    let isOver = false;
    let [waitedMs, bytes] = [0, 0];
    try {
      for (;;) {
        const askedAt = performance.now();
        const next = await within(limit, () => iterator.next()).catch((error: unknown) => {
          isOver = true; // thrown by the library itself, or nobody waits for it any more
          over.abort(error);
          iterator.return?.().catch(() => {}); // whatever comes of it
          throw error;
        });
        isOver = next.done === true;
        if (next.done) return;
        waitedMs += performance.now() - askedAt;
        bytes += next.value.length;
        if (bytes >= LEAST_BYTES) [waitedMs, bytes] = [0, 0];
        else if (waitedMs > limit.seconds * 1000) {
          throw new LibraryError('TRANSIENT', `${limit.what} has brought ${bytes} bytes in ${limit.seconds} s`);
        }
        yield next.value;
      }
    } finally {
      signal.removeEventListener('abort', stop);
      if (!isOver) await iterator.return?.();
    }
  }
}

/** May it be read on from where it broke off? */
function isBreak(error: unknown): boolean {
  if (error instanceof NotReadyError || error instanceof RetryLaterError || error instanceof ChangedError) return false;
  return error instanceof TapeError && error.errorClass === 'TRANSIENT';
}

/** So many different files, one after the other and with none that came between, are the library's. */
const MOST_FILES = 3;

/** Of one visit to a library. */
export class Unread {
  private readonly paths = new Set<string>();
  private hasRead = false;
  private last: LibraryError | undefined;

  note(path: string, error: LibraryError): void {
    this.paths.add(path);
    this.last = error;
  }

  /** A file has come, or the library has said of it that it does not. */
  noteAnswer(): void {
    this.hasRead = true;
    this.paths.clear();
  }

  /** Why nothing more is to be read now. */
  get failure(): LibraryError | undefined {
    return this.paths.size >= MOST_FILES ? this.last : undefined;
  }

  /** The same, once there is nothing else to read: where nothing has come at all, it may be the library. */
  get outcome(): LibraryError | undefined {
    return this.hasRead ? this.failure : this.last;
  }
}

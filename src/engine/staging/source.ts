/**
 * Ready files of a staging library, as a mounted volume for drive/batch.ts. An interrupted read is resumed.
 *
 * Distinguishes undelivered files from an unreadable library: a storage element that lost one pool fails for that
 * pool's files, and the others must not wait for them.
 */

import { TapeError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { StagingRow } from '../../domain/staging/answers.js';
import { noteUnread, stageAgain } from '../../domain/staging/answers.js';
import { tapeSeconds, within } from '../../restore-area/calls.js';
import { type FileOnVolume, LibraryError, type MountedVolume } from '../../tape/drive-library.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError, type StagedFile } from '../../tape/staging.js';
import { PutOffError } from '../drive/retry.js';
import type { StagingPlace } from './place.js';
import { restSeconds } from './rests.js';

/** A read that breaks off this often, each time after fewer than `LEAST_BYTES`, is abandoned. */
const MOST_BREAKS = 3;
const LEAST_BYTES = 64 * 1024;

/** A file that is not ready when it is read is staged again this often, as no try; then each time counts as a try. */
const MOST_RETURNS = 5;

export class StagedSource implements MountedVolume {
  private readonly ctx: Context;
  private readonly place: StagingPlace;
  private readonly rows: ReadonlyMap<string, StagingRow>;
  private readonly unread: Unread;

  /** @param rows the staging rows of the files to read */
  constructor(ctx: Context, place: StagingPlace, rows: readonly StagingRow[], unread: Unread) {
    this.ctx = ctx;
    this.place = place;
    this.rows = new Map(rows.map((row) => [row.path, row]));
    this.unread = unread;
  }

  /**
   * @throws PutOffError if the library may still deliver other files; LibraryError if it is unreadable; NotReadyError if
   *   it has called the file ready too early, or too late; TapeError if it has done so often
   */
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
      if (error instanceof NotReadyError) {
        this.unread.noteAnswer();
        const told = `library ${this.place.name} called the file ready, and it was not: ${error.message}`;
        if (row.attempts < MOST_RETURNS) throw new NotReadyError(told, { cause: error });
        throw new TapeError('TRANSIENT', told, { cause: error });
      }
      if (!(error instanceof LibraryError)) {
        this.unread.noteAnswer();
        throw error;
      }
      this.unread.note(file.path, error);
      await noteUnread(this.ctx, this.place.id, row);
      throw new PutOffError(error.message, restSeconds(error, row.attempts, Math.random()), { cause: error });
    }
  }

  private async *readOn(
    row: StagingRow,
    { path, size, ...copy }: FileOnVolume,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const checksum = copy.isChecksumTaken ? null : copy.checksum;
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
        // recorded before the recall waits again, so that it does not count as ready
        if (error instanceof NotReadyError) await stageAgain(this.ctx, this.place.id, row);
        breaks = from - begun >= LEAST_BYTES ? 1 : breaks + 1;
        // after the last byte, an error means that the bytes are wrong
        if (!isBreak(error) || from >= size || breaks >= MOST_BREAKS) throw error;
      }
    }
  }

  async unmount(): Promise<void> {}

  /**
   * Limits the time for each chunk, and for each 64 kB together; the reader's own time does not count. On a timeout,
   * aborts the read, which would otherwise keep its connection or process.
   */
  private async *follow(
    file: StagedFile,
    { from, version }: { from: bigint; version: ReadVersion },
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const seconds = tapeSeconds(this.ctx.config, this.place.library.ownSeconds?.read);
    const what = `a read of library ${this.place.name}`;
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    const iterator = this.place.library.read(file, from, either, version)[Symbol.asyncIterator]();
    let [waitedMs, bytes] = [0, 0];
    try {
      for (;;) {
        const askedAt = performance.now();
        const next = await within({ seconds, signal, what }, () => iterator.next());
        if (next.done) return;
        waitedMs += performance.now() - askedAt;
        bytes += next.value.length;
        if (bytes >= LEAST_BYTES) [waitedMs, bytes] = [0, 0];
        else if (waitedMs > seconds * 1000) {
          throw new LibraryError('TRANSIENT', `${what} has brought ${bytes} bytes in ${seconds} s`);
        }
        yield next.value;
      }
    } catch (error) {
      over.abort(error);
      throw error;
    } finally {
      const end = iterator.return?.();
      if (either.aborted)
        end?.catch(() => {}); // it may hang
      else await end;
    }
  }
}

function isBreak(error: unknown): boolean {
  if (error instanceof NotReadyError || error instanceof RetryLaterError || error instanceof ChangedError) return false;
  return error instanceof TapeError && error.errorClass === 'TRANSIENT';
}

/** After this many different undelivered files in a row, the library is at fault. */
const MOST_FILES = 3;

/** Undelivered files of one visit. */
export class Unread {
  private readonly paths = new Set<string>();
  private hasRead = false;
  private last: LibraryError | undefined;

  note(path: string, error: LibraryError): void {
    this.paths.add(path);
    this.last = error;
  }

  /** Called after a file was delivered, or the library refused that file. */
  noteAnswer(): void {
    this.hasRead = true;
    this.paths.clear();
  }

  /** Why to stop reading now, if so. */
  get failure(): LibraryError | undefined {
    return this.paths.size >= MOST_FILES ? this.last : undefined;
  }

  /** Like `failure`, at the end of the visit: if no file was delivered at all, the library may be at fault. */
  get outcome(): LibraryError | undefined {
    return this.hasRead ? this.failure : this.last;
  }
}

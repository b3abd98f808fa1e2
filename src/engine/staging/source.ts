/**
 * Presents a staging library's staged files to drive/recall.ts as files on a mounted volume. Resumes an interrupted
 * read only if a validator or the checksum would reveal that the file was replaced during the interruption.
 *
 * Distinguishes an unreadable library from individual unreadable files. For example, if one pool of a storage element
 * fails, the engine continues to read files from the other pools.
 */

import { TapeError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { StagingRow } from '../../domain/staging/call-results.js';
import { recordUnread, stageAgain } from '../../domain/staging/call-results.js';
import { tapeSeconds, within } from '../../restore-area/call-watch.js';
import { type FileOnVolume, LibraryError, type MountedVolume } from '../../tape/drive-library.js';
import {
  ChangedError,
  hasValidator,
  NotReadyError,
  type ReadVersion,
  RetryLaterError,
  type StagedFile,
} from '../../tape/staging.js';
import { PostponedError } from '../drive/retry.js';
import type { OpenStagingLibrary } from './open-library.js';
import { restSeconds } from './rests.js';

/** A read is abandoned after `MAX_BREAKS` consecutive interruptions with fewer than `MIN_BYTES` bytes between them. */
const MAX_BREAKS = 3;
const MIN_BYTES = 64 * 1024;

/**
 * A library might report a file as staged although the file cannot be read yet. The engine stages such a file again up
 * to `MAX_RETURNS` times. Each further wrong report counts as a failed attempt to recall the file.
 */
const MAX_RETURNS = 5;

export class StagedSource implements MountedVolume {
  private readonly ctx: Context;
  private readonly staging: OpenStagingLibrary;
  private readonly rows: ReadonlyMap<string, StagingRow>;
  private readonly undelivered: UndeliveredFiles;

  constructor(ctx: Context, staging: OpenStagingLibrary, rows: readonly StagingRow[], undelivered: UndeliveredFiles) {
    this.ctx = ctx;
    this.staging = staging;
    this.rows = new Map(rows.map((row) => [row.path, row]));
    this.undelivered = undelivered;
  }

  /**
   * Reads a file.
   * @throws PostponedError if the library might still deliver other files
   * @throws LibraryError if the library is unreadable
   * @throws NotReadyError if the library reported the file as staged, but the file cannot be read yet
   * @throws TapeError if the library wrongly reported the file as staged more than `MAX_RETURNS` times
   */
  async *read(file: FileOnVolume, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const row = this.rows.get(file.path);
    if (!row) throw new NotReadyError(`library ${this.staging.name} no longer has a request for ${file.path}`);
    if (this.undelivered.failure) throw this.undelivered.failure;
    try {
      yield* this.readResuming(row, file, signal);
      this.undelivered.recordAnswer();
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof TapeError)) throw error;
      if (error instanceof NotReadyError) {
        this.undelivered.recordAnswer();
        const message = `library ${this.staging.name} reported the file as ready, but the file was not ready: ${error.message}`;
        if (row.attempts < MAX_RETURNS) throw new NotReadyError(message, { cause: error });
        throw new TapeError('TRANSIENT', message, { cause: error });
      }
      if (!(error instanceof LibraryError)) {
        this.undelivered.recordAnswer();
        throw error;
      }
      this.undelivered.record(file.path, error);
      await recordUnread(this.ctx, this.staging.id, row);
      throw new PostponedError(error.message, restSeconds(error, row.attempts, Math.random()), { cause: error });
    }
  }

  private async *readResuming(
    row: StagingRow,
    { path, size, ...copy }: FileOnVolume,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const checksum = copy.isChecksumTaken ? null : copy.checksum;
    const file = { path, size, checksum, volume: row.volume, position: row.position };
    const version: ReadVersion = {};
    let from = 0n;
    const canResume = () => from === 0n || Boolean(checksum) || hasValidator(version);
    for (let breaks = 0; ; ) {
      const start = from;
      try {
        for await (const chunk of this.follow(file, { from, version }, signal)) {
          from += BigInt(chunk.length);
          yield chunk;
        }
        // if the data ends before the file does, the connection might have been closed
        breaks = from - start >= MIN_BYTES ? 1 : breaks + 1;
        if (from >= size || from === start || breaks >= MAX_BREAKS || !canResume()) return;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof NotReadyError) await stageAgain(this.ctx, this.staging.id, row);
        breaks = from - start >= MIN_BYTES ? 1 : breaks + 1;
        // do not resume after the file's last byte, because an error at this point means that the bytes are wrong
        if (!isBreak(error) || !canResume() || from >= size || breaks >= MAX_BREAKS) throw error;
      }
    }
  }

  async unmount(): Promise<void> {}

  /**
   * Limits the time in which the library must deliver each chunk, and each 64 kB. Does not count the time that the
   * caller takes to process a chunk. After a timeout, aborts the read, so that the read's connection or process ends.
   */
  private async *follow(
    file: StagedFile,
    { from, version }: { from: bigint; version: ReadVersion },
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const seconds = tapeSeconds(this.ctx.config, this.staging.library.ownSeconds?.read);
    const what = `a read from library ${this.staging.name}`;
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    const iterator = this.staging.library.read(file, from, either, version)[Symbol.asyncIterator]();
    let [waitedMs, bytes] = [0, 0];
    try {
      for (;;) {
        const startedAt = performance.now();
        const next = await within({ seconds, signal, what }, () => iterator.next());
        if (next.done) return;
        waitedMs += performance.now() - startedAt;
        bytes += next.value.length;
        if (bytes >= MIN_BYTES) [waitedMs, bytes] = [0, 0];
        else if (waitedMs > seconds * 1000) {
          throw new LibraryError(
            'TRANSIENT',
            `${what} returned only ${bytes} bytes in ${seconds} s: the minimum is ${MIN_BYTES} bytes`,
          );
        }
        yield next.value;
      }
    } catch (error) {
      over.abort(error);
      throw error;
    } finally {
      const end = iterator.return?.();
      if (either.aborted)
        end?.catch(() => {}); // do not wait for a call that might hang
      else await end;
    }
  }
}

function isBreak(error: unknown): boolean {
  if (error instanceof NotReadyError || error instanceof RetryLaterError || error instanceof ChangedError) return false;
  return error instanceof TapeError && error.errorClass === 'TRANSIENT';
}

/** Number of consecutive undelivered files after which the library counts as unreadable. */
const MAX_FILES = 3;

export class UndeliveredFiles {
  private readonly paths = new Set<string>();
  private hasRead = false;
  private last: LibraryError | undefined;

  record(path: string, error: LibraryError): void {
    this.paths.add(path);
    this.last = error;
  }

  recordAnswer(): void {
    this.hasRead = true;
    this.paths.clear();
  }

  /** The error after which the drive stops reading; undefined if the drive can continue. */
  get failure(): LibraryError | undefined {
    return this.paths.size >= MAX_FILES ? this.last : undefined;
  }

  /**
   * The error for which the library must be paused; undefined if no pause is needed. If the library has not delivered
   * any file, a single error is enough for a pause.
   */
  get outcome(): LibraryError | undefined {
    return this.hasRead ? this.failure : this.last;
  }
}

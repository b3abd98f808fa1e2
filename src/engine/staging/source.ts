/**
 * What is ready at a staging library, as a volume that is mounted: what drives read from (drive/batch.ts). A file that breaks off is read on
 * from there.
 */
import type { Context } from '../../context.js';
import { TapeError } from '../../errors.js';
import type { StagingRow } from '../../operations/staging/answers.js';
import { stageAgain } from '../../operations/staging/letting-go.js';
import type { FileOnVolume, MountedVolume } from '../../tape/backend.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError } from '../../tape/staging.js';
import { within } from './bounded.js';
import type { StagingPlace } from './place.js';

/** A file that breaks off so often without a single byte between is left. */
const MOST_BREAKS = 3;

export class StagedSource implements MountedVolume {
  private readonly ctx: Context;
  private readonly place: StagingPlace;
  private readonly rows: ReadonlyMap<string, StagingRow>;

  /** @param rows what the library was asked of the files that are to be read */
  constructor(ctx: Context, place: StagingPlace, rows: readonly StagingRow[]) {
    this.ctx = ctx;
    this.place = place;
    this.rows = new Map(rows.map((row) => [row.path, row]));
  }

  async *read({ path, size, checksum }: FileOnVolume, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const row = this.rows.get(path);
    if (!row) throw new NotReadyError(`library ${this.place.name} was asked for ${path} no more`);
    const file = { path, size, checksum, volume: row.volume, position: row.position };
    const version: ReadVersion = {};
    let from = 0n;
    for (let breaks = 0; ; ) {
      const begun = from;
      try {
        for await (const chunk of this.follow(this.place.library.read(file, from, signal, version), signal)) {
          from += BigInt(chunk.length);
          yield chunk;
        }
        // a connection that ends early may look like the end of the file
        if (from >= size || from === begun) return;
      } catch (error) {
        signal.throwIfAborted();
        // noted before the recall waits again, so that nobody takes it for ready then
        if (error instanceof NotReadyError) await stageAgain(this.ctx, this.place.id, row);
        breaks = from > begun ? 1 : breaks + 1;
        // of what it had all bytes of, the library says that they were not right
        if (!isBreak(error) || from >= size || breaks >= MOST_BREAKS) throw error;
      }
    }
  }

  async unmount(): Promise<void> {}

  /** Each chunk has its time; the time that its reader takes is not the library's. */
  private async *follow(chunks: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const iterator = chunks[Symbol.asyncIterator]();
    const limit = {
      seconds: this.ctx.config.tapeTimeout,
      signal,
      what: `a read of library ${this.place.name}`,
    };
    let isOver = false;
    try {
      for (;;) {
        const next = await within(limit, () => iterator.next()).catch((error: unknown) => {
          isOver = true; // thrown by the library itself, or nobody waits for it any more
          throw error;
        });
        isOver = next.done === true;
        if (next.done) return;
        yield next.value;
      }
    } finally {
      if (!isOver) await iterator.return?.();
    }
  }
}

/** May it be read on from where it broke off? */
function isBreak(error: unknown): boolean {
  if (error instanceof NotReadyError || error instanceof RetryLaterError || error instanceof ChangedError) return false;
  return error instanceof TapeError && error.errorClass === 'TRANSIENT';
}

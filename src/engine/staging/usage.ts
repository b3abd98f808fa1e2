/**
 * Writes down what a library counts of what it is sent, every few seconds: each process knows its own part only. One that is killed takes what it
 * had not written with it.
 */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import { addUsage, type RequestUsage } from '../../operations/libraries/usage.js';
import type { StagingLibrary, Usage } from '../../tape/staging.js';

const WRITE_MS = 5000;

const NONE: Usage = { requests: 0, bytes: 0n };

export class UsageNotes {
  private readonly libraryId: number;
  private readonly library: Pick<StagingLibrary, 'usage'>;
  /** What is written, by the names of requests. */
  private readonly written = new Map<string, Usage>();
  private writtenAt = Number.NEGATIVE_INFINITY;

  constructor(libraryId: number, library: Pick<StagingLibrary, 'usage'>) {
    this.libraryId = libraryId;
    this.library = library;
  }

  /** To be called every now and then. Never rejects: what cannot be written is written the next time. */
  async write(ctx: Context, when: 'now and then' | 'now'): Promise<void> {
    if (when === 'now and then' && performance.now() - this.writtenAt < WRITE_MS) return;
    this.writtenAt = performance.now();
    const more = this.takeNew();
    await addUsage(ctx, this.libraryId, more).catch((error: unknown) => {
      for (const { request, ...used } of more) this.note(request, used, -1);
      logFailure(ctx.log, error, 'usage');
    });
  }

  /** It counts as written from now on, so that nobody else writes it meanwhile. */
  private takeNew(): RequestUsage[] {
    return Object.entries(this.library.usage ?? {}).flatMap(([request, now]): RequestUsage[] => {
      const before = this.written.get(request) ?? NONE;
      const more = { sent: BigInt(now.requests - before.requests), bytes: now.bytes - before.bytes };
      if (more.sent === 0n && more.bytes === 0n) return [];
      this.note(request, more, 1);
      return [{ request, ...more }];
    });
  }

  private note(request: string, used: Pick<RequestUsage, 'sent' | 'bytes'>, sign: 1 | -1): void {
    const { requests, bytes } = this.written.get(request) ?? NONE;
    this.written.set(request, {
      requests: requests + sign * Number(used.sent),
      bytes: bytes + BigInt(sign) * used.bytes,
    });
  }
}

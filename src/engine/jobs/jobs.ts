import { setTimeout as sleep } from 'node:timers/promises';
import { logFailure } from '../../core/errors.js';
import { count, time } from '../../core/signals.js';
import type { Context } from '../../domain/context.js';

/** A job that finds its own work. It may be killed at any line; the next run recovers. */
export interface Job {
  /** Name in log and metrics. */
  name: string;
  /** Signals that there may be work; without it, the job runs only periodically. */
  signal?: WorkSignal;
  /** Maximum pause; also the pause after a failure. */
  everyMs: number;
  /** It deletes, expires or gives up by time, so it waits while the clock of the database is implausible. */
  isByTime?: boolean;
  /** Pause as a multiple of the run time: for an expensive job whose signals are mostly irrelevant to it. */
  pauseFactor?: number;
  run: () => Promise<unknown>;
}

/** Minimum pause: there may be a signal for each batch of files, and each run costs database time. */
const MIN_PAUSE_MS = 200;
/** Maximum pause after a signal, because someone may be waiting. */
const MAX_PAUSE_MS = 1000;

/** Maximum delay between the first runs of two jobs. */
const STAGGER_MS = 50;

/**
 * Runs jobs until `stop`. Logs errors and retries. Staggers their start, so that a new engine does not need a
 * connection for each.
 * @returns when all jobs have ended
 */
export async function runJobs(ctx: Context, stop: AbortSignal, jobs: readonly Job[]): Promise<void> {
  const running: Promise<void>[] = [];
  for (const job of jobs) {
    const hasRun = new Promise<void>((resolve) => {
      running.push(repeat(ctx, stop, job, resolve).finally(resolve));
    });
    await Promise.race([hasRun, sleep(STAGGER_MS, undefined, { ref: false })]);
  }
  await Promise.all(running);
}

async function repeat(
  ctx: Context,
  stop: AbortSignal,
  { name, signal = new WorkSignal(), everyMs, pauseFactor = 0, isByTime = false, run }: Job,
  onRun: () => void,
): Promise<void> {
  const pause = (ms: number) => sleep(ms, undefined, { signal: stop }).catch(() => {}); // `stop` ends the pause
  while (!stop.aborted) {
    const seen = signal.count; // before the run, so that no signal during it is lost
    const startedAt = performance.now();
    try {
      if (isByTime && !ctx.db.clock.isPlausible) onRun();
      else await run().finally(onRun);
    } catch (error) {
      count('tapegate_pass_failures_total', { pass: name });
      logFailure(ctx.log, error, name);
      await pause(everyMs);
      continue;
    }
    const tookMs = performance.now() - startedAt;
    time('tapegate_pass_seconds', { pass: name }, tookMs / 1000);
    await pause(Math.max(MIN_PAUSE_MS, Math.min(tookMs * pauseFactor, MAX_PAUSE_MS)));
    await signal.wait(seen, everyMs, stop);
  }
}

/** A signal with a counter. Callers read `count` before they look for work, so that no signal is lost. */
export class WorkSignal {
  count = 0;
  private readonly waiters = new Set<() => void>();

  notify(): void {
    this.count++;
    for (const wake of this.waiters) wake();
  }

  /** Returns after a signal since `seen`, the time-out, or the abort of `stop`. */
  async wait(seen: number, timeoutMs: number, stop: AbortSignal): Promise<void> {
    if (this.count !== seen || stop.aborted) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        stop.removeEventListener('abort', done);
        this.waiters.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      stop.addEventListener('abort', done);
      this.waiters.add(done);
    });
  }
}

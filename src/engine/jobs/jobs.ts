import { setTimeout as sleep } from 'node:timers/promises';
import { logFailure } from '../../core/errors.js';
import { count, time } from '../../core/signals.js';
import type { Context } from '../../domain/context.js';

/** A periodic job. A job can be killed at any point, because its next run completes the unfinished work. */
export interface Job {
  name: string;
  /** Signal that is sent when the job might have work. A job without a signal runs only periodically. */
  signal?: WorkSignal;
  /** Maximum pause between two runs, in milliseconds. */
  everyMs: number | (() => number);
  /** Pause after a failed run, in milliseconds. Default: `everyMs`. */
  retryMs?: number;
  /** Minimum pause between two runs, in milliseconds. Default: `MIN_PAUSE_MS`. */
  leastMs?: number;
  /**
   * Whether the job deletes data or ends requests because of their age. Jobs with this option are skipped while the
   * database server's clock is implausible.
   */
  isByTime?: boolean;
  /**
   * Pause between two runs, as a multiple of the run time. The factor is set only for expensive jobs that find no work
   * after most signals.
   */
  pauseFactor?: number;
  run: () => Promise<unknown>;
}

/**
 * Minimum pause between the runs of a job, in milliseconds. The pause limits the database load if a drive sends a
 * signal after each batch of files.
 */
const MIN_PAUSE_MS = 200;
/**
 * Maximum pause in milliseconds between a signal and the next run. The pause is short, because a user might be waiting
 * for the job's result.
 */
const MAX_PAUSE_MS = 1000;

const STAGGER_MS = 50;

/** Maximum milliseconds for which a periodic run waits for the end of another job's periodic run. */
const TURN_MS = 1000;

/**
 * Runs jobs until `stop` aborts. Logs errors, and runs a failed job again after a pause. Staggers the first runs, so
 * that a new engine does not open database connections for all jobs at the same time.
 * @returns a promise that settles when all jobs have ended
 */
export async function runJobs(ctx: Context, stop: AbortSignal, jobs: readonly Job[]): Promise<void> {
  const running: Promise<void>[] = [];
  const turns = new Turns();
  for (const job of jobs) {
    const hasRun = new Promise<void>((resolve) => {
      running.push(repeat(ctx, stop, job, { turns, onRun: resolve }).finally(resolve));
    });
    await Promise.race([hasRun, sleep(STAGGER_MS, undefined, { ref: false })]);
  }
  await Promise.all(running);
}

async function repeat(
  ctx: Context,
  stop: AbortSignal,
  job: Job,
  { turns, onRun }: { turns: Turns; onRun: () => void },
): Promise<void> {
  const { name, signal = new WorkSignal(), everyMs, leastMs = MIN_PAUSE_MS, pauseFactor = 0, isByTime = false } = job;
  count('tapegate_job_failures_total', { job: name }, 0);
  const interval = typeof everyMs === 'number' ? () => everyMs : everyMs;
  // the pause ends early if the job is stopped
  const pause = (ms: number) => sleep(ms, undefined, { signal: stop }).catch(() => {});
  let known = signal.count;
  while (!stop.aborted) {
    const leave = signal.count === known ? await turns.enter(() => signal.wait(known, TURN_MS, stop)) : () => {};
    const seen = signal.count; // read the counter before the run, so that signals during the run are not missed
    known = seen;
    const startedAt = performance.now();
    try {
      if (!isByTime || ctx.db.clock.isPlausible) await job.run().finally(leave).finally(onRun);
    } catch (error) {
      count('tapegate_job_failures_total', { job: name });
      logFailure(ctx.log, error, name);
      await pause(job.retryMs ?? interval());
      continue;
    } finally {
      leave();
      onRun();
    }
    const tookMs = performance.now() - startedAt;
    time('tapegate_job_seconds', { job: name }, tookMs / 1000);
    await pause(Math.max(leastMs, Math.min(tookMs * pauseFactor, MAX_PAUSE_MS)));
    await signal.wait(seen, interval(), stop);
  }
}

/**
 * Lets periodic runs take turns, so that jobs with the same interval do not open a database connection each. A run that
 * takes long does not keep the others waiting.
 */
class Turns {
  private last: Promise<void> = Promise.resolve();
  private readonly open = new Set<Promise<void>>();
  private end = () => {};

  /**
   * Waits for the caller's turn, or until the promise that `limit` returns resolves.
   * @returns a function that ends the turn. A second call has no effect
   */
  async enter(limit: () => Promise<void>): Promise<() => void> {
    const before = this.last;
    const own = new Promise<void>((resolve) => {
      this.end = resolve;
    });
    const { end } = this;
    this.last = own;
    this.open.add(own);
    if (this.open.size > 1) await Promise.race([before, limit()]);
    return () => {
      this.open.delete(own);
      end();
    };
  }
}

/**
 * A signal that counts its notifications. Callers must read the count before they look for work, so that they do not
 * miss a notification.
 */
export class WorkSignal {
  count = 0;
  private readonly waiters = new Set<() => void>();
  private readonly targets = new Set<WorkSignal>();

  notify(): void {
    this.count++;
    for (const wake of this.waiters) wake();
    for (const target of this.targets) target.notify();
  }

  /** From now on, also notifies `target` of each notification. */
  forward(target: WorkSignal): void {
    this.targets.add(target);
  }

  /** Waits until the count differs from `seen`, the timeout passes, or the job is stopped. */
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

/**
 * Wakes periodic jobs when they have work, so that an idle engine does not run each of them every second. One statement
 * reads when each job has work next. It runs after each notification, and when the next work is due.
 */

import type { Context } from '../../domain/context.js';
import { type DueJob, dueJobs, readDueWork } from '../../domain/site/due-work.js';
import { type Job, WorkSignal } from './jobs.js';

/**
 * Minimum pause between two readings, and the pause after a failed run, in milliseconds. A job that cannot finish its
 * work runs this often.
 */
const PAUSE_MS = 1000;
/** Maximum pause between two readings in milliseconds. Some changes in the database send no notification. */
const MAX_PAUSE_MS = 5000;
/** Milliseconds between the runs of a job that has no known work. */
const UNKNOWN_MS = 60_000;
/** Factor by which the pauses of repair jobs are longer while no request is live and no recall waits. */
const IDLE_FACTOR = 6;

export class DueJobs {
  private readonly ctx: Context;
  private readonly news = new WorkSignal();
  private readonly signals = new Map<string, WorkSignal>(dueJobs.map((name) => [name, new WorkSignal()]));
  private readonly live = new WorkSignal();
  private isLive = false;
  private pauseMs = PAUSE_MS;

  /** @param sources signals after which jobs might have work */
  constructor(ctx: Context, sources: readonly WorkSignal[]) {
    this.ctx = ctx;
    for (const each of sources) each.forward(this.news);
  }

  /** Returns a job's signal and interval. The signal also passes on `given`, the job's own signal. */
  of(name: DueJob, given?: WorkSignal): Pick<Job, 'signal' | 'everyMs' | 'retryMs'> {
    const signal = this.signals.get(name) ?? new WorkSignal();
    given?.forward(signal);
    return { signal, everyMs: UNKNOWN_MS, retryMs: PAUSE_MS };
  }

  /**
   * Returns the signal and interval of a job that repairs requests and recalls. While there are none, the job seldom
   * runs.
   * @param given the job's own signal
   */
  repair(everyMs: number, given?: WorkSignal): Pick<Job, 'signal' | 'everyMs'> {
    const signal = new WorkSignal();
    this.live.forward(signal);
    given?.forward(signal);
    return { signal, everyMs: () => (this.isLive ? everyMs : everyMs * IDLE_FACTOR) };
  }

  get job(): Job {
    return {
      name: 'due work',
      signal: this.news,
      everyMs: () => this.pauseMs,
      leastMs: PAUSE_MS,
      retryMs: PAUSE_MS,
      run: () => this.wake(),
    };
  }

  private async wake(): Promise<void> {
    this.pauseMs = MAX_PAUSE_MS;
    const { seconds: due, isLive } = await readDueWork(this.ctx);
    const isNew = isLive && !this.isLive;
    this.isLive = isLive;
    if (isNew) this.live.notify();
    for (const [name, seconds] of due) {
      if (seconds <= 0) this.signals.get(name)?.notify();
      this.pauseMs = Math.max(0, Math.min(this.pauseMs, seconds * 1000));
    }
  }
}

/** Passes: what an engine does again and again beside its drives, each on its own. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
import { count, time } from '../signals.js';

/** A job that finds by itself what there is to do. It may be killed at any line, and the next run repairs what is left. */
export interface Pass {
  /** In the log, when it fails. */
  name: string;
  /** Rings when there may be something to do; without one it is done every so often only. */
  bell?: Waker;
  /** At least so often; after a failure not before. */
  everyMs: number;
  /** Rests so many times as long as it took: for one that looks through much, and whose bell mostly rings for what is nothing to it. */
  restTimes?: number;
  run: () => Promise<unknown>;
}

/** A pass rests so long at least: its bell may ring for every batch of files, and each look costs the database. */
const REST_MS = 200;
/** And no longer than so, whatever it took: its bell has rung for somebody who waits. */
const MOST_REST_MS = 1000;

/** The next pass begins for the first time after so long at most, whatever the one before it waits for. */
const APART_MS = 50;

/** Runs passes until `stop`. They begin one after another: an engine that starts needs no connection for each of them. */
export class PassRunner {
  private readonly ctx: Context;
  private readonly stop: AbortSignal;

  constructor(ctx: Context, stop: AbortSignal) {
    this.ctx = ctx;
    this.stop = stop;
  }

  /** What a pass throws is logged and tried again. @returns when all have come to the end of their last run */
  async run(passes: readonly Pass[]): Promise<void> {
    const running: Promise<void>[] = [];
    for (const pass of passes) {
      const hasRun = new Promise<void>((resolve) => {
        running.push(this.repeat(pass, resolve).finally(resolve));
      });
      await Promise.race([hasRun, sleep(APART_MS, undefined, { ref: false })]);
    }
    await Promise.all(running);
  }

  private async repeat(
    { name, bell = new Waker(), everyMs, restTimes = 0, run }: Pass,
    onRun: () => void,
  ): Promise<void> {
    while (!this.stop.aborted) {
      const seen = bell.count; // before the look, so that what rings during it is not lost
      const startedAt = performance.now();
      try {
        await run().finally(onRun);
      } catch (error) {
        count('tapegate_pass_failures_total', { pass: name });
        logFailure(this.ctx.log, error, name);
        await this.rest(everyMs);
        continue;
      }
      const tookMs = performance.now() - startedAt;
      time('tapegate_pass_seconds', { pass: name }, tookMs / 1000);
      await this.rest(Math.max(REST_MS, Math.min(tookMs * restTimes, MOST_REST_MS)));
      await bell.wait(seen, everyMs, this.stop);
    }
  }

  private async rest(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.stop }).catch(() => {}); // woken by the stop
  }
}

/** A bell. What rings between looking for work and waiting is not lost: `count` is read before the look. */
export class Waker {
  /** Rings so far. */
  count = 0;
  private readonly waiters = new Set<() => void>();

  ring(): void {
    this.count++;
    for (const wake of this.waiters) wake();
  }

  /** Returns when the bell has rung since `seen`, after the time-out, or when the signal aborts. */
  async wait(seen: number, timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.count !== seen || signal.aborted) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        this.waiters.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      signal.addEventListener('abort', done);
      this.waiters.add(done);
    });
  }
}

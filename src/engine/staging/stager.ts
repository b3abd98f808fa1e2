/**
 * Requests files from staging libraries. For each library, only the engine that holds the library's lease requests
 * files. Each run reads its state from the database, and continues work that dead engines left unfinished (README.md).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { logFailure, messageOf, oneLine } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import type { MeasureDisks } from '../../domain/disks/reservations.js';
import { closeCircuit, openCircuit, trialSeconds } from '../../domain/health/circuits.js';
import { beginTrial, type SuspensionKey, suspendFailing } from '../../domain/health/suspensions.js';
import { expireStaged, releaseUnwanted } from '../../domain/staging/call-results.js';
import {
  claimStager,
  ensureStager,
  giveBackStager,
  type Rests,
  readRests,
  renewStager,
  type StagerLease,
} from '../../domain/staging/stagers.js';
import { tapeSeconds, within } from '../../restore-area/call-watch.js';
import { confirmOwned } from '../../restore-area/ownership.js';
import { isRefusal, LibraryError } from '../../tape/drive-library.js';
import { RetryLaterError } from '../../tape/staging.js';
import { Renewal } from '../drive/lease.js';
import type { WorkSignal } from '../jobs/jobs.js';
import { fillDepth } from './fill.js';
import { type OpenStagingLibrary, writeUsage } from './open-library.js';
import { restSeconds } from './rests.js';
import { type MakeCall, pollDue, releaseDue, stageIntended } from './steps.js';

interface StagerOptions {
  engineId: string;
  leaseSeconds: number;
  stop: AbortSignal;
  signals: readonly WorkSignal[];
  /**
   * Maximum milliseconds between two runs. The stager cannot rely on signals, because no signal is sent when a poll is
   * due.
   */
  idleMs: number;
  /**
   * Milliseconds before this engine retries a library whose error an operator must fix, so that another engine can
   * claim the library.
   */
  unusablePauseMs: number;
  measure: MeasureDisks;
}

/**
 * Pause between two runs, as a multiple of the duration of the first run. The pause limits the load if signals arrive
 * in quick succession.
 */
const PAUSE = { leastMs: 200, times: 5, mostMs: 2000 };

/** Seconds for which a file counts as staged if the library does not report an expiry time. */
const MAX_KEPT_SECONDS = 7 * 86_400;

/** Repeatedly claims the library's lease and runs the library's stager, until `stop` aborts. */
export async function runStager(ctx: Context, staging: OpenStagingLibrary, options: StagerOptions): Promise<void> {
  const { stop, engineId, leaseSeconds, idleMs, unusablePauseMs: leftMs } = options;
  while (!stop.aborted) {
    let pauseMs = idleMs;
    try {
      await ensureStager(ctx, staging.id);
      const claimedAt = performance.now();
      const lease = await claimStager(ctx, { libraryId: staging.id, engineId, leaseSeconds });
      const isRefused = lease && (await runUnder(ctx, staging, { lease, claimedAt, options }));
      if (isRefused) pauseMs = Math.max(idleMs, leftMs);
    } catch (error) {
      if (!stop.aborted) logFailure(ctx.log, error, `library ${staging.name}`);
    }
    await sleep(pauseMs, undefined, { signal: stop }).catch(() => {});
  }
}

async function runUnder(
  ctx: Context,
  staging: OpenStagingLibrary,
  { lease, claimedAt, options }: { lease: StagerLease; claimedAt: number; options: StagerOptions },
): Promise<boolean> {
  const { leaseSeconds } = options;
  const renew = async () => ((await renewStager(ctx, lease, leaseSeconds)) ? 'renewed' : 'lost');
  const renewal = new Renewal(`library ${lease.libraryId}`, { leaseSeconds, claimedAt, renew });
  try {
    return await new Stager(ctx, staging, { lease, renewal, options }).run();
  } finally {
    renewal.lose();
    await giveBackStager(ctx, lease);
  }
}

class Stager {
  private readonly ctx: Context;
  private readonly staging: OpenStagingLibrary;
  private readonly lease: StagerLease;
  private readonly renewal: Renewal;
  private readonly options: StagerOptions;
  private readonly signal: AbortSignal;
  private succeeded = 0;
  private isRefused = false;

  constructor(
    ctx: Context,
    staging: OpenStagingLibrary,
    { lease, renewal, options }: { lease: StagerLease; renewal: Renewal; options: StagerOptions },
  ) {
    this.ctx = ctx;
    this.staging = staging;
    this.lease = lease;
    this.renewal = renewal;
    this.options = options;
    this.signal = AbortSignal.any([options.stop, renewal.lost]);
  }

  /**
   * Runs the stager until the lease is lost, the engine stops, or a library error occurs that an operator must fix.
   * @returns whether a library error occurred that an operator must fix
   */
  async run(): Promise<boolean> {
    const { signals, idleMs } = this.options;
    while (!this.signal.aborted) {
      const seen = signals.map(({ count }) => count);
      const startedAt = performance.now();
      await this.runOnce().finally(() => writeUsage(this.ctx, this.staging));
      if (this.isRefused) return true;
      const tookMs = performance.now() - startedAt;
      const pauseMs = Math.min(Math.max(PAUSE.leastMs, tookMs * PAUSE.times), PAUSE.mostMs);
      await sleep(pauseMs, undefined, { signal: this.signal }).catch(() => {});
      const waited = new AbortController();
      const over = AbortSignal.any([this.signal, waited.signal]);
      await Promise.race(signals.map((signal, n) => signal.wait(seen[n] ?? 0, idleMs, over)));
      waited.abort();
    }
    return false;
  }

  private get key(): SuspensionKey {
    return { kind: 'LIBRARY', name: this.staging.name };
  }

  private async runOnce(): Promise<void> {
    const { ctx, staging } = this;
    if (ctx.db.clock.isPlausible) await expireStaged(ctx, staging.id, addSeconds(ctx.now(), -MAX_KEPT_SECONDS));
    await releaseUnwanted(ctx, staging.id);
    const rests = await readRests(ctx, staging.id);
    const isTried = rests.mode === 'IMMEDIATE' && (await beginTrial(ctx, this.key));
    const mode = isTried ? null : rests.mode;
    if (mode === 'IMMEDIATE' || rests.restUntil !== null) return;
    this.succeeded = 0;
    const failed = await this.runSteps({ ...rests, mode });
    if (this.signal.aborted) return;
    if (failed) await this.pause(failed.error, rests);
    else if (this.succeeded > 0) await closeCircuit(ctx, { of: 'calls', id: staging.id });
  }

  /**
   * Releases, requests and polls files, in this order. If a step fails, continues with the next step, unless the
   * library has asked Tapegate to retry later.
   */
  private async runSteps({ mode }: Rests): Promise<{ error: unknown } | undefined> {
    const { ctx, staging } = this;
    const make: MakeCall = (what, call) => this.call(what, call);
    const steps = [
      () => releaseDue(ctx, staging, make),
      async () => {
        if (mode !== null) return; // do not request further files while the library is draining
        await fillDepth(ctx, this.lease, { library: staging, measure: this.options.measure });
        await stageIntended(ctx, staging, make);
      },
      () => pollDue(ctx, staging, make),
    ];
    let failed: { error: unknown } | undefined;
    for (const step of steps) {
      if (this.signal.aborted || failed?.error instanceof RetryLaterError) break;
      await step().catch((error: unknown) => {
        if (!(error instanceof LibraryError)) throw error;
        failed ??= { error };
      });
    }
    return failed;
  }

  private async call<T>(what: string, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.renewal.confirm();
    await confirmOwned(this.ctx);
    const { name, library } = this.staging;
    const seconds = tapeSeconds(this.ctx.config, library.ownSeconds?.call);
    const limit = { seconds, signal: this.signal, what: `${what} of library ${name}` };
    const answer = await within(limit, call).catch((error: unknown) => {
      if (error instanceof LibraryError || this.signal.aborted) throw error;
      // an unexpected error is a bug in the library's code: log the stack, and count the error as a library failure
      logFailure(this.ctx.log, error, `library ${name}: ${what}`);
      throw new LibraryError('TRANSIENT', messageOf(error), { cause: error });
    });
    this.succeeded++;
    return answer;
  }

  /**
   * Pauses calls to the library. If other calls in the run succeeded, the failure might affect only one file, so the
   * pause stays short.
   */
  private async pause(error: unknown, { failures }: Rests): Promise<void> {
    const isCounted = this.succeeded === 0 && !(error instanceof RetryLaterError);
    this.isRefused = isCounted && isRefusal(error);
    const before = isCounted ? failures : 0;
    const seconds = this.isRefused ? trialSeconds(before) : restSeconds(error, before, Math.random());
    const problem = oneLine(messageOf(error));
    this.ctx.log.error({ library: this.staging.name, seconds }, `library ${this.staging.name}: ${problem}`);
    const until = addSeconds(this.ctx.now(), seconds);
    await openCircuit(this.ctx, { of: 'calls', id: this.staging.id }, { until, problem, isCounted });
    if (this.isRefused) await suspendFailing(this.ctx, this.key, { problem, retryAt: until });
  }
}

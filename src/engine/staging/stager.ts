/**
 * Asks staging libraries for files: one engine per library at a time, under a lease, in a loop per library. What a pass does follows from the rows alone,
 * and each pass recovers what a dead one left (README.md).
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { logFailure, messageOf, oneLine } from '../../errors.js';
import type { MeasureDisks } from '../../operations/disks/reservations.js';
import { closeCircuit, openCircuit, trialSeconds } from '../../operations/health/circuits.js';
import { expireStaged, letGoUnwanted } from '../../operations/staging/answers.js';
import {
  claimStager,
  ensureStager,
  giveBackStager,
  type Rests,
  readRests,
  renewStager,
  type StagerLease,
} from '../../operations/staging/stagers.js';
import { beginTrial, holdFailing, type SuspensionKey } from '../../operations/suspensions.js';
import { LibraryError } from '../../tape/backend.js';
import type { Site } from '../../tape/kind.js';
import { RetryLaterError } from '../../tape/staging.js';
import { addSeconds } from '../../time.js';
import { tapeSeconds, within } from '../calls.js';
import type { Waker } from '../passes.js';
import { askingKey, UsableLibraries } from '../usable-libraries.js';
import { fillDepth } from './fill.js';
import { openPlace, type StagingPlace } from './place.js';
import { isRefusal, restSeconds } from './rests.js';
import { askIntended, type MakeCall, pollDue, releaseDue } from './steps.js';

interface StagerOptions {
  engineId: string;
  leaseSeconds: number;
  /** Nothing new after this; the call in hand is given up. */
  stop: AbortSignal;
  /** Ring when there may be more to ask for, or something to let go. */
  bells: readonly Waker[];
  /** How long it sleeps when none rings: demands are due, and recalls whose pause has ended, without. */
  idleMs: number;
  /** How long a library that has refused what it was asked is left to other engines, which may have what it asks for. */
  leftMs: number;
  measure: MeasureDisks;
}

/**
 * Between two passes: the bells may ring for every batch of files, and each look costs the database. So it rests longer the longer it
 * took, within bounds.
 */
const REST = { leastMs: 200, times: 5, mostMs: 2000 };

/** What a system keeps without ever saying how long is followed, and shown, for so long. */
const KEPT_SECONDS = 7 * 86_400;

/** Runs until `stop`. Errors are logged, and the library is turned to again. */
export async function runStager(ctx: Context, place: StagingPlace, options: StagerOptions): Promise<void> {
  const { stop, engineId, leaseSeconds, idleMs, leftMs } = options;
  while (!stop.aborted) {
    let restMs = idleMs;
    try {
      await ensureStager(ctx, place.id);
      const hold = await StagerHold.claim(ctx, { libraryId: place.id, engineId, leaseSeconds });
      const isLeft = hold && (await new Stager(ctx, place, { hold, options }).run().finally(() => hold.end()));
      await place.usage.write(ctx, 'now');
      if (isLeft) restMs = Math.max(idleMs, leftMs);
    } catch (error) {
      if (!stop.aborted) logFailure(ctx.log, error, `library ${place.name}`);
    }
    await sleep(restMs, undefined, { signal: stop }).catch(() => {}); // woken by the stop
  }
}

class Stager {
  private readonly ctx: Context;
  private readonly place: StagingPlace;
  private readonly hold: StagerHold;
  private readonly options: StagerOptions;
  private readonly signal: AbortSignal;
  /** Calls of the pass that were answered. */
  private answered = 0;
  private isRefused = false;

  constructor(ctx: Context, place: StagingPlace, { hold, options }: { hold: StagerHold; options: StagerOptions }) {
    this.ctx = ctx;
    this.place = place;
    this.hold = hold;
    this.options = options;
    this.signal = AbortSignal.any([options.stop, hold.signal]);
  }

  /** Until the lease is lost, the engine stops, or the library refuses what it is asked. @returns whether that was so */
  async run(): Promise<boolean> {
    const { bells, idleMs } = this.options;
    while (!this.signal.aborted) {
      const seen = bells.map(({ count }) => count);
      const startedAt = performance.now();
      await this.pass();
      await this.place.usage.write(this.ctx, 'now and then');
      if (this.isRefused) return true;
      const tookMs = performance.now() - startedAt;
      const restMs = Math.min(Math.max(REST.leastMs, tookMs * REST.times), REST.mostMs);
      await sleep(restMs, undefined, { signal: this.signal }).catch(() => {});
      const waited = new AbortController();
      const over = AbortSignal.any([this.signal, waited.signal]);
      await Promise.race(bells.map((bell, n) => bell.wait(seen[n] ?? 0, idleMs, over)));
      waited.abort();
    }
    return false;
  }

  private get key(): SuspensionKey {
    return { kind: 'BACKEND', name: this.place.name };
  }

  private async pass(): Promise<void> {
    const { ctx, place } = this;
    await expireStaged(ctx, place.id, addSeconds(ctx.now(), -KEPT_SECONDS));
    await letGoUnwanted(ctx, place.id);
    const rests = await readRests(ctx, place.id);
    const isTried = rests.mode === 'HELD' && (await beginTrial(ctx, this.key));
    const mode = isTried ? null : rests.mode;
    if (mode === 'HELD' || rests.restUntil !== null) return;
    this.answered = 0;
    const failed = await this.turnTo({ ...rests, mode });
    if (this.signal.aborted) return;
    if (failed) await this.rest(failed.error, rests);
    else if (this.answered > 0) await closeCircuit(ctx, { of: 'calls', id: place.id }); // else nothing was asked, and nothing is known
  }

  /** One after the other: a step that fails keeps the library from the others only where it has said when to come again. */
  private async turnTo({ mode }: Rests): Promise<{ error: unknown } | undefined> {
    const { ctx, place } = this;
    const make: MakeCall = (what, call) => this.make(what, call);
    const steps = [
      () => releaseDue(ctx, place, make),
      async () => {
        if (mode !== null) return; // it drains: what it was asked for comes, and nothing else is asked for
        await fillDepth(ctx, this.hold.lease, { place, measure: this.options.measure });
        await askIntended(ctx, place, make);
      },
      () => pollDue(ctx, place, make),
    ];
    let failed: { error: unknown } | undefined;
    for (const step of steps) {
      if (this.signal.aborted || failed?.error instanceof RetryLaterError) break;
      await step().catch((error: unknown) => {
        // only what the library says is held against it
        if (!(error instanceof LibraryError)) throw error;
        failed ??= { error };
      });
    }
    return failed;
  }

  private async make<T>(what: string, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.hold.confirm();
    const { name, library } = this.place;
    const seconds = tapeSeconds(this.ctx.config, library.ownSeconds?.call);
    const limit = { seconds, signal: this.signal, what: `${what} of library ${name}` };
    const answer = await within(limit, call).catch((error: unknown) => {
      if (error instanceof LibraryError || this.signal.aborted) throw error;
      // no other error is the library's to throw: it is told whole, and counts as the library's
      logFailure(this.ctx.log, error, `library ${name}: ${what}`);
      throw new LibraryError('TRANSIENT', messageOf(error), { cause: error });
    });
    this.answered++;
    return answer;
  }

  /**
   * Where some of its calls were answered it is there, and only that one is not: the pauses do not grow, and it is not held; what it refuses then
   * may be a single file.
   */
  private async rest(error: unknown, { failures }: Rests): Promise<void> {
    const isCounted = this.answered === 0 && !(error instanceof RetryLaterError);
    this.isRefused = isCounted && isRefusal(error);
    const before = isCounted ? failures : 0;
    const seconds = this.isRefused ? trialSeconds(before) : restSeconds(error, before, Math.random());
    const problem = oneLine(messageOf(error));
    this.ctx.log.error({ library: this.place.name, seconds }, `library ${this.place.name}: ${problem}`);
    const until = addSeconds(this.ctx.now(), seconds);
    await openCircuit(this.ctx, { of: 'calls', id: this.place.id }, { until, problem, isCounted });
    if (this.isRefused) await holdFailing(this.ctx, this.key, { problem, retryAt: until });
  }
}

interface Running {
  /** Of the library as it is asked. */
  key: string;
  stop: AbortController;
  ended: Promise<void>;
}

export class Stagers {
  private readonly ctx: Context;
  private readonly options: StagerOptions & { env: Site['env'] };
  private readonly usable: UsableLibraries;
  /** By the ids of their libraries. */
  private readonly running = new Map<number, Running>();
  private readonly leaving = new Set<Promise<void>>();

  constructor(ctx: Context, options: StagerOptions & { env: Site['env'] }) {
    this.ctx = ctx;
    this.options = options;
    this.usable = new UsableLibraries(ctx);
  }

  /** Takes up libraries that were added or changed, and leaves those that were removed. */
  async follow(): Promise<void> {
    const libraries = await this.usable.read('STAGING');
    const keys = new Map(libraries.map((library) => [library.id, askingKey(library)]));
    for (const [id, { key, stop, ended }] of this.running) {
      if (keys.get(id) === key) continue;
      this.running.delete(id);
      stop.abort();
      this.leaving.add(ended);
      void ended.then(() => this.leaving.delete(ended));
    }
    for (const library of libraries) {
      if (this.running.has(library.id) || this.options.stop.aborted) continue;
      const stop = new AbortController();
      const options = { ...this.options, stop: AbortSignal.any([this.options.stop, stop.signal]) };
      const ended = runStager(this.ctx, openPlace(this.ctx, library, this.options.env), options);
      this.running.set(library.id, { key: askingKey(library), stop, ended });
    }
  }

  /** Once all have stopped. */
  get ended(): Promise<unknown> {
    return Promise.all([...this.leaving, ...[...this.running.values()].map(({ ended }) => ended)]);
  }
}

const RENEW_PART = 1 / 4;

class StagerHold {
  readonly lease: StagerLease;
  private readonly ctx: Context;
  private readonly leaseSeconds: number;
  private readonly lost = new AbortController();
  private readonly timer: NodeJS.Timeout;
  private validUntil: number;

  private constructor(ctx: Context, lease: StagerLease, leaseSeconds: number, claimedAt: number) {
    this.ctx = ctx;
    this.lease = lease;
    this.leaseSeconds = leaseSeconds;
    this.validUntil = claimedAt + leaseSeconds * 1000;
    setMaxListeners(0, this.lost.signal);
    this.timer = setInterval(() => void this.renew(), leaseSeconds * 1000 * RENEW_PART);
  }

  /** @returns undefined while another engine has it; what is returned must be ended */
  static async claim(
    ctx: Context,
    claim: { libraryId: number; engineId: string; leaseSeconds: number },
  ): Promise<StagerHold | undefined> {
    const claimedAt = performance.now();
    const lease = await claimStager(ctx, claim);
    return lease && new StagerHold(ctx, lease, claim.leaseSeconds, claimedAt);
  }

  /** Aborts when the lease is lost. */
  get signal(): AbortSignal {
    return this.lost.signal;
  }

  /** To be asked before each call: the process may have stood still. @throws when the lease is lost, or may be */
  confirm(): void {
    if (performance.now() >= this.validUntil) this.lose();
    this.signal.throwIfAborted();
  }

  /** Gives it back, so that another engine need not wait for its end. */
  async end(): Promise<void> {
    clearInterval(this.timer);
    this.lose();
    await giveBackStager(this.ctx, this.lease);
  }

  private async renew(): Promise<void> {
    const startedAt = performance.now();
    if (startedAt >= this.validUntil) return this.lose();
    // a database that cannot be asked has given it to nobody yet
    const isOurs = await renewStager(this.ctx, this.lease, this.leaseSeconds).catch(() => undefined);
    if (isOurs === false) this.lose();
    if (isOurs) this.validUntil = startedAt + this.leaseSeconds * 1000;
  }

  private lose(): void {
    clearInterval(this.timer);
    this.lost.abort(new Error(`the lease of library ${this.lease.libraryId} is lost`));
  }
}

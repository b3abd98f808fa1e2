/**
 * Limits how long this process waits for calls that might hang. A call that hangs in the kernel cannot be ended, and
 * occupies one of the process's few threads. If a call exceeds its time limit, the caller stops waiting, and the parent
 * process ends this process (src/main/engine-process.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { startDeadline } from '../core/deadline.js';
import { messageOf, TapeError } from '../core/errors.js';
import { count } from '../core/signals.js';
import type { Context } from '../domain/context.js';
import { LibraryError } from '../tape/drive-library.js';
import { untilAborted } from '../tape/until-aborted.js';

export type CallTarget = { kind: 'disk'; mountpoint: string } | { kind: 'tape'; volume: string; drive: string };

export class HungError extends TapeError {
  readonly target: CallTarget;

  constructor(target: CallTarget, seconds: number) {
    const thing =
      target.kind === 'disk' ? `the restore disk ${target.mountpoint}` : `${target.drive}, at ${target.volume},`;
    super('TRANSIENT', `${thing} has not answered for ${seconds} s`);
    this.target = target;
  }

  /**
   * Returns whether the hung call is on this disk. Ignores calls on other disks, because they might only be waiting for
   * the thread that the hung call blocks.
   */
  isFaultOf(mountpoint: string): boolean {
    return this.target.kind === 'disk' && this.target.mountpoint === mountpoint;
  }
}

/**
 * Time limits for calls on disk and on tape, in seconds. A tape library's call can take many minutes, because the drive
 * might have to wait for the robot or wind the tape.
 */
interface CallLimits {
  disk: number;
  tape: number;
}

export function limitsOf({ config }: Context): CallLimits {
  return { disk: config.diskTimeout, tape: config.tapeTimeout };
}

/**
 * Seconds added to a library's own time limit, so that the library can throw its clearer error before the call counts
 * as hung.
 */
const OWN_MARGIN_SECONDS = 10;

/**
 * Returns the number of seconds after which a call to a library counts as hung.
 * @param own the library's own time limit in seconds, if known
 */
export function tapeSeconds({ tapeTimeout }: { tapeTimeout: number }, own: number | undefined): number {
  return own === undefined ? tapeTimeout : Math.max(tapeTimeout, own + OWN_MARGIN_SECONDS);
}

interface OpenCall {
  target: CallTarget;
  seconds: number;
  since: number;
  reject: (error: HungError) => void;
}

/**
 * If the periodic check of open calls runs this many milliseconds late, the whole process has stalled. The duration of
 * the stall does not count toward the calls' time limits.
 */
const STALL_MS = 1000;

const MAX_PERIOD_MS = 5000;

export class CallWatch {
  private readonly limits: CallLimits;
  private readonly onHang: (error: HungError) => void;
  private readonly open = new Set<OpenCall>();
  private readonly periodMs: number;
  private timer: NodeJS.Timeout | undefined;
  /** Whether any call in this process has hung, and might still block a thread. */
  hasHung = false;
  private checkedAt = 0;

  /**
   * @param onHang receives the error for a hung call. If several calls hang at the same time, receives only the error
   * for the call that began earliest
   */
  constructor(limits: CallLimits, onHang: (error: HungError) => void = () => {}) {
    this.limits = limits;
    this.onHang = onHang;
    this.periodMs = Math.min((Math.min(limits.disk, limits.tape) * 1000) / 8, MAX_PERIOD_MS);
  }

  /**
   * Watches a call until the call ends.
   * @param call receives a function that reports progress, which restarts the time limit
   * @param seconds time limit in seconds; by default, the limit for disk calls or tape calls
   * @throws HungError if the call exceeds the time limit, even if the call ends later
   */
  async follow<T>(
    target: CallTarget,
    call: (tick: () => void) => Promise<T>,
    seconds: number = this.limits[target.kind],
  ): Promise<T> {
    const entry: OpenCall = { target, seconds, since: performance.now(), reject: () => {} };
    const hung = new Promise<never>((_resolve, reject) => {
      entry.reject = reject;
    });
    this.open.add(entry);
    this.arm();
    const tick = () => {
      entry.since = performance.now();
    };
    try {
      return await Promise.race([call(tick), hung]);
    } finally {
      this.open.delete(entry);
    }
  }

  private arm(): void {
    if (this.timer) return;
    this.checkedAt = performance.now();
    this.timer = setInterval(() => this.check(), this.periodMs);
    this.timer.unref();
  }

  private check(): void {
    const now = performance.now();
    const lateMs = now - this.checkedAt - this.periodMs;
    this.checkedAt = now;
    if (this.open.size === 0) {
      clearInterval(this.timer);
      this.timer = undefined;
      return;
    }
    if (lateMs > STALL_MS) for (const call of this.open) call.since += lateMs;
    const hung = [...this.open].filter((call) => now - call.since >= call.seconds * 1000);
    hung.sort((a, b) => a.since - b.since);
    // report the call that began earliest, because other calls might only be waiting for the thread that it blocks
    const error = hung[0] && new HungError(hung[0].target, hung[0].seconds);
    if (!error) return;
    this.hasHung = true;
    count('tapegate_hung_calls_total', { device: error.target.kind });
    this.onHang(error);
    for (const call of hung) call.reject(error);
  }
}

/**
 * Waits at most `ms` milliseconds for work to end.
 * @returns undefined if the work takes longer than `ms`; the work continues
 */
export async function waitInTime<T>(ms: number, work: Promise<T>): Promise<{ value: T } | undefined> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal, ref: false }).catch(() => undefined);
  return await Promise.race([work.then((value) => ({ value })), late]).finally(() => timer.abort());
}

/**
 * Makes calls with a time limit. Use a separate instance for each kind of call, because an instance makes only one call
 * on a disk at a time, and refuses others.
 */
export class BoundedCalls {
  private readonly open = new Set<number>();

  /** @returns the problem; undefined if the call succeeded */
  async run(
    answerMs: number,
    disk: { id: number; mountpoint: string },
    call: () => Promise<void>,
  ): Promise<string | undefined> {
    const silent = `the restore disk ${disk.mountpoint} does not answer`;
    if (this.open.has(disk.id)) return silent;
    this.open.add(disk.id);
    const answer = call()
      .then(
        () => undefined,
        (error: unknown) => messageOf(error),
      )
      .finally(() => this.open.delete(disk.id));
    const ended = await waitInTime(answerMs, answer);
    return ended ? ended.value : silent;
  }
}

/**
 * Makes a call with a time limit.
 * @param call receives a signal, which aborts when `signal` aborts or the time limit is reached
 * @throws the call's error; LibraryError at the time limit; the signal's reason if `signal` aborts
 */
export async function within<T>(
  { seconds, signal, what }: { seconds: number; signal: AbortSignal; what: string },
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const deadline = startDeadline(seconds * 1000, signal);
  try {
    return await untilAborted(call(deadline.signal), deadline.signal);
  } catch (error) {
    signal.throwIfAborted();
    if (!deadline.signal.aborted) throw error;
    throw new LibraryError('TRANSIENT', `${what} did not finish within ${seconds} s`);
  } finally {
    deadline.end();
  }
}

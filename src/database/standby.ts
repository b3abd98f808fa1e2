/**
 * A standby that lists may be read from. It is looked at before each of them: it must be a standby still, of the cluster and on the
 * timeline of the server that takes writes, and have all that this one had when the question came. What it was a moment ago counts for
 * nothing, since it may be promoted, restarted or cut off in any moment.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../errors.js';
import { type Database, type DatabaseOptions, openDatabase } from './client.js';
import { hostName } from './hosts.js';
import {
  askTogether,
  findMismatch,
  type PrimaryPosition,
  readStandbyPosition,
  type StandbyPosition,
} from './positions.js';

export interface StandbyStatus {
  host: string;
  /** Why no list is read there; undefined: lists are. */
  problem: string | undefined;
  /** By how much of the log it was behind when it was looked at last, in bytes; undefined where it could not be asked. */
  behindBytes: bigint | undefined;
}

/** Of one that follows, as it should: it passes by itself, and is told nobody. */
export const BEHIND = 'it is behind';

/** A standby that is silent for so long is lost, and what is read there is read at the primary. */
const LOST_MS = 5000;

/** For its answer it is waited so long at least, also where nobody waits for what it has not replayed. */
const ANSWER_MS = 100;

/** Between questions to one that is not there yet. */
const FIRST_STEP_MS = 1;
const LONGEST_STEP_MS = 20;

/** Nobody is told of a standby's connections and clock twice: what keeps lists away from it is told by standbys.ts. */
const quiet = { warn: () => {}, error: () => {} };

export class Standby {
  readonly host: string;
  readonly db: Database;
  private readonly readPosition: () => Promise<StandbyPosition>;
  private problem: string | undefined = 'it was not looked at yet';
  private behindBytes: bigint | undefined;

  constructor(url: string, options: Omit<DatabaseOptions, 'log' | 'lostMs'>) {
    const config = { connectionString: url };
    this.host = hostName(config);
    this.db = openDatabase(config, { ...options, lostMs: LOST_MS, log: quiet });
    this.db.pulse.follow();
    this.readPosition = askTogether(() => readStandbyPosition(this.db.pool));
  }

  get status(): StandbyStatus {
    return { host: this.host, problem: this.problem, behindBytes: this.behindBytes };
  }

  /**
   * Waits until it has all that the primary had.
   * @returns whether lists may be read there
   * @throws what keeps the primary from saying how far it is
   */
  async catchUp(primary: Promise<PrimaryPosition>, waitMs: number): Promise<boolean> {
    const late = new AbortController();
    const until = performance.now() + waitMs;
    const overdue = sleep(Math.max(waitMs, ANSWER_MS), 'late' as const, { signal: late.signal, ref: false });
    overdue.catch(() => {}); // it is not waited for any more
    try {
      // both are asked at once: most often it has what it is asked for already
      const first = this.readPosition();
      first.catch(() => {}); // where the primary says nothing, this does not matter
      return await this.follow(await primary, first, { until, overdue });
    } finally {
      late.abort();
    }
  }

  private async follow(
    primary: PrimaryPosition,
    first: Promise<StandbyPosition>,
    { until, overdue }: { until: number; overdue: Promise<'late'> },
  ): Promise<boolean> {
    try {
      let asked = first;
      for (let stepMs = FIRST_STEP_MS; ; stepMs = Math.min(stepMs * 2, LONGEST_STEP_MS)) {
        const position = await Promise.race([asked, overdue]);
        if (position === 'late') return this.passOver('it does not answer in time');
        const mismatch = findMismatch(position, primary);
        this.behindBytes = primary.written > position.replayed ? primary.written - position.replayed : 0n;
        if (mismatch !== undefined) return this.passOver(mismatch);
        if (this.behindBytes === 0n) return this.take();
        if (performance.now() + stepMs > until) return this.passOver(BEHIND);
        await sleep(stepMs);
        asked = this.readPosition();
        asked.catch(() => {}); // it may be too late
      }
    } catch (error) {
      this.behindBytes = undefined;
      return this.passOver(messageOf(error));
    }
  }

  /** Until it was looked at again, lists are read elsewhere. */
  passOver(problem: string): false {
    this.problem = problem;
    return false;
  }

  private take(): true {
    this.problem = undefined;
    return true;
  }
}

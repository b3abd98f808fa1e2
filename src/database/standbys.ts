/**
 * The standbys that DATABASE_READ_URL names, and which of them a list is read from: one that has all that was committed when the list was
 * asked for. So whoever has changed something finds it in each list from then on, through whichever gateway; and what was closed to
 * somebody is closed there as well. Where none is so far in time, the list is read where it always was.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { splitHosts } from '../database-url.js';
import type { FailureLog } from '../errors.js';
import type { Database, DatabaseOptions } from './client.js';
import { askTogether, type PrimaryPosition, readPrimaryPosition } from './positions.js';
import { BEHIND, Standby, type StandbyStatus } from './standby.js';

export interface StandbysOptions extends Omit<DatabaseOptions, 'log' | 'lostMs'> {
  /** DATABASE_READ_URL. */
  url: string;
  /** So long a list waits for a standby that has not everything yet. */
  waitMs: number;
  log: FailureLog;
}

/** Those that were passed over are looked at again so often. */
const LOOK_MS = 1000;

export class Standbys {
  private readonly options: StandbysOptions;
  private readonly all: readonly Standby[];
  private readonly readPrimary: () => Promise<PrimaryPosition>;
  private readonly told = new Map<Standby, string | undefined>();
  private readonly closed = new AbortController();
  private readonly looking: Promise<void>;
  private turn = 0;

  /** @param primary the database that they are copies of */
  constructor(primary: Database, { url, ...options }: StandbysOptions) {
    this.options = { url, ...options };
    this.all = splitHosts(url).map((each) => new Standby(each, options));
    this.readPrimary = askTogether(() => readPrimaryPosition(primary.pool));
    this.looking = this.lookOften();
  }

  get status(): StandbyStatus[] {
    return this.all.map(({ status }) => status);
  }

  /** One in turn that has all that is committed by now; undefined where the primary is to be asked. */
  async choose(): Promise<Standby | undefined> {
    const usable = this.all.filter(({ status }) => status.problem === undefined);
    const standby = usable[this.turn++ % usable.length];
    if (!standby) return undefined;
    const isThere = await standby.catchUp(this.readPrimary(), this.options.waitMs).catch(() => false);
    return isThere ? standby : undefined;
  }

  async close(): Promise<void> {
    this.closed.abort();
    await this.looking;
    await Promise.all(this.all.map(({ db }) => db.close()));
  }

  private async lookOften(): Promise<void> {
    const { signal } = this.closed;
    while (!signal.aborted) {
      await Promise.all(this.all.map((standby) => this.look(standby)));
      await sleep(LOOK_MS, undefined, { signal, ref: false }).catch(() => {}); // closed
    }
  }

  private async look(standby: Standby): Promise<void> {
    // of a primary that is away everybody is told elsewhere
    await standby.catchUp(this.readPrimary(), this.options.waitMs).catch(() => standby.passOver(BEHIND));
    const { host, problem } = standby.status;
    if (
      this.closed.signal.aborted ||
      problem === BEHIND ||
      (this.told.has(standby) && this.told.get(standby) === problem)
    )
      return;
    this.told.set(standby, problem);
    if (problem === undefined) this.options.log.warn({ host }, 'lists are read at this standby');
    else this.options.log.warn({ host, problem }, 'no list is read at this standby');
  }
}

/**
 * Refusals in the audit, bounded: the first one of a caller, an operation and an error's code within a minute is a row at once, and
 * those that follow are a row with their number once the minute is over; beyond some rows, those of a caller are counted together. So whoever
 * asks in vain, however often and as whomever, fills no disk. A process that is killed takes the number of its last minute with it.
 */
import type { Logger } from 'pino';
import { type Asker, auditRow, type Deed } from './audit.js';
import type { Database } from './database/client.js';
import type { Sql } from './database/sql.js';
import { logFailure } from './errors.js';

/**
 * Rows of a minute, beside those that count, for each caller who is known, who is named in all of them; and for all together who are
 * not. The first are as many as there are tokens and users: nobody can make more of them.
 */
const MAX_ROWS = 20;
const MINUTE_MS = 60_000;

interface Repeats {
  asker: Asker;
  deed: Deed;
  code: string;
  count: number;
}

export class Refusals {
  private readonly db: Pick<Database, 'pool'>;
  private readonly log: Logger;
  private readonly now: () => string;
  private minute = '';
  private readonly repeats = new Map<string, Repeats>();
  private readonly rows = new Map<string, number>();
  private timer: NodeJS.Timeout | undefined;
  private turn: Promise<void> = Promise.resolve();

  constructor(db: Pick<Database, 'pool'>, log: Logger, now: () => string) {
    this.db = db;
    this.log = log;
    this.now = now;
  }

  /** Waits for nothing. @param code of the error */
  note(asker: Asker, deed: Deed, code: string): void {
    const now = this.now();
    const minute = now.slice(0, 'YYYY-MM-DDTHH:MM'.length);
    if (minute !== this.minute) this.flush();
    this.minute = minute;
    const { name, way, tokenId } = asker;
    const isKnown = name !== '' && way !== 'open' && way !== 'legacy';
    // whoever is known is the same from wherever it asks, and nobody stands for others who are not
    const key = JSON.stringify([deed.operation, code, way, name, tokenId, isKnown ? '' : asker.address]);
    const known = this.repeats.get(key);
    if (known) {
      known.count++;
      return;
    }
    // what has no place of its own is counted with the rest of its caller's, or of those who are not known
    const place = isKnown ? JSON.stringify([way, name, tokenId]) : '';
    const rows = this.rows.get(place) ?? 0;
    if (rows >= MAX_ROWS) {
      this.noteOther(isKnown ? asker : { ...asker, name: '', address: undefined }, deed, code);
      return;
    }
    this.rows.set(place, rows + 1);
    this.repeats.set(key, { asker, deed: { ...deed, object: '', given: {} }, code, count: 0 });
    this.write(auditRow(now, asker, deed, code));
  }

  /** Who was refused is not written any more: a user was forgotten, who may be among them. */
  forgetNames(): void {
    for (const repeats of this.repeats.values()) {
      repeats.asker = { ...repeats.asker, name: '', tokenId: undefined, address: undefined };
    }
  }

  /** Writes what was counted. @returns when all of it is written */
  async settle(): Promise<void> {
    this.flush();
    clearTimeout(this.timer);
    await this.turn;
  }

  private noteOther(asker: Asker, { operation }: Deed, code: string): void {
    const key = JSON.stringify(['others', asker.way, asker.name, asker.tokenId, operation, code]);
    const known = this.repeats.get(key);
    if (known) known.count++;
    else {
      this.repeats.set(key, { asker, deed: { operation, kind: 'NONE', object: '' }, code, count: 1 });
      this.wait();
    }
  }

  private flush(): void {
    const counted = [...this.repeats.values()].filter(({ count }) => count > 0);
    this.repeats.clear();
    this.rows.clear();
    for (const { asker, deed, code, count } of counted) this.write(auditRow(this.now(), asker, deed, code, count));
  }

  private write(row: Sql): void {
    this.turn = this.turn
      .then(() => this.db.pool.query(row))
      .then(
        () => {},
        (error) => logFailure(this.log, error, 'a refusal is not in the audit'),
      );
    this.wait();
  }

  /** For the end of the minute, where nobody is refused any more. */
  private wait(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.flush();
    }, MINUTE_MS).unref();
  }
}

/**
 * The numbers of events: whoever reads first numbers what is committed by then. That is one statement (function
 * `number_events` of the migrations), which waits for nobody and holds nothing when its client stands still.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { empty, type Sql, sql } from './database/sql.js';

/** Runs one statement outside of a transaction. */
export type AskDatabase = <Row extends object>(statement: Sql) => Promise<Row[]>;

/** How far a view of the database goes: events up to a number, and those of batches without one. */
export interface Present {
  newest: bigint;
  unnumbered: string[];
}

/** The greatest number that there is. */
export const newestNumber = sql`(SELECT coalesce(max(b.last_number), 0) FROM event_batch b WHERE b.last_number IS NOT NULL)`;

/** The greatest number of an event that is kept no longer; 0 while all are kept. */
export const lastPruned = sql`(SELECT coalesce(max(b.last_number), 0) FROM event_batch b WHERE b.is_pruned)`;

/** Another process numbers just now, which takes milliseconds. */
const BUSY_MS = 10;

export class EventNumbers {
  private readonly query: AskDatabase;
  /** What this process knows to be numbered: all that a snapshot of the database saw. */
  private seen: string | undefined;

  constructor(query: AskDatabase) {
    this.query = query;
  }

  /** What was seen is of no use in another database, such as one that was put back. */
  forget(): void {
    this.seen = undefined;
  }

  /** Numbers what is committed by now. */
  async number(): Promise<void> {
    for (;;) {
      const [row] = await this.query<{ seen: string | null }>(
        sql`SELECT number_events(${this.seen ?? null}::pg_snapshot)::text AS seen`,
      );
      if (typeof row?.seen === 'string') {
        this.seen = row.seen;
        return;
      }
      await sleep(BUSY_MS, undefined, { ref: false });
    }
  }

  async newest(): Promise<bigint> {
    const [row] = await this.query<{ newest: bigint }>(sql`SELECT ${newestNumber} AS newest`);
    return row?.newest ?? 0n;
  }

  /**
   * Two columns, `newest` and `unnumbered`, of a statement that reads something else: how far that goes.
   * @param isConcerned a condition on batches `b`
   */
  present(isConcerned = sql`true`): Sql {
    const { seen } = this;
    const isOpen = seen
      ? sql`AND (b.transaction_id >= pg_snapshot_xmax(${seen}::pg_snapshot)::text::bigint
          OR b.transaction_id = ANY(ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(${seen}::pg_snapshot) x)))`
      : empty;
    return sql`${newestNumber} AS newest,
      ARRAY(SELECT b.id::text FROM event_batch b WHERE b.last_number IS NULL ${isOpen} AND ${isConcerned}) AS unnumbered`;
  }
}

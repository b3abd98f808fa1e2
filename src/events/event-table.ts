/** Reads the event table. After a reader has read an event, no event with a lower number becomes visible. */

import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { EventsGoneError } from '../core/errors.js';
import { empty, type Sql, sql } from '../db/sql.js';
import type { RequestState, Stage } from '../generated/prisma/enums.js';

export interface StageEvent {
  id: bigint;
  batchId: string;
  at: string;
  fileId: bigint;
  path: string;
  from: Stage;
  to: Stage;
  requestIds: number[];
}

export interface ProgressEvent {
  id: bigint;
  batchId: string;
  at: string;
  requestId: number;
  state: RequestState;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
}

export type AnyEvent = StageEvent | ProgressEvent;

export function isStageEvent(event: AnyEvent): event is StageEvent {
  return 'fileId' in event && event.fileId !== null;
}

/** A filter for events. Its SQL condition can refer to the event (`e`) and the event's file (`f`). */
export interface EventFilter<E extends AnyEvent> {
  accepts(event: AnyEvent): event is E;
  condition: Sql;
  /** Id of a request. If set, only the progress events of this request are read, through an index. */
  requestId?: number;
}

/** A range of event numbers. All events in the range are visible to readers. */
interface NumberRange {
  after: bigint;
  upTo: bigint;
  batchEnd: bigint;
  /** Whether events between the reader's last event and this range have been pruned. */
  isBroken: boolean;
}

export const RANGE = 4000n;

const NUMBER = sql`b.first_number + e.id - b.first_id`;
const COLUMNS = sql`${NUMBER} AS id, e.batch_id::text AS "batchId", e.at, e.file_id AS "fileId", f.path, e.from_stage AS "from",
  e.to_stage AS "to", e.request_ids AS "requestIds", e.request_id AS "requestId", e.state, e.files_total AS "filesTotal",
  e.files_on_disk AS "filesOnDisk", e.files_failed AS "filesFailed", e.bytes_total AS "bytesTotal",
  e.bytes_on_disk AS "bytesOnDisk"`;
export class EventTable {
  private readonly query: AskDatabase;
  private readonly shared = new SharedReads();

  constructor(query: AskDatabase) {
    this.query = query;
  }

  async checkKept(after: bigint): Promise<void> {
    const [row] = await this.shared.read('pruned', () =>
      this.query<{ last: bigint }>(sql`SELECT ${lastPruned} AS last`),
    );
    if (row && after < row.last) throw new EventsGoneError(after, row.last);
  }

  /**
   * Yields pages of the events with numbers above `after` that pass the filter. Each page contains the matching events
   * up to number `upTo` that earlier pages did not contain.
   * @throws EventsGoneError if events with numbers above `after` were pruned
   */
  async *read<E extends AnyEvent>(
    after: bigint,
    filter: EventFilter<E>,
  ): AsyncGenerator<{ events: E[]; upTo: bigint }> {
    for (let last = after; ; ) {
      const page =
        filter.requestId === undefined
          ? await this.readNext(last, filter.condition)
          : await this.readOfRequest(filter.requestId, last);
      // check for pruned events after reading the page, because a job marks events as pruned before it deletes the
      // events
      await this.checkKept(last);
      if (!page) return;
      last = page.upTo;
      yield { events: page.events.filter((event) => filter.accepts(event)), upTo: last };
    }
  }

  /** Returns the next range, of at most `RANGE` event numbers; undefined if the table contains no newer events. */
  async nextRange(after: bigint): Promise<NumberRange | undefined> {
    const [row] = await this.query<{ first: bigint; last: bigint; newest: bigint; isBroken: boolean }>(
      sql`SELECT b.first_number AS first, b.last_number AS last, ${newestNumber} AS newest, ${lastPruned} > ${after} AS "isBroken" FROM event_batch b
          WHERE b.last_number > ${after} AND NOT b.is_pruned ORDER BY b.last_number LIMIT 1`,
    );
    if (!row) return undefined;
    const start = row.first > after ? row.first - 1n : after;
    const upTo = start + RANGE;
    return { after: start, upTo: upTo < row.newest ? upTo : row.newest, batchEnd: row.last, isBroken: row.isBroken };
  }

  /**
   * Reads the events in a range that match the condition, in order. Reads by batch and primary key, because PostgreSQL
   * might otherwise choose joins that are fast only for small tables.
   */
  async readRange({ after, upTo }: NumberRange, condition: Sql): Promise<AnyEvent[]> {
    return await this.query<AnyEvent>(
      sql`SELECT ${COLUMNS} FROM (
            SELECT * FROM event_batch WHERE last_number > ${after} AND first_number <= ${upTo} AND NOT is_pruned ORDER BY last_number LIMIT ${RANGE}
          ) b CROSS JOIN LATERAL (
            SELECT * FROM event WHERE batch_id = b.id AND id > ${after} - b.first_number + b.first_id
              AND id BETWEEN b.first_id AND least(b.last_id, ${upTo} - b.first_number + b.first_id)
            ORDER BY id LIMIT ${RANGE}
          ) e LEFT JOIN tape_file f ON f.id = e.file_id
          WHERE ${condition} ORDER BY 1`,
    );
  }

  private async readNext(after: bigint, condition: Sql) {
    const range = await this.nextRange(after);
    return range && { events: await this.readRange(range, condition), upTo: range.upTo };
  }

  private readOfRequest(requestId: number, after: bigint) {
    return this.shared.read(`${requestId} ${after}`, () => this.askOfRequest(requestId, after));
  }

  private async askOfRequest(requestId: number, after: bigint) {
    const [row] = await this.query<{ newest: bigint }>(sql`SELECT ${newestNumber} AS newest`);
    if (!row || row.newest <= after) return undefined;
    const { newest } = row;
    const events = await this.query<AnyEvent>(
      sql`WITH e AS MATERIALIZED (SELECT * FROM event WHERE request_id = ${requestId})
          SELECT ${COLUMNS} FROM e JOIN event_batch b ON b.id = e.batch_id LEFT JOIN tape_file f ON false
          WHERE b.last_number > ${after} AND NOT b.is_pruned AND ${NUMBER} > ${after} ORDER BY 1 LIMIT ${RANGE}`,
    );
    const last = events.at(-1)?.id ?? newest;
    return { events, upTo: events.length === Number(RANGE) || last > newest ? last : newest };
  }
}

/**
 * Numbers events. The first reader that needs the numbers runs a single statement (`number_events`). The statement
 * numbers all committed events, and does not wait for locks.
 */

export type AskDatabase = <Row extends object>(statement: Sql) => Promise<Row[]>;

/**
 * The events that an SQL statement sees: events up to the number `newest`, and events in the batches whose ids
 * `unnumbered` lists.
 */
export interface Present {
  newest: bigint;
  unnumbered: string[];
}

export const newestNumber = sql`(SELECT coalesce(max(b.last_number), 0) FROM event_batch b WHERE b.last_number IS NOT NULL)`;

const lastPruned = sql`(SELECT coalesce(max(b.last_number), 0) FROM event_batch b WHERE b.is_pruned)`;

const BUSY_MS = 10;

export class EventNumbers {
  private readonly query: AskDatabase;
  /** A PostgreSQL snapshot whose visible events all have numbers. */
  private seen: string | undefined;

  constructor(query: AskDatabase) {
    this.query = query;
  }

  forget(): void {
    this.seen = undefined;
  }

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
   * Returns the SQL columns `newest` and `unnumbered`, which describe the events that the statement sees.
   * @param isConcerned SQL condition on event batches, which have the alias `b`
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

/**
 * Database reads that several readers share. A shared read serves only readers that requested it before it began,
 * because later readers must see newer rows.
 */
export class SharedReads {
  private readonly waiting = new Map<string, Promise<unknown>>();
  private readonly running = new Map<string, Promise<unknown>>();

  read<Result>(key: string | undefined, ask: () => Promise<Result>): Promise<Result> {
    if (key === undefined) return ask();
    const known = this.waiting.get(key) ?? this.begin(key, ask);
    return known as Promise<Result>;
  }

  private begin(key: string, ask: () => Promise<unknown>): Promise<unknown> {
    const before = this.running.get(key)?.catch(() => {}) ?? nextTurn();
    const read = before.then(() => {
      this.waiting.delete(key);
      this.running.set(key, read);
      return ask();
    });
    this.waiting.set(key, read);
    const end = () => {
      if (this.running.get(key) === read) this.running.delete(key);
    };
    read.then(end, end);
    return read;
  }
}

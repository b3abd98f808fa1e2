/**
 * The event table as it is read: events by their numbers, which they get after their commit.
 *
 * Numbers (event-numbers.ts) grow in the order in which events can be seen: who has read up to one has missed none below it.
 */
import { type Sql, sql } from './database/sql.js';
import { EventsGoneError } from './errors.js';
import { type AskDatabase, lastPruned, newestNumber } from './event-numbers.js';
import { SharedReads } from './event-reads.js';
import type { RequestState, Stage } from './generated/prisma/enums.js';

/** A file's change of stage. */
export interface StageEvent {
  /** Its number, by which it is known outside. */
  id: bigint;
  batchId: string;
  at: string;
  fileId: bigint;
  path: string;
  from: Stage;
  to: Stage;
  /** The live requests that held the file at that moment. */
  requestIds: number[];
}

/** A request's progress. Sizes are bytes. */
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

/** Which events a reader wants; the SQL condition may use `e` (event) and `f` (its file). */
export interface EventFilter<E extends AnyEvent> {
  accepts(event: AnyEvent): event is E;
  condition: Sql;
  /** The only request whose progress is wanted: it is looked up, however much there is beside it. */
  requestId?: number;
}

/** Some numbers one after another, of events that all can be seen. */
export interface NumberRange {
  /** Numbers greater than this … */
  after: bigint;
  /** … and up to this. */
  upTo: bigint;
  /** The last number of the batch with which it begins. */
  batchEnd: bigint;
  /** Some of what came before it is kept no longer. */
  isBroken: boolean;
}

/** Numbers of a page: so many events at most. */
export const RANGE = 4000n;

const NUMBER = sql`b.first_number + e.id - b.first_id`;
const COLUMNS = sql`${NUMBER} AS id, e.batch_id::text AS "batchId", e.at, e.file_id AS "fileId", CASE WHEN e.file_id IS NOT NULL THEN coalesce(f.path, '/.tapegate-forgotten/' || e.file_id) END AS path, e.from_stage AS "from",
  e.to_stage AS "to", e.request_ids AS "requestIds", e.request_id AS "requestId", e.state, e.files_total AS "filesTotal",
  e.files_on_disk AS "filesOnDisk", e.files_failed AS "filesFailed", e.bytes_total AS "bytesTotal",
  e.bytes_on_disk AS "bytesOnDisk"`;
export class EventTable {
  private readonly query: AskDatabase;
  /** Of readers that follow the same request from the same event, such as all of them after a large batch. */
  private readonly shared = new SharedReads();

  constructor(query: AskDatabase) {
    this.query = query;
  }

  /** @throws EventsGoneError when whoever goes on after this number would miss what is kept no longer */
  async checkKept(after: bigint): Promise<void> {
    const [row] = await this.shared.read('pruned', () =>
      this.query<{ last: bigint }>(sql`SELECT ${lastPruned} AS last`),
    );
    if (row && after < row.last) throw new EventsGoneError(after, row.last);
  }

  /**
   * The events after a number that pass the filter, in order, by the page; `upTo` is how far it has come with that.
   * @throws EventsGoneError when some of them are kept no longer
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
      // after it was read: what goes is marked before it goes
      await this.checkKept(last);
      if (!page) return;
      last = page.upTo;
      yield { events: page.events.filter((event) => filter.accepts(event)), upTo: last };
    }
  }

  /** The next numbers that some events have, few enough for a page; undefined when there are none yet. */
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
   * The events of a range that pass the condition, in order. Batch by batch, each by the primary key: left to itself,
   * PostgreSQL might join tables that it takes for small.
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

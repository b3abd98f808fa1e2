/**
 * Events: rows of an append-only table, written in the transaction that makes them true; NOTIFY is only the doorbell.
 *
 * Ids grow in the order of commits (trigger `event_order`), so a reader that asks for `id > last` misses none. Writers
 * of events wait for each other until their commit, which is why they are collected and inserted last.
 */

import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Database } from './database/client.js';
import { type Sql, sql } from './database/sql.js';
import type { Transaction } from './database/transaction.js';
import { Queue } from './event-queue.js';
import type { RequestState, Stage } from './generated/prisma/enums.js';

/** A file's change of stage. */
export interface StageEvent {
  id: bigint;
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
  at: string;
  requestId: number;
  state: RequestState;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
}

interface Pending {
  at: string;
  moves: { ids: bigint[]; from: Stage; to: Stage }[];
  requests: Set<number>;
}

const pendingOf = new WeakMap<Transaction, Pending>();

function pending(tx: Transaction): Pending {
  const known = pendingOf.get(tx);
  if (known) return known;
  const fresh: Pending = { at: '', moves: [], requests: new Set() };
  pendingOf.set(tx, fresh);
  tx.beforeCommit('events', () => insertEvents(tx, fresh));
  return fresh;
}

/** Records that files moved; the rows are inserted as the last thing of the transaction. */
export function recordMoves(tx: Transaction, ids: bigint[], move: { from: Stage; to: Stage }): void {
  if (ids.length > 0) pending(tx).moves.push({ ids, ...move });
}

/** Records that requests made progress, as it is at the end of the transaction. */
export function recordProgress(tx: Transaction, requestIds: readonly number[]): void {
  for (const id of requestIds) pending(tx).requests.add(id);
}

async function insertEvents(tx: Transaction, events: Pending): Promise<void> {
  const moves = events.moves.flatMap(({ ids, from, to }) => ids.map((id) => ({ id, from, to })));
  if (moves.length > 0) {
    const [ids, from, to] = [moves.map((m) => m.id), moves.map((m) => m.from), moves.map((m) => m.to)];
    await tx.query(
      sql`INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
          SELECT timezone('utc', clock_timestamp()), m.id, m.from_stage, m.to_stage, ARRAY(
            SELECT h.request_id FROM live_hold h WHERE h.file_id = m.id ORDER BY 1)
          FROM unnest(${ids}::bigint[], ${from}::"Stage"[], ${to}::"Stage"[]) WITH ORDINALITY AS m (id, from_stage, to_stage, n)
          ORDER BY m.n`,
    );
  }
  if (events.requests.size > 0) {
    await tx.query(
      sql`INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
       SELECT timezone('utc', clock_timestamp()), '{}', id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk
       FROM request WHERE id = ANY(${[...events.requests]}::int[]) ORDER BY id`,
    );
  }
}

const COLUMNS = sql`e.id, e.at, e.file_id AS "fileId", f.path, e.from_stage AS "from", e.to_stage AS "to",
  e.request_ids AS "requestIds", e.request_id AS "requestId", e.state, e.files_total AS "filesTotal",
  e.files_on_disk AS "filesOnDisk", e.files_failed AS "filesFailed", e.bytes_total AS "bytesTotal",
  e.bytes_on_disk AS "bytesOnDisk"`;

/** Which events a reader wants; the SQL condition may use `e` (event) and `f` (its file). */
export interface EventFilter<E extends StageEvent | ProgressEvent> {
  accepts(event: StageEvent | ProgressEvent): event is E;
  condition: Sql;
}

export function isStageEvent(event: StageEvent | ProgressEvent): event is StageEvent {
  return 'fileId' in event && event.fileId !== null;
}

const PAGE = 1000;
/** Events kept for one slow reader; beyond, it reads the table again from where it was. */
const MAX_QUEUE = 2 * PAGE;
/** A lost doorbell costs at most this. */
const POLL_MS = 5000;
const RETRY_MS = 200;

/**
 * One for each process: listens on one connection, reads new events once, and hands them to all readers in memory.
 * It also passes the other doorbells on (`recall`, `notification`).
 */
export class EventFeed {
  private readonly db: Database;
  private readonly emitter = new EventEmitter().setMaxListeners(0);
  private client: pg.Client | undefined;
  private last: bigint | undefined;
  private isReading = false;
  private hasRung = false;
  private isClosed = false;
  private poll: NodeJS.Timeout | undefined;

  constructor(db: Database) {
    this.db = db;
  }

  async open(): Promise<void> {
    await this.listen();
    this.poll = setInterval(() => this.ring(), POLL_MS).unref();
  }

  /** Calls `listener` when rows were added to a table that rings: `event`, `recall` or `notification`. */
  onRing(table: string, listener: () => void): () => void {
    this.emitter.on(`ring:${table}`, listener);
    return () => this.emitter.off(`ring:${table}`, listener);
  }

  /** Readers that follow just now. */
  get readers(): number {
    return this.emitter.listenerCount('event');
  }

  /** The id of the newest event that is committed. */
  async newestId(): Promise<bigint> {
    const { rows } = await this.db.pool.query<{ id: bigint }>(sql`SELECT coalesce(max(id), 0) AS id FROM event`);
    return rows[0]?.id ?? 0n;
  }

  /**
   * The events after an id that pass the filter, in order, without end: first those in the table, then new ones.
   * Ends when the feed is closed or the signal aborts.
   */
  async *follow<E extends StageEvent | ProgressEvent>(
    after: bigint,
    filter: EventFilter<E>,
    signal: AbortSignal,
  ): AsyncGenerator<E> {
    let last = after;
    while (!this.isClosed && !signal.aborted) {
      // first, so that nothing falls between the table and the queue
      const { queue, leave } = this.subscribe(filter, signal);
      try {
        for await (const event of this.readTable(last, filter)) {
          last = event.id;
          yield event;
        }
        for await (const event of queue.items()) {
          if (event.id <= last) continue;
          last = event.id;
          yield event;
        }
        if (!queue.hasOverflowed) return;
      } finally {
        leave();
      }
    }
  }

  /** Ends all readers; their subscriptions complete. */
  endReaders(): void {
    this.isClosed = true;
    this.emitter.emit('close');
  }

  async close(): Promise<void> {
    this.endReaders();
    clearInterval(this.poll);
    await this.client?.end().catch(() => {}); // it may be gone already
  }

  private async listen(): Promise<void> {
    this.last ??= await this.newestId();
    const client = new pg.Client(this.db.config);
    client.on('notification', ({ payload }) => {
      this.emitter.emit(`ring:${payload}`);
      if (payload === 'event') this.ring();
    });
    client.on('error', () => {}); // 'end' follows
    try {
      await client.connect();
      await client.query(sql`LISTEN tapegate`);
    } catch (error) {
      void client.end().catch(() => {}); // half open, and of no use
      throw error;
    }
    this.client = client;
    client.once('end', () => void this.reconnect());
    if (this.isClosed) return await client.end();
    for (const table of ['event', 'recall', 'notification']) this.emitter.emit(`ring:${table}`);
    this.ring(); // what came while nobody listened
  }

  private async reconnect(): Promise<void> {
    while (!this.isClosed) {
      try {
        return await this.listen();
      } catch {
        await sleep(RETRY_MS, undefined, { ref: false });
      }
    }
  }

  private ring(): void {
    this.hasRung = true;
    if (!this.isReading) void this.read();
  }

  private async read(): Promise<void> {
    this.isReading = true;
    try {
      while (this.hasRung && !this.isClosed) {
        this.hasRung = false;
        if (await this.passOver()) continue;
        const rows = await this.page(this.last ?? 0n, sql`true`);
        for (const event of rows) {
          this.last = event.id;
          this.emitter.emit('event', event);
        }
        if (rows.length === PAGE) this.hasRung = true;
      }
    } catch {
      setTimeout(() => this.ring(), RETRY_MS).unref(); // no connection just now
    } finally {
      this.isReading = false;
    }
  }

  /** Where nobody follows there is nothing to read; whoever comes later begins with the table. */
  private async passOver(): Promise<boolean> {
    if (this.readers > 0) return false;
    const newest = await this.newestId();
    if (this.readers > 0) return false; // came meanwhile, and may have read the table before `newest`
    this.last = newest;
    return true;
  }

  private async page(after: bigint, condition: Sql): Promise<(StageEvent | ProgressEvent)[]> {
    const { rows } = await this.db.pool.query<StageEvent | ProgressEvent>(
      sql`SELECT ${COLUMNS} FROM event e LEFT JOIN tape_file f ON f.id = e.file_id
          WHERE e.id > ${after} AND (${condition}) ORDER BY e.id LIMIT ${PAGE}`,
    );
    return rows;
  }

  private async *readTable<E extends StageEvent | ProgressEvent>(after: bigint, filter: EventFilter<E>) {
    for (let last = after; ; ) {
      const rows = await this.page(last, filter.condition);
      for (const event of rows) {
        last = event.id;
        if (filter.accepts(event)) yield event;
      }
      if (rows.length < PAGE) return;
    }
  }

  private subscribe<E extends StageEvent | ProgressEvent>(filter: EventFilter<E>, signal: AbortSignal) {
    const queue = new Queue<E>(MAX_QUEUE);
    const onEvent = (event: StageEvent | ProgressEvent) => {
      if (filter.accepts(event)) queue.push(event);
    };
    const stop = () => queue.stop();
    this.emitter.on('event', onEvent);
    this.emitter.on('close', stop);
    signal.addEventListener('abort', stop);
    const leave = () => {
      this.emitter.off('event', onEvent);
      this.emitter.off('close', stop);
      signal.removeEventListener('abort', stop);
    };
    return { queue, leave };
  }
}

/**
 * A process's event feed. Reads each new row of the append-only event table only once, for all readers together. NOTIFY
 * only wakes the feed, and does not transmit events. Transactions that write events do not wait for locks, because
 * events get their numbers only after the commit (event-table.ts). A reader that reconnects with the number of its last
 * event does not miss any events.
 */
import { EventEmitter } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { secondsSince, time } from '../core/signals.js';
import { secondsBetween } from '../core/time.js';
import type { Database } from '../db/pools.js';
import { type Sql, sql } from '../db/sql.js';
import {
  type AnyEvent,
  type AskDatabase,
  type EventFilter,
  EventNumbers,
  EventTable,
  RANGE,
  SharedReads,
} from './event-table.js';

/**
 * Maximum number of events queued for a slow reader. When the queue is full, the reader reads the event table again.
 */
const MAX_QUEUE = Number(RANGE) / 2;
/**
 * Maximum number of listeners that receive an event in one turn of the event loop, to limit the cost of garbage
 * collection.
 */
const AT_ONCE = 100;
/**
 * Milliseconds between polls of the event table, in case a notification is lost. A process without readers polls only
 * every `UNREAD_POLL_MS` milliseconds.
 */
const POLL_MS = 5000;
const UNREAD_POLL_MS = 30_000;
const RETRY_MS = 200;
const TOPICS = ['event', 'recall', 'notification', 'room', 'access', 'rights', 'purged', 'webhook'];

export class EventFeed {
  private readonly db: Database;
  private readonly emitter = new EventEmitter().setMaxListeners(0);
  private readonly listeners = new Set<(event: AnyEvent) => void>();
  readonly numbers: EventNumbers;
  readonly shared = new SharedReads();
  /**
   * Reads new events outside the connection pool if all pool connections are in use, because these connections might be
   * waiting for locks.
   */
  private readonly news: EventTable;
  private readonly table: EventTable;
  private turn: Promise<unknown> = Promise.resolve();
  private last: bigint | undefined;
  private isReading = false;
  private isNotified = false;
  private isClosed = false;
  private poll: NodeJS.Timeout | undefined;
  private unlisten = () => {};
  private behindSince: number | undefined;
  private readAt = Number.NEGATIVE_INFINITY;

  constructor(db: Database) {
    this.db = db;
    const ask: AskDatabase = (statement) => this.ask(statement);
    this.numbers = new EventNumbers(ask);
    this.news = new EventTable(ask);
    this.table = new EventTable(
      async <Row extends object>(statement: Sql) => (await db.pool.query<Row>(statement)).rows,
    );
  }

  async open(): Promise<void> {
    this.last = await this.newestId();
    this.unlisten = await this.db.pulse.listen({
      onBegin: () => {
        for (const topic of TOPICS) this.emitter.emit(`notify:${topic}`);
        this.notify(); // read events that were written before LISTEN
      },
      onNotification: (payload) => {
        this.emitter.emit(`notify:${payload}`);
        if (payload === 'event') this.notify();
      },
      // forget the snapshot, because after a failover, the new server might lack the old server's last transactions
      onEnd: () => this.numbers.forget(),
    });
    this.poll = setInterval(() => {
      if (this.readers > 0 || performance.now() - this.readAt >= UNREAD_POLL_MS) this.notify();
    }, POLL_MS).unref();
  }

  onNotify(topic: string, listener: () => void): () => void {
    this.emitter.on(`notify:${topic}`, listener);
    return () => this.emitter.off(`notify:${topic}`, listener);
  }

  get readers(): number {
    return this.listeners.size;
  }

  /** Seconds since the feed was notified of events that it has not read yet; 0 if it has read all events. */
  get lagSeconds(): number {
    return this.behindSince === undefined ? 0 : secondsSince(this.behindSince);
  }

  async newestId(): Promise<bigint> {
    await this.numbers.number();
    return await this.numbers.newest();
  }

  async checkKept(after: bigint): Promise<void> {
    await this.table.checkKept(after);
  }

  get present(): Sql {
    return this.numbers.present();
  }

  /**
   * Yields the events with numbers above `after` that pass the filter, in order: first from the event table, then each
   * new event. Ends when the feed closes or `signal` aborts.
   * @throws EventsGoneError if events were pruned before the reader read them
   */
  async *follow<E extends AnyEvent>(after: bigint, filter: EventFilter<E>, signal: AbortSignal): AsyncGenerator<E> {
    let last = after;
    while (!this.isClosed && !signal.aborted) {
      // subscribe before reading the table, so that no event is missed between the read and the subscription
      const { queue, leave, gap } = this.subscribe(filter, signal);
      try {
        for await (const { events, upTo } of this.table.read(last, filter)) {
          if (signal.aborted || this.isClosed) return;
          for (const event of events) {
            last = event.id;
            yield event;
          }
          last = upTo;
        }
        while (await queue.wait()) {
          const event = queue.take();
          if (event.id <= last) continue;
          last = event.id;
          yield event;
        }
        if (!queue.hasOverflowed) return;
        if (gap.begin > last) last = gap.begin;
      } finally {
        leave();
      }
    }
  }

  endReaders(): void {
    this.isClosed = true;
    this.emitter.emit('close');
  }

  close(): void {
    this.endReaders();
    this.unlisten();
    clearInterval(this.poll);
  }

  /**
   * Runs SQL statements one after another. If a statement fails outside the connection pool, where the time limit is
   * short, the statement is retried in the pool.
   */
  private async ask<Row extends object>(statement: Sql): Promise<Row[]> {
    const { db } = this;
    const answer = this.turn.then(() =>
      db
        .urgentPool()
        .query<Row>(statement)
        .catch(() => db.pool.query<Row>(statement)),
    );
    this.turn = answer.catch(() => {});
    return (await answer).rows;
  }

  private notify(): void {
    this.isNotified = true;
    this.behindSince ??= performance.now();
    if (!this.isReading && !this.isClosed) void this.read();
  }

  private async read(): Promise<void> {
    this.isReading = true;
    try {
      while (this.isNotified && !this.isClosed) {
        this.isNotified = false;
        this.readAt = performance.now();
        await this.numbers.number();
        if (!(await this.skipUnread())) await this.readNew();
        this.behindSince = this.isNotified ? performance.now() : undefined;
      }
    } catch {
      setTimeout(() => this.notify(), RETRY_MS).unref();
    } finally {
      this.isReading = false;
    }
  }

  private async skipUnread(): Promise<boolean> {
    if (this.readers > 0) return false;
    const newest = await this.numbers.newest();
    if (this.readers > 0) return false;
    this.last = newest;
    return true;
  }

  private async readNew(): Promise<void> {
    const range = await this.news.nextRange(this.last ?? 0n);
    if (!range) return;
    this.isNotified = true;
    // do not read a large batch here: each reader queries the table for the events that pass its own filter
    if (range.batchEnd > range.upTo || range.isBroken) {
      this.emitter.emit('gap');
      this.last = range.batchEnd;
      return;
    }
    const events = await this.news.readRange(range, sql`true`);
    for (const event of events) await this.deliver(event);
    const [first] = events;
    if (first) time('tapegate_event_delay_seconds', {}, Math.max(0, secondsBetween(first.at, this.db.clock.now())));
    this.last = range.upTo;
  }

  /**
   * Passes an event to all listeners. A listener that is added during the delivery reads the event from the event
   * table.
   */
  private async deliver(event: AnyEvent): Promise<void> {
    let delivered = 0;
    for (const listener of this.listeners) {
      listener(event);
      if (++delivered % AT_ONCE === 0) await nextTurn();
    }
  }

  private subscribe<E extends AnyEvent>(filter: EventFilter<E>, signal: AbortSignal) {
    const queue = new Queue<E>(MAX_QUEUE);
    const onEvent = (event: AnyEvent) => {
      if (filter.accepts(event)) queue.push(event);
    };
    const gap = { begin: 0n };
    const onGap = () => {
      if (!queue.hasOverflowed) gap.begin = this.last ?? 0n;
      queue.overflow();
    };
    const stop = () => queue.stop();
    this.listeners.add(onEvent);
    this.emitter.on('gap', onGap);
    this.emitter.on('close', stop);
    signal.addEventListener('abort', stop);
    const leave = () => {
      this.listeners.delete(onEvent);
      this.emitter.off('gap', onGap);
      this.emitter.off('close', stop);
      signal.removeEventListener('abort', stop);
    };
    return { queue, leave, gap };
  }
}

class Queue<Item> {
  /**
   * Whether an item was dropped because the queue was full. After the first dropped item, the queue accepts no items.
   */
  hasOverflowed = false;
  private readonly waiting: Item[] = [];
  private readonly limit: number;
  private isStopped = false;
  private wake = () => {};

  constructor(limit: number) {
    this.limit = limit;
  }

  push(item: Item): void {
    if (this.hasOverflowed || this.isStopped) return;
    if (this.waiting.length === this.limit) this.hasOverflowed = true;
    else this.waiting.push(item);
    this.wake();
  }

  overflow(): void {
    this.hasOverflowed = true;
    this.wake();
  }

  stop(): void {
    this.isStopped = true;
    this.wake();
  }

  /** Waits until the queue contains an item. @returns false if the queue is empty and closed to new items */
  async wait(): Promise<boolean> {
    while (this.waiting.length === 0) {
      if (this.isStopped || this.hasOverflowed) return false;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    return true;
  }

  take(): Item {
    return this.waiting.shift() as Item;
  }
}

/**
 * What PostgreSQL's protocol has and the driver has no call for: a statement with a bound of its own in one round trip, and a
 * statement whose rows are read by the page at their reader's pace.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { Exchange } from './exchange.js';
import { exactTypes, toUnavailable } from './line.js';
import { isPrepared, isUseless, prepared } from './prepared.js';
import { RowTap } from './row-tap.js';
import { join, raw, type Sql, sql } from './sql.js';

/** Of a connection of the driver's: what is sent one after another is answered up to each `sync`. */
interface Wire {
  stream: Socket;
  parse(message: { text: string }): void;
  bind(message: { portal?: string; values?: unknown[]; valueMapper?: (value: unknown) => unknown }): void;
  execute(message: { portal?: string; rows?: number }): void;
  sync(): void;
}

/** As the driver sends what is given to a statement. */
const { prepareValue } = (pg as unknown as { utils: { prepareValue(value: unknown): unknown } }).utils;

/** What holds for a statement, by the names of PostgreSQL's settings. */
export type Settings = Readonly<Record<string, string>>;

/**
 * That a scan of a large table is shared among the server's cores, whatever the planner thinks of its rows: where it expects some soon,
 * it would have one core look for them.
 */
export const PARALLEL: Settings = { parallel_setup_cost: '0', parallel_tuple_cost: '0' };

/**
 * That what an index finds is looked at by one core: of how many rows there will be the planner knows little, and to begin other processes takes a
 * hundred times as long as to look at ten.
 */
export const SERIAL: Settings = { max_parallel_workers_per_gather: '0' };

/** What is prepared is planned for all values at once, whatever the planner thinks of these. */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

/** Sets them until the transaction ends. */
export function setLocally(settings: Settings): Sql {
  return sql`SELECT ${join(Object.entries(settings).map(([name, value]) => sql`set_config(${name}, ${value}, true)`))}`;
}

/**
 * Several statements in one round trip (exchange.ts).
 * @param onRefused is told which of them the server has refused
 * @returns the rows of each
 */
export async function sendTogether(
  client: pg.ClientBase,
  statements: readonly Sql[],
  onRefused: (at: number | undefined) => void = () => {},
): Promise<object[][]> {
  return await new Promise<object[][]>((resolve, reject) => {
    const exchange: Exchange = new Exchange(statements, exactTypes, {
      resolve,
      reject: (error) => {
        onRefused(exchange.refusedAt);
        reject(toUnavailable(error));
      },
    });
    client.query(exchange);
  }).catch((error) => {
    if (error instanceof Error) Error.captureStackTrace(error); // where it was asked, as the driver says it
    throw error;
  });
}

/**
 * The rows of one statement, which may take so long and no longer: one round trip. Without a BEGIN, all up to the sync is one transaction: the
 * bound is set in it, holds for the statement, and ends with it. It is sent along, where a transaction of four statements would take four round trips.
 * @throws UnavailableError whose cause has the code 57014 when it takes longer
 */
export async function queryWithin<Row extends object>(
  pool: pg.Pool,
  statement: Sql,
  timeoutMs: number,
  settings: Settings = {},
): Promise<Row[]> {
  const planned = isPrepared(statement) ? PLANNED_ONCE : {};
  const bounds = prepared(setLocally({ statement_timeout: String(timeoutMs), ...planned, ...settings }));
  const client = await pool.connect();
  try {
    return (await sendUntilUseful(client, [bounds, statement])).at(-1) as Row[];
  } finally {
    client.release(); // the pool sees by itself whether the connection has broken
  }
}

/** Where what was prepared is good no longer, nothing was done, and it is prepared anew. */
export async function sendUntilUseful(client: pg.ClientBase, statements: readonly Sql[]): Promise<object[][]> {
  for (;;) {
    try {
      return await sendTogether(client, statements);
    } catch (error) {
      if (!isUseless(error)) throw error;
    }
  }
}

export interface TextPage {
  /** The bytes of texts, each with a comma before it. */
  parts: Buffer[];
  isLast: boolean;
}

const PORTAL = 'list';

/**
 * Some rows of a statement that stands open as long as its transaction. It is planned as a whole, where a cursor is planned for its
 * first tenth; and of what comes nothing is made.
 */
class PageQuery implements pg.Submittable {
  /** For those who watch what is asked. */
  readonly text: string;
  private readonly page: TextPage = { parts: [], isLast: false };
  private readonly size: number;
  private readonly opening: Sql | undefined;
  private readonly settle: { resolve(page: TextPage): void; reject(error: unknown): void };
  private tap: RowTap | undefined;

  /** @param opening the statement, for its first page */
  constructor(size: number, opening: Sql | undefined, settle: PageQuery['settle']) {
    this.size = size;
    this.opening = opening;
    this.settle = settle;
    this.text = opening?.text ?? '';
  }

  submit(connection: unknown): void {
    const wire = connection as Wire;
    this.tap = new RowTap(wire.stream, (rows) => this.page.parts.push(rows));
    wire.stream.cork();
    if (this.opening) {
      wire.parse({ text: this.opening.text });
      wire.bind({ portal: PORTAL, values: this.opening.values, valueMapper: prepareValue });
    }
    wire.execute({ portal: PORTAL, rows: this.size });
    wire.sync();
    wire.stream.uncork();
  }

  handleCommandComplete(): void {
    this.page.isLast = true;
  }

  handleReadyForQuery(): void {
    this.tap?.close();
    this.settle.resolve(this.page);
  }

  handleError(error: unknown): void {
    this.tap?.close();
    this.settle.reject(toUnavailable(error));
  }

  handlePortalSuspended(): void {} // there is more
  handleRowDescription(): void {}
}

/**
 * The rows of a statement of one column, which is text and not null, by the page; while one is looked at the next one comes. To be
 * read in a transaction, and one statement at a time.
 */
export async function* readTexts(client: pg.ClientBase, statement: Sql, size: number): AsyncGenerator<TextPage> {
  const fetch = (opening?: Sql) => {
    const page = new Promise<TextPage>((resolve, reject) => {
      client.query(new PageQuery(size, opening, { resolve, reject }));
    });
    page.catch(() => {}); // who leaves does not wait for it
    return page;
  };
  for (let coming = fetch(statement); ; ) {
    const page = await coming;
    if (!page.isLast) coming = fetch();
    yield page;
    if (page.isLast) return;
  }
}

/** Of a statement that was read so, before the next one in its transaction. */
export const closeTexts = raw(`CLOSE ${PORTAL}`);

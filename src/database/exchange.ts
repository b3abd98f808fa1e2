/**
 * Several statements in one round trip: they are sent together, run one after another, each seeing what those before it did, and none is run
 * after one that fails. Those that have a name (prepared.ts) are prepared once on their connection.
 */
import pg from 'pg';
import { codeOf } from '../errors.js';
import { isUseless, type Preparations } from './prepared.js';
import type { Sql } from './sql.js';

/** Of a connection of the driver's: what is sent one after another is answered up to the `sync`. */
interface Wire {
  stream: { cork(): void; uncork(): void };
  /** The texts that the server has read, by name. */
  parsedStatements: Record<string, string>;
  on(event: 'parseComplete', listener: () => void): void;
  off(event: 'parseComplete', listener: () => void): void;
  parse(message: { name?: string | undefined; text: string }): void;
  bind(message: { statement?: string | undefined; values: unknown[]; valueMapper(value: unknown): unknown }): void;
  describe(message: { type: 'P' }): void;
  execute(message: object): void;
  sync(): void;
}

/** A result as the driver makes it of what comes. */
interface Result {
  rows: object[];
  addFields(fields: unknown): void;
  parseRow(fields: unknown): object;
}

const driver = pg as unknown as {
  Result: new (rowMode: undefined, types: pg.CustomTypesConfig) => Result;
  utils: { prepareValue(value: unknown): unknown };
};
const { prepareValue } = driver.utils;

/**
 * Of what stands between us and PostgreSQL, and has lost its connection there: what the server has done by then, nobody knows. (Where it is
 * the server's own, nothing was done.)
 */
const BROKEN_CODES = /^08/;

interface Sent {
  name: string | undefined;
  text: string;
}

type Settle = { resolve(rows: object[][]): void; reject(error: unknown): void };

export class Exchange implements pg.Submittable {
  private readonly statements: readonly Sql[];
  private readonly types: pg.CustomTypesConfig;
  private readonly settle: Settle;
  private preparations: Preparations | undefined;
  /** Names by the statement, as they are on this connection. */
  private names: (string | undefined)[] = [];
  private readonly rows: object[][] = [];
  private result: Result;
  private leave = () => {};
  private refused: number | undefined;
  private unsent: { error: unknown } | undefined;
  /** The driver's, which has set a bound to the answer (`query_timeout`). */
  callback: (() => void) | undefined;

  constructor(statements: readonly Sql[], types: pg.CustomTypesConfig, settle: Settle) {
    this.statements = statements;
    this.types = types;
    this.settle = settle;
    this.result = new driver.Result(undefined, types);
  }

  /** For those who watch what is asked. */
  get text(): string {
    return this.statements.map(({ text }) => text).join(';\n');
  }

  /**
   * The index of the statement that the server has refused to run; none is known to have been where the connection broke, be it one between
   * the server and who tells so in its place.
   */
  get refusedAt(): number | undefined {
    return this.refused;
  }

  /** By which the connection knows what it has prepared. */
  prepareBy(preparations: Preparations): void {
    this.preparations = preparations;
  }

  submit(connection: unknown): void {
    const wire = connection as Wire;
    const unread = new Set<string>();
    const sent: Sent[] = [];
    this.names = this.statements.map((statement) => {
      const { name } = statement as { name?: string };
      return name && (this.preparations?.nameOf(name) ?? name);
    });
    const note = () => {
      const read = sent.shift();
      if (read?.name) wire.parsedStatements[read.name] = read.text;
    };
    wire.on('parseComplete', note);
    this.leave = () => wire.off('parseComplete', note);
    wire.stream.cork();
    try {
      for (const [n, statement] of this.statements.entries()) {
        const [name, { text }] = [this.names[n], statement];
        if (!name || !(name in wire.parsedStatements || unread.has(name))) {
          wire.parse({ name, text });
          sent.push({ name, text });
          if (name) unread.add(name);
        }
        wire.bind({ statement: name, values: statement.values, valueMapper: prepareValue });
        wire.describe({ type: 'P' });
        wire.execute({});
      }
    } catch (error) {
      this.unsent = { error }; // of a value that is none; the driver may have us here with nobody above who would catch it
    } finally {
      wire.sync();
      wire.stream.uncork();
    }
  }

  handleRowDescription({ fields }: { fields: unknown }): void {
    this.result.addFields(fields);
  }

  handleDataRow({ fields }: { fields: unknown }): void {
    this.result.rows.push(this.result.parseRow(fields));
  }

  handleCommandComplete(): void {
    this.rows.push(this.result.rows);
    this.result = new driver.Result(undefined, this.types);
  }

  handleReadyForQuery(): void {
    this.leave();
    this.callback?.();
    if (this.unsent) this.settle.reject(this.unsent.error);
    else this.settle.resolve(this.rows);
  }

  handleError(error: unknown): void {
    this.leave();
    this.callback?.();
    if (error instanceof pg.DatabaseError && !BROKEN_CODES.test(codeOf(error) ?? '')) this.refused = this.rows.length;
    if (isUseless(error)) this.preparations?.lose();
    this.settle.reject(error);
  }

  handlePortalSuspended(): void {} // no portal is read by the page
  handleEmptyQuery(): void {
    this.handleCommandComplete();
  }
}

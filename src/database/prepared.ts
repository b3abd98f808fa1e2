/**
 * Statements that are prepared by name on each connection: PostgreSQL reads such a text once, and plans it once for all values after some
 * uses. Only for look-ups by keys, whose plan is the same whatever the values are; a search is planned for its pattern, and has no name.
 *
 * A plan is kept for seconds only: one that was made while a table was nearly empty reads all of it, and nobody would notice before
 * PostgreSQL has new statistics, which may take minutes.
 *
 * What is prepared goes with its connection, so one that is made anew, after a restart or on another server, prepares anew. It may also
 * become useless under a connection that lives: a migration beside a running program changes the type of a column, or what stands between
 * us and PostgreSQL has taken it away. Then it is prepared once more under another name, and nobody hears of it.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { codeOf } from '../errors.js';
import { raw, type Sql, Statement } from './sql.js';

/** Texts are made of what stands in the program, and values are no part of them, so that there are few. */
const MAX_NAMES = 500;

interface Known {
  name: string;
  text: string;
}

const names = new Map<string, Known>();

/** The statement itself, which has a name from now on. As a part of another one it has none. */
export function prepared(statement: Sql): Sql {
  if (statement instanceof Statement) statement.name = knownBy(statement.text)?.name;
  return statement;
}

function knownBy(text: string): Known | undefined {
  const known = names.get(text);
  if (known || names.size >= MAX_NAMES) return known;
  // by the text, so that programs of several versions mean the same by a name if ever they share a connection
  const name = `tapegate_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
  names.set(text, { name, text });
  return names.get(text);
}

/** How long a plan is used. To make it anew takes a tenth of a millisecond. */
const PLAN_MS = 10_000;

const DISCARD = raw('DISCARD PLANS');

export interface PreparedQuery extends Known {
  values: unknown[];
}

type Callback = (error: unknown, result?: unknown) => void;
type Run = (query: PreparedQuery | Sql, callback: Callback) => void;

export function isPrepared(query: unknown): query is PreparedQuery {
  return typeof (query as { name?: unknown } | undefined)?.name === 'string';
}

/** What one connection has prepared. */
export class Preparations {
  private readonly run: Run;
  /** How often what was prepared has become useless. */
  private losses = 0;
  private plannedAt = performance.now();

  /** @param run runs a query of the connection */
  constructor(run: Run) {
    this.run = run;
  }

  /** For several statements at once, which find their names by it. */
  serve(exchange: { prepareBy(preparations: Preparations): void }): void {
    this.renew();
    exchange.prepareBy(this);
  }

  private renew(): void {
    if (performance.now() - this.plannedAt <= PLAN_MS) return;
    this.plannedAt = performance.now();
    this.run(DISCARD, () => {}); // whatever keeps it from that, the query itself will say
  }

  /** What the statement of that name is called on this connection. */
  nameOf(name: string): string {
    return this.losses === 0 ? name : `${name}_${this.losses}`;
  }

  /** All is prepared anew when it is used again: whatever has become of one has become of others, which would be found out one by one. */
  lose(): void {
    this.losses++;
  }

  /** @param isWithin says whether the connection is in a transaction, which has to be run again as a whole then */
  query({ name, text, values }: PreparedQuery, isWithin: () => boolean, callback: Callback): void {
    this.renew();
    const before = this.losses;
    this.run({ name: this.nameOf(name), text, values }, (error, result) => {
      if (!isUseless(error)) return callback(error, result);
      if (this.losses === before) this.lose();
      if (isWithin()) return callback(error);
      this.query({ name, text, values }, isWithin, callback);
    });
  }
}

const NOT_SUPPORTED = '0A000';
const NOT_THERE = '26000';

/**
 * Has a statement failed since what was prepared is good no longer? It has done nothing then, and its transaction may be run again. (A plan
 * that would give other columns than before has the code of all that is not supported; texts come in many languages.)
 */
export function isUseless(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return codeOf(error) === NOT_THERE || (codeOf(error) === NOT_SUPPORTED && error.routine === 'RevalidateCachedQuery');
}

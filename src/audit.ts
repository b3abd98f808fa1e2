/**
 * The rows of `audit`: who asked for which change, and what came of it. A row of a change is written in the change's own
 * transaction (operations/audit/audited.ts), one of a refusal beside it (`Refusals`).
 */

import type { Logger } from 'pino';
import type { Caller, Way } from './caller.js';
import type { Database } from './database/client.js';
import { type Sql, sql } from './database/sql.js';
import { codeOf, logFailure, messageOf } from './errors.js';

/** What a change may be about. NONE: the service as a whole, or nobody knows. */
export type AuditKind =
  | 'REQUEST'
  | 'QUOTA'
  | 'USER'
  | 'TOKEN'
  | 'FILES'
  | 'VOLUME'
  | 'DRIVE'
  | 'BACKEND'
  | 'DISK'
  | 'CATALOGUE'
  | 'RULE'
  | 'WEBHOOK'
  | 'NONE';

/** Something that a caller asks for. */
export interface Deed {
  /** By its name in the policy table; what is in none has a name of its own, such as `identify`. */
  operation: string;
  kind: AuditKind;
  /** Its id or name; for files the match. Empty while it has none. */
  object: string | number;
  /** What was given, which is cut; nothing secret. */
  given?: object | undefined;
}

/** DONE, BEGUN (what goes on, and is one transaction after another), or the code of an error. */
export type AuditResult = string;

/** Whoever asks: callers, and those who are known only by where they ask from. */
export type Asker = Pick<Caller, 'name' | 'tokenId' | 'address'> & { way: Way | 'unknown' };

/** The statement that writes a row. @param count refusals that it stands for */
export function auditRow(now: string, asker: Asker, deed: Deed, result: AuditResult = 'DONE', count = 1): Sql {
  return insertRows(now, asker, deed, { objects: objectOf(deed), result: sql`${result}::text`, count });
}

/**
 * That of a change, in its transaction. It fails where the caller's token is good no longer, unless it is told to pass over that, so
 * that nothing is changed then (`isUnnoted`).
 * @param each a query that gives the objects of a row each: what a part of the same statement has changed
 */
export function auditRowOfChange(
  now: string,
  asker: Asker,
  deed: Deed,
  { each, passesOverToken }: { each?: Sql | undefined; passesOverToken: boolean },
): Sql {
  const isGood = sql`EXISTS (SELECT FROM api_token t WHERE t.id = ${asker.tokenId ?? null}::int AND t.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > ${now}::timestamp))`;
  // a row has a result, or is none
  const result =
    asker.tokenId === undefined || passesOverToken ? sql`'DONE'` : sql`CASE WHEN ${isGood} THEN 'DONE' END`;
  return insertRows(now, asker, deed, { objects: each ?? objectOf(deed), result, count: 1 });
}

/** The same of a statement that is no operation's own. */
export function auditRowOfEach(now: string, asker: Asker, deed: Omit<Deed, 'object'>, objects: Sql): Sql {
  return auditRowOfChange(now, asker, { ...deed, object: '' }, { each: objects, passesOverToken: false });
}

const NOT_NULL = '23502';

/** Did a change fail since the token by which it was asked for is good no longer? */
export function isUnnoted(error: unknown): boolean {
  if (codeOf(error) === NOT_NULL) return (error as { table?: unknown }).table === 'audit';
  return messageOf(error).includes(`Code: \`${NOT_NULL}\``); // as Prisma tells it
}

const objectOf = ({ object }: Deed) => sql`SELECT ${plain(String(object))}::text`;

function insertRows(
  now: string,
  { name, way, tokenId, address }: Asker,
  { operation, kind, given = {} }: Omit<Deed, 'object'>,
  { objects, result, count }: { objects: Sql; result: Sql; count: number },
): Sql {
  return sql`INSERT INTO audit (at, who, way, token_id, address, operation, kind, object, given, result, count)
    SELECT ${now}::timestamp, ${plain(name)}::text, ${way}::text, ${tokenId ?? null}::int, ${address ?? null}::text, ${operation}::text,
      ${kind}::text, o.object, ${formatGiven(given)}::jsonb, ${result}, ${count}::int FROM (${objects}) o (object)`;
}

const MAX_TEXT = 250;
/** What an object is called must be found again: paths are the longest. */
const MAX_OBJECT = 2100;
const MAX_ITEMS = 10;
const MAX_DEPTH = 4;
const MAX_GIVEN = 8000;

/** A text that PostgreSQL takes, whatever it was. */
function plain(text: string, max = MAX_OBJECT): string {
  const kept = text.length > max ? `${text.slice(0, max)}… (${text.length} characters)` : text;
  return kept.replaceAll('\0', '\uFFFD').toWellFormed();
}

/** As JSON, cut: of a list the first ones and how many there are, of a text its beginning. What is undefined is left out. */
function formatGiven(given: object): string {
  const text = JSON.stringify(cut(given, MAX_DEPTH));
  return text.length <= MAX_GIVEN ? text : JSON.stringify({ cut: plain(text, MAX_GIVEN / 4) });
}

function cut(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return plain(value, MAX_TEXT);
  // integers of any size stay what they are
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === 0) return '…';
  if (Array.isArray(value)) {
    const first = value.slice(0, MAX_ITEMS).map((item) => cut(item, depth - 1));
    return value.length > MAX_ITEMS ? { count: value.length, first } : first;
  }
  const entries = Object.entries(value).slice(0, 4 * MAX_ITEMS);
  return Object.fromEntries(entries.map(([key, item]) => [plain(key, MAX_TEXT), cut(item, depth - 1)]));
}

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

/**
 * Refusals in the audit. Within a minute the first refusal of a caller, operation and code is a row at once. Those that follow are one row with
 * their number when the minute is over. A caller has at most `MAX_ROWS` such rows; the rest are counted together. A process that is killed
 * loses the numbers of its last minute.
 */
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

/** Writes rows of the table `audit`. The row for a change is written in the same transaction as the change. */

import type { Logger } from 'pino';
import type { Caller, Way } from '../../core/caller.js';
import { codeOf, logFailure, messageOf } from '../../core/errors.js';
import type { Database } from '../../db/pools.js';
import { type Sql, sql } from '../../db/sql.js';

/**
 * Kind of object that an action changes. NONE means that the action concerns the whole service, or that the object is
 * unknown.
 */
export type AuditKind =
  | 'REQUEST'
  | 'QUOTA'
  | 'USER'
  | 'TOKEN'
  | 'FILES'
  | 'VOLUME'
  | 'DRIVE'
  | 'LIBRARY'
  | 'DISK'
  | 'CATALOGUE'
  | 'RULE'
  | 'WEBHOOK'
  | 'CLOCK'
  | 'NONE';

export interface AuditedAction {
  operation: string;
  kind: AuditKind;
  /** Id or name of the object. For the kind FILES, the text that selects the files. Empty if the object is unknown. */
  object: string | number;
  given?: object | undefined;
}

/** Result of an audited action: DONE, an error code, or BEGUN if the action has started and needs more transactions. */
type AuditResult = string;

type Asker = Pick<Caller, 'name' | 'tokenId' | 'address'> & { way: Way | 'unknown' };

/**
 * Returns the statement that writes an audit row.
 * @param count number of equal actions that the row stands for; greater than 1 only for refused actions
 */
export function auditRow(
  now: string,
  asker: Asker,
  action: AuditedAction,
  result: AuditResult = 'DONE',
  count = 1,
): Sql {
  return insertRows(now, asker, action, { objects: objectOf(action), result: sql`${result}::text`, count });
}

/**
 * Returns the statement that writes the audit row for a change, to run in the same transaction as the change. If the
 * caller's token has become invalid, the statement fails (`isInvalidToken`), unless `passesOverToken` is set.
 * @param each query that selects the changed objects; the statement writes one audit row for each object
 */
export function auditRowOfChange(
  now: string,
  asker: Asker,
  action: AuditedAction,
  { each, passesOverToken }: { each?: Sql | undefined; passesOverToken: boolean },
): Sql {
  const isGood = sql`EXISTS (SELECT FROM api_token t WHERE t.id = ${asker.tokenId ?? null}::int AND t.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > ${now}::timestamp))`;
  // if the token is invalid, the expression is null, so that the NOT NULL constraint of the column `result` rejects the
  // row
  const result =
    asker.tokenId === undefined || passesOverToken ? sql`'DONE'` : sql`CASE WHEN ${isGood} THEN 'DONE' END`;
  return insertRows(now, asker, action, { objects: each ?? objectOf(action), result, count: 1 });
}

/** Returns the statement that writes an audit row for each object that the query `objects` selects. */
export function auditRowOfEach(now: string, asker: Asker, action: Omit<AuditedAction, 'object'>, objects: Sql): Sql {
  return auditRowOfChange(now, asker, { ...action, object: '' }, { each: objects, passesOverToken: false });
}

const NOT_NULL = '23502';

/** Returns whether a change failed because the caller's token has become invalid. */
export function isInvalidToken(error: unknown): boolean {
  if (codeOf(error) === NOT_NULL) return (error as { table?: unknown }).table === 'audit';
  return messageOf(error).includes(`Code: \`${NOT_NULL}\``); // Prisma reports the code only in its message
}

const objectOf = ({ object }: AuditedAction) => sql`SELECT ${plain(String(object))}::text`;

function insertRows(
  now: string,
  { name, way, tokenId, address }: Asker,
  { operation, kind, given = {} }: Omit<AuditedAction, 'object'>,
  { objects, result, count }: { objects: Sql; result: Sql; count: number },
): Sql {
  return sql`INSERT INTO audit (at, who, way, token_id, address, operation, kind, object, given, result, count)
    SELECT ${now}::timestamp, ${plain(name)}::text, ${way}::text, ${tokenId ?? null}::int, ${address ?? null}::text, ${operation}::text,
      ${kind}::text, o.object, ${formatGiven(given)}::jsonb, ${result}, ${count}::int FROM (${objects}) o (object)`;
}

const MAX_TEXT = 250;
/**
 * Maximum length of an object's name. The longest allowed path is shorter than this limit, so that operators can search
 * audit rows by path.
 */
const MAX_OBJECT = 2100;
const MAX_ITEMS = 10;
const MAX_DEPTH = 4;
const MAX_GIVEN = 8000;

function plain(text: string, max = MAX_OBJECT): string {
  const kept = text.length > max ? `${text.slice(0, max)}… (${text.length} characters)` : text;
  return kept.replaceAll('\0', '\uFFFD').toWellFormed();
}

/** Returns an action's input as truncated JSON. Replaces a long list with the list's length and its first items. */
function formatGiven(given: object): string {
  const text = JSON.stringify(cut(given, MAX_DEPTH));
  return text.length <= MAX_GIVEN ? text : JSON.stringify({ cut: plain(text, MAX_GIVEN / 4) });
}

function cut(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return plain(value, MAX_TEXT);
  // write a bigint as text, because JSON.stringify cannot write bigints
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
 * Maximum number of refusals per minute that get their own audit rows. Each authenticated caller has its own limit. All
 * unauthenticated callers share one limit.
 */
const MAX_ROWS = 20;
const MINUTE_MS = 60_000;

interface Repeats {
  asker: Asker;
  action: AuditedAction;
  code: string;
  count: number;
}

/**
 * Records refused actions in the audit. In each minute, the first refusal for a caller, operation and error code gets
 * an audit row immediately. At the end of the minute, one more row records the number of further refusals. If the
 * process is killed, the counts for the last minute are lost.
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

  /** Records a refusal, without waiting for the database. */
  record(asker: Asker, action: AuditedAction, code: string): void {
    const now = this.now();
    const minute = now.slice(0, 'YYYY-MM-DDTHH:MM'.length);
    if (minute !== this.minute) this.flush();
    this.minute = minute;
    const { name, way, tokenId } = asker;
    const isKnown = name !== '' && way !== 'open' && way !== 'legacy';
    const group = isKnown ? JSON.stringify([way, name, tokenId]) : '';
    const own = JSON.stringify([group || [way, name, asker.address], action.operation, code]);
    const rows = this.rows.get(group) ?? 0;
    const isFirst = !this.repeats.has(own);
    if (isFirst && rows < MAX_ROWS) {
      this.rows.set(group, rows + 1);
      this.repeats.set(own, { asker, action: { ...action, object: '', given: {} }, code, count: 0 });
      this.write(auditRow(now, asker, action, code));
      return;
    }
    const key = isFirst ? JSON.stringify(['others', group || way, action.operation, code]) : own;
    const others = isKnown ? asker : { ...asker, name: '', address: undefined };
    const blank = { operation: action.operation, kind: 'NONE', object: '' } as const;
    const repeats = this.repeats.get(key) ?? { asker: others, action: blank, code, count: 0 };
    repeats.count++;
    this.repeats.set(key, repeats);
    this.wait();
  }

  /**
   * Removes caller names from pending counts after a user was purged, because a count might contain the purged user's
   * name.
   */
  clearNames(): void {
    for (const repeats of this.repeats.values()) {
      repeats.asker = { ...repeats.asker, name: '', tokenId: undefined, address: undefined };
    }
  }

  /** Writes all pending counts, and waits until the counts are in the database. */
  async settle(): Promise<void> {
    this.flush();
    clearTimeout(this.timer);
    await this.turn;
  }

  private flush(): void {
    const counted = [...this.repeats.values()].filter(({ count }) => count > 0);
    this.repeats.clear();
    this.rows.clear();
    for (const { asker, action, code, count } of counted) this.write(auditRow(this.now(), asker, action, code, count));
  }

  private write(row: Sql): void {
    this.turn = this.turn
      .then(() => this.db.pool.query(row))
      .then(
        () => {},
        (error) => logFailure(this.log, error, 'cannot record a rejected operation in the audit log'),
      );
    this.wait();
  }

  private wait(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.flush();
    }, MINUTE_MS).unref();
  }
}

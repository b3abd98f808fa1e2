import { InvalidInputError, quote } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import { allOf, type Sql, sql } from '../../db/sql.js';
import type { Audit } from '../../generated/prisma/client.js';
import type { Context } from '../context.js';
import { keyedList } from '../page-keys.js';
import { allow, policy } from '../policy.js';
import type { AuditKind } from './audit.js';

/** Filters for audit rows. A filter that is absent or empty matches all rows. */
interface ListAuditInput {
  who?: string | null | undefined;
  operation?: string | null | undefined;
  objectKind?: AuditKind | null | undefined;
  object?: string | null | undefined;
  /** Period in which the listed rows were written, from `since` (inclusive) to `until` (exclusive). */
  since?: string | null | undefined;
  until?: string | null | undefined;
}

/**
 * Returns functions that count audit rows and read a page of rows, oldest row first.
 * @throws InvalidInputError if no row can match the filters
 */
export function listAudit(ctx: Context, input: ListAuditInput, reader?: AbortSignal) {
  allow(ctx, 'listAudit');
  checkInput(input);
  const rows = sql`audit a WHERE ${allOf(conditionsOf(input))}`;
  return keyedList<bigint, Audit>(ctx, { rows, reader, id: sql`a.id` }, (at, id, query) =>
    at.db.prisma.audit.findMany({ ...query, where: { id }, orderBy: { id: 'asc' } }),
  );
}

/** Rejects filters that no row can match, because an empty list would suggest that no actions were recorded. */
function checkInput({ operation, since, until }: ListAuditInput): void {
  const unknown = operation ? findUnknownOperation(operation) : undefined;
  if (unknown !== undefined) throw new InvalidInputError('operation', unknown);
  if (since && until && !isBefore(since, until)) {
    throw new InvalidInputError('until', `must be later than since (${since}), not ${until}`);
  }
}

function conditionsOf({ who, operation, objectKind, object, since, until }: ListAuditInput): Sql[] {
  const conditions: Sql[] = [sql`true`];
  if (who) conditions.push(sql`a.who = ${storable(who)}`);
  if (operation) conditions.push(sql`a.operation = ${storable(operation)}`);
  if (objectKind) conditions.push(sql`a.kind = ${objectKind}`);
  if (object) conditions.push(sql`a.object = ${storable(object)}`);
  if (since) conditions.push(sql`a.at >= ${since}::timestamp`);
  if (until) conditions.push(sql`a.at < ${until}::timestamp`);
  return conditions;
}

/** Replaces characters that PostgreSQL cannot store, in the same way as when audit rows are written. */
function storable(text: string): string {
  return text.replaceAll('\0', '\uFFFD').toWellFormed();
}

/**
 * Names of audited operations that `policy` does not contain: authentication, and commands that access the database
 * directly.
 */
const others = ['identify', 'archive', 'doctor', 'restore', 'takeover', 'adopt'];

const names: readonly string[] = [...Object.keys(policy), ...others];

/** Returns an error text that lists the known operations if an operation name is unknown; otherwise undefined. */
export function findUnknownOperation(name: string): string | undefined {
  if (names.includes(name)) return undefined;
  return `${quote(name)} is unknown; the operations are ${[...names].sort().join(', ')}`;
}

const DAY_SECONDS = 24 * 3600;
const STEP = 5000;

/**
 * Deletes audit rows that are more than `TAPEGATE_AUDIT_DAYS` days old. Several engines can delete audit rows at the
 * same time.
 */
export async function pruneAudit(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.auditDays * DAY_SECONDS);
  while (!stop.aborted) {
    const rows = await ctx.db.rows<{ pruned: number }>(
      sql`SELECT prune_audit(${before}::timestamp, ${STEP}::int) AS pruned`,
    );
    if ((rows[0]?.pruned ?? 0) === 0) return;
  }
}

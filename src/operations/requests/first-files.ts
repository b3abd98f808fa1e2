/**
 * The files of a new request that the catalogue knows: charged together or not at all. All of it holds the catalogue's lock
 * (lockCatalogue in database/locks.ts), so that no file slips in between; how files come into a request later is in joins.ts.
 */
import { ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { prepared } from '../../database/prepared.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { mayPath, rulesFor } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import { holdsText } from '../match.js';
import { charge, checkRoom, type QuotaRow } from '../quotas/charges.js';
import { addCounts, type Counts, checkCounts, countColumns, countIn, countsOf } from '../quotas/counts.js';
import { checkWithin, type Limits } from './limits.js';

type StoredRow = { id: number; files: number; bytes: string; unknown: number } & (
  | Counts
  | { [Name in keyof Counts]: null }
);

interface Stored {
  id: number;
  files: number;
}

/** What a request asks for: a pattern, or a list of distinct paths. */
export interface Wish {
  pattern: string;
  files: readonly string[] | undefined;
}

/** A request that is being made. */
export interface NewRequest {
  wish: Wish;
  label: string;
  now: string;
  retention: string;
  limits: Limits;
  user: string;
  quota: QuotaRow;
  /** Where its mail goes. */
  first: string | null;
  last: string | null;
}

/** @param isWanted none is made where it is false */
export function insertRequest(
  ctx: Context,
  { wish, label, now, retention, first, last, limits, quota }: NewRequest,
  isWanted?: Sql,
): Sql {
  const rules = rulesFor(ctx);
  const values = sql`${quota.id}::int, ${wish.pattern}::text, ${label}::text, ${now}::timestamp, ${retention}::timestamp, ${first}::text, ${last}::text,
      ${limits.maxFiles}::int, ${limits.maxBytes}::bigint, ${ownerOf(ctx.caller)}::text, ${rules.ruledBy}::text, ${rules.ruledGroups}::text[],
      ${ctx.traceparent ?? null}::text`;
  return sql`INSERT INTO request (quota_id, pattern, label, request_date, retention, notify_on_first_file,
      notify_on_last_file, max_files, max_bytes, made_by, ruled_by, ruled_groups, trace_parent)
    ${isWanted ? sql`SELECT ${values} WHERE ${isWanted}` : sql`VALUES (${values})`} RETURNING id`;
}

/**
 * Stores a request of listed files: it holds those that the catalogue knows, and the other paths are noted.
 * @returns its id, and how many files it holds
 * @throws InvalidInputError when they are beyond the limits, LimitReachedError, QuotaExceededError
 */
export async function storeListed(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  files: readonly string[],
): Promise<Stored> {
  await checkUnknown(ctx, tx, request, files);
  const { quota } = request;
  const [row] = await tx.query<StoredRow>(
    prepared(
      // one statement, so that a path is either known or noted
      sql`WITH made AS (${insertRequest(ctx, request)}
       ), listed AS MATERIALIZED (
         SELECT l.path, l.n, f.id, f.size FROM unnest(${files}::text[]) WITH ORDINALITY AS l (path, n)
           LEFT JOIN tape_file f ON f.path = l.path AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}
       ), held AS (
         INSERT INTO hold (request_id, file_id, ordinal, size) SELECT m.id, l.id, l.n, l.size FROM listed l, made m WHERE l.id IS NOT NULL
       ), noted AS (
         INSERT INTO awaited_path (request_id, path, ordinal) SELECT m.id, l.path, l.n FROM listed l, made m WHERE l.id IS NULL
       ), taken AS MATERIALIZED (
         SELECT count(id)::int AS files, coalesce(sum(size), 0) AS bytes, (count(*) - count(id))::int AS unknown FROM listed
       ), charged AS (
         UPDATE quota q SET open_requests = q.open_requests + 1, awaited_paths = q.awaited_paths + t.unknown, used = q.used + t.bytes
         FROM taken t WHERE q.id = ${quota.id} AND q.removed_at IS NULL AND (q.used + t.bytes <= q.size OR t.bytes = 0)
         RETURNING ${countColumns}
       )
       SELECT m.id, t.*, c.* FROM made m CROSS JOIN taken t LEFT JOIN charged c ON true`,
    ),
  );
  if (!row) throw new Error('nothing was stored');
  const { id, openRequests, awaitedPaths, standingPatterns } = row;
  const taken = { files: row.files, bytes: BigInt(row.bytes), unknown: row.unknown };
  checkWithin(ctx, request.limits, taken);
  if (openRequests === null) await chargeFor(ctx, tx, request, taken);
  else
    checkCounts(
      ctx,
      request.user,
      { openRequests, awaitedPaths, standingPatterns },
      countsOf(request.wish, taken.unknown),
    );
  return { id, files: taken.files };
}

/** Of what was not charged in the statement that stored it. */
async function chargeFor(
  ctx: Context,
  tx: Transaction,
  { wish, user, quota }: NewRequest,
  { bytes, unknown }: { bytes: bigint; unknown: number },
): Promise<void> {
  const added = countsOf(wish, unknown);
  checkCounts(ctx, user, await countIn(tx, quota, added), added);
  await charge(tx, quota, bytes);
}

/** Refuses early what is beyond by far, so that nobody has long lists stored again and again only to be taken back. */
async function checkUnknown(
  ctx: Context,
  tx: Transaction,
  { quota }: NewRequest,
  files: readonly string[],
): Promise<void> {
  const all = countsOf({ pattern: '' }, files.length);
  if (addCounts(quota, all).awaitedPaths <= ctx.config.limits.awaitedPaths) return;
  const [row] = await tx.query<{ known: number }>(
    sql`SELECT count(*)::int AS known FROM unnest(${files}::text[]) AS l (path) JOIN tape_file f ON f.path = l.path AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}`,
  );
  const added = countsOf({ pattern: '' }, files.length - (row?.known ?? 0));
  checkCounts(ctx, quota.user, addCounts(quota, added), added);
}

/**
 * Stores a request of the files whose path holds the pattern.
 * @returns its id, and how many files it holds
 * @throws InvalidInputError when they are beyond the limits, LimitReachedError, QuotaExceededError
 */
export async function storeMatching(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  pattern: string,
): Promise<Stored> {
  const which = sql`${holdsText(pattern)} AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}`;
  const [row] = await tx.query<{ id: number }>(insertRequest(ctx, request));
  const { id } = row as { id: number };
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM tape_file f WHERE ${which}`,
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(ctx, request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes); // before they are stored
  const [held] = await tx.query<{ bytes: string }>(
    sql`WITH held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size)
       SELECT ${id}, id, row_number() OVER (ORDER BY path), size FROM tape_file f WHERE ${which}
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM held`,
  );
  await chargeFor(ctx, tx, request, { bytes: BigInt(held?.bytes ?? 0), unknown: 0 });
  return { id, files: sum?.files ?? 0 };
}

/** Ends expired and cancelled requests, releases individual files, and refunds the quotas. */

import { InvalidInputError, quote } from '../../core/errors.js';
import { isBefore } from '../../core/time.js';
import { lockRecalls, lockRequests } from '../../db/locks.js';
import { plannedByKeys, plannedFreely } from '../../db/planning.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { recordProgress } from '../../events/event-writes.js';
import { isAllowedIn } from '../access/paths.js';
import { audited } from '../audit/audited.js';
import { isLive, isRequestedByKeys, isWaiting } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPath, checkPattern, withoutEmpty } from '../input.js';
import { type Charge, refund, unknownPathsOf } from '../quotas/charges.js';
import { transactionInTurn } from '../turn.js';
import { releaseUnrecorded } from './excluded-paths.js';
import { logStep, recountAndAdvance } from './progress.js';
import { describeForeign, isEnded, type LockedRequest, lockOwnRequest } from './rows.js';

/**
 * Ends a request immediately, releases its files and refunds its quota. Does nothing if the request has already ended.
 * @throws NotFoundError
 */
export async function cancelRequest(ctx: Context, id: number): Promise<number> {
  await audited(ctx, { operation: 'cancelRequest', kind: 'REQUEST', object: id }, (auditEntry) =>
    transaction(ctx.db.pool, 'cancelRequest', async (tx) => {
      await lockOwnRequest(ctx, tx, 'cancelRequest', id);
      if ((await endRequests(ctx, tx, sql`r.id = ${id}`, 'CANCELLED')) > 0) tx.send(auditEntry());
    }),
  );
  return id;
}

export async function expireRequests(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'expireRequests', async (tx) => {
    return await endRequests(ctx, tx, sql`r.retention <= ${ctx.now()}`, 'EXPIRED');
  });
}

/**
 * Ends requests whose retention date has passed. Runs in its own transaction, because recalls must be locked before
 * quotas and files. Does nothing while the database server's clock is implausible.
 */
export async function endOverdue(ctx: Context, quota: Sql): Promise<void> {
  if (!ctx.db.clock.isPlausible) return;
  const which = sql`${quota} AND r.retention <= ${ctx.now()}`;
  const { rowCount } = await ctx.db.pool.query(findOverdue(which));
  if (rowCount === 0) return;
  await transactionInTurn(ctx, { waitsFor: 'rows', name: 'endOverdue' }, (tx) =>
    endRequests(ctx, tx, which, 'EXPIRED'),
  );
}

export function isAnyOverdue(now: string): Sql {
  return sql`coalesce((SELECT min(r.retention) <= ${now}::timestamp FROM request r WHERE ${isLive}), false)`;
}

export async function hasOverdue(tx: Transaction, quotaId: number, now: string): Promise<boolean> {
  return (await tx.query(findOverdue(sql`r.quota_id = ${quotaId} AND r.retention <= ${now}`))).length > 0;
}

const findOverdue = (which: Sql) => sql`SELECT FROM request r WHERE ${isLive} AND ${which} LIMIT 1`;

/**
 * Ends the live requests (`r`) that meet the SQL condition `which`.
 * @returns the number of ended requests
 */
export async function endRequests(
  ctx: Context,
  tx: Transaction,
  which: Sql,
  state: 'EXPIRED' | 'CANCELLED',
): Promise<number> {
  const ids = await lockRequests(tx, sql`${isLive} AND (${which})`);
  if (ids.length === 0) return 0;
  const retention = state === 'CANCELLED' ? sql`least(retention, ${ctx.now()}::timestamp)` : sql`retention`;
  const ended = await tx.query<Charge>(
    sql`UPDATE request SET state = ${state}, is_released = false, retention = ${retention}
        WHERE id = ANY(${ids}::int[]) RETURNING quota_id AS "quotaId", bytes_total AS bytes,
          ${unknownPathsOf('request')} AS "unresolvedPaths"`,
  );
  refund(tx, ended);
  await dropRecalls(tx, sql`SELECT file_id FROM request_file WHERE request_id = ANY(${ids}::int[])`);
  recordProgress(ctx, tx, ids);
  logStep(ctx, tx, state === 'EXPIRED' ? 'expired' : 'cancelled', ids);
  return ids.length;
}

/**
 * Removes waiting recalls that no live request needs.
 * @param files a query that returns the released files' ids
 */
export async function dropRecalls(tx: Transaction, files: Sql): Promise<void> {
  const isOne = sql`c.file_id = ANY(ARRAY(${files}))`;
  tx.send(plannedByKeys());
  // delete the recalls in a separate statement after the lock, so that the statement sees request files that earlier
  // lock holders added
  await lockRecalls(tx, isOne);
  tx.send(sql`DELETE FROM recall c WHERE ${isWaiting} AND ${isOne} AND NOT ${isRequestedByKeys(sql`c.file_id`)}`);
  tx.send(plannedFreely());
}

interface ReleaseFilesInput {
  id: number;
  paths?: readonly string[] | null | undefined;
  /** Releases only files whose logical path contains this text. The text is case-sensitive, and has no wildcards. */
  match?: string | null | undefined;
}

/**
 * Releases a request's files, in any state, and its unresolved paths. If the caller gives a substring of the paths
 * (`match`), also releases matching files that were excluded without a recorded path. Released files are never added to
 * the request again, even if the request is revived. The release of an already released file has no effect.
 * @param how.mayHaveEnded whether to accept an ended request. The files of an ended request are already released
 * @throws NotFoundError; InvalidInputError for paths that the request never contained, or for an ended request. After
 * an error, the request is unchanged
 */
export async function releaseFiles(
  ctx: Context,
  input: ReleaseFilesInput,
  { mayHaveEnded = false }: { mayHaveEnded?: boolean } = {},
): Promise<number> {
  const { id, ...given } = input;
  await audited(ctx, { operation: 'releaseFiles', kind: 'REQUEST', object: id, given }, async (auditEntry) => {
    const choice = checkChoice(input);
    await transaction(ctx.db.pool, 'releaseFiles', async (tx) => {
      const request = await lockOwnRequest(ctx, tx, 'releaseFiles', id);
      const isOver = isEnded(request.state) || !isBefore(ctx.now(), request.retention);
      if (isOver && !mayHaveEnded) {
        throw new InvalidInputError(
          'requestId',
          `must identify a live request: request ${request.id} has ended, and its files are already released`,
        );
      }
      const releasedUnrecorded = 'match' in choice && !isOver ? await releaseUnrecorded(tx, request, choice.match) : 0;
      tx.send(plannedByKeys());
      await chooseFiles(tx, request, choice);
      if (isOver) return;
      const released = await releaseRequestFiles(tx, request.id);
      const dropped = await dropUnresolved(tx, request.id);
      if (released.files + dropped.paths + releasedUnrecorded === 0) return;
      refund(tx, [{ quotaId: request.quotaId, bytes: released.bytes, unresolvedPaths: dropped.unknown }]);
      await dropRecalls(tx, sql`SELECT file_id FROM chosen`);
      tx.send(sql`UPDATE request SET is_released = false WHERE id = ${request.id}`);
      tx.send(plannedByKeys());
      await recountAndAdvance(ctx, tx, [request.id]);
      tx.send(auditEntry());
    });
  });
  return id;
}

type Choice = { paths: readonly string[] } | { match: string };

function checkChoice(input: ReleaseFilesInput): Choice {
  const match = checkPattern('match', input.match ?? '');
  const paths = withoutEmpty(input.paths);
  if (match !== '' && paths.length > 0) {
    throw new InvalidInputError('match', 'and paths cannot be combined: give only one');
  }
  if (match === '' && paths.length === 0) throw new InvalidInputError('match', 'or paths must be given');
  for (const path of paths) checkPath('paths', path);
  return match === '' ? { paths } : { match };
}

/**
 * Creates the temporary table `chosen`, which contains the paths to release and their request files.
 * @throws InvalidInputError if a path is not in the request, or no path matches
 */
async function chooseFiles(tx: Transaction, { id: requestId }: LockedRequest, choice: Choice): Promise<void> {
  if ('match' in choice) {
    await tx.query(
      sql`CREATE TEMP TABLE chosen ON COMMIT DROP AS
       SELECT f.path, f.id AS file_id, false AS is_unresolved FROM request_file h CROSS JOIN LATERAL (
         SELECT f.id, f.path FROM tape_file f WHERE f.id = h.file_id AND strpos(f.path, ${choice.match}) > 0 OFFSET 0
       ) f WHERE h.request_id = ${requestId}
       UNION ALL
       SELECT path, NULL, true FROM unresolved_path WHERE request_id = ${requestId} AND strpos(path, ${choice.match}) > 0`,
    );
    if ((await tx.query(sql`SELECT FROM chosen LIMIT 1`)).length > 0) return;
    throw new InvalidInputError('match', `does not match any path of request ${requestId}: ${quote(choice.match)}`);
  }
  await tx.query(
    sql`CREATE TEMP TABLE chosen ON COMMIT DROP AS
     SELECT c.path, h.file_id, a.path IS NOT NULL AS is_unresolved FROM unnest(${choice.paths}::text[]) AS c (path)
       LEFT JOIN LATERAL (SELECT f.id FROM tape_file f WHERE f.path = c.path OFFSET 0) f ON true
       LEFT JOIN LATERAL (SELECT h.file_id FROM request_file h WHERE h.request_id = ${requestId} AND h.file_id = f.id OFFSET 0) h ON true
       LEFT JOIN LATERAL (SELECT a.path FROM unresolved_path a WHERE a.request_id + 0 = ${requestId} AND a.path = c.path OFFSET 0) a ON true`,
  );
  const [foreign] = await tx.query<{ path: string; count: number }>(
    sql`SELECT min(path COLLATE "C") AS path, count(*)::int AS count FROM chosen
     WHERE file_id IS NULL AND NOT is_unresolved HAVING count(*) > 0`,
  );
  if (!foreign) return;
  throw new InvalidInputError('paths', describeForeign(requestId, foreign.path, foreign.count));
}

async function releaseRequestFiles(tx: Transaction, requestId: number): Promise<{ files: number; bytes: bigint }> {
  const which = sql`h.request_id = ${requestId} AND h.file_id = ANY(ARRAY(SELECT file_id FROM chosen WHERE file_id IS NOT NULL))`;
  const [sum] = await tx.query<{ files: number; bytes: bigint }>(
    sql`WITH released AS (
       UPDATE request_file h SET state = 'RELEASED', error_class = NULL, error = NULL
       WHERE ${which} AND h.state <> 'RELEASED' RETURNING h.size
     ) SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM released`,
  );
  return sum ?? { files: 0, bytes: 0n };
}

/**
 * Deletes the chosen unresolved paths. Records a file at a deleted path as released, so that the request's pattern does
 * not add the file again.
 */
async function dropUnresolved(tx: Transaction, requestId: number): Promise<{ paths: number; unknown: number }> {
  // the term `+ 0` prevents PostgreSQL from reading all unresolved paths of the request
  const which = sql`a.request_id + 0 = ${requestId} AND a.path = ANY(ARRAY(SELECT path FROM chosen WHERE is_unresolved))`;
  const [row] = await tx.query<{ paths: number; unknown: number }>(
    sql`WITH dropped AS (
       DELETE FROM unresolved_path a WHERE ${which} RETURNING a.path, a.ordinal, a.reason
     ), added AS (
       INSERT INTO request_file (request_id, file_id, ordinal, size, state)
       SELECT ${requestId}, f.id, d.ordinal, f.size, 'RELEASED' FROM dropped d
         CROSS JOIN LATERAL (SELECT f.* FROM tape_file f WHERE f.path = d.path OFFSET 0) f JOIN request r ON r.id = ${requestId}
       WHERE ${isAllowedIn('REQUEST')}
     ) SELECT count(*)::int AS paths, count(*) FILTER (WHERE reason = 'UNKNOWN')::int AS unknown FROM dropped`,
  );
  return row ?? { paths: 0, unknown: 0 };
}

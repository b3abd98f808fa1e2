/**
 * Files are withdrawn: they are in no list any more, and nobody can ask for them. What was asked for before stays what it was as far as it
 * is on disk; who waits for one is told, unless it is being read just then. Nothing is forgotten, so that they can come back.
 *
 * A folder is withdrawn in steps, each a transaction that holds the catalogue's lock alone, so that no request is being made of its files
 * meanwhile. Who is killed in between has withdrawn a part of it, and the next call does the rest.
 */
import type { Context } from '../../context.js';
import { lockCatalogue, lockFiles, lockQuotas, lockRecalls, lockRequests } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { recordProgress } from '../../event-writes.js';
import { audited } from '../audit/audited.js';
import { isLive, isOffered, isRecalledNoMore, isWaiting, isWithdrawn, whyWithdrawn } from '../conditions.js';
import { checkPath, checkText } from '../input.js';
import { allow } from '../policy.js';
import { leaveWithdrawn } from '../requests/awaited.js';
import { markHolds } from '../requests/holds.js';
import { findJoining, storeJoining } from '../requests/joins.js';
import { takeTurn } from '../turn.js';

export interface ChosenPaths {
  /** Of a file; or of a folder, with a slash at its end, for all files below it. */
  path: string;
  /** Only says what would be done. */
  isDryRun?: boolean | null | undefined;
}

export interface WithdrawFilesInput extends ChosenPaths {
  /** For people; those who wait for one of the files are told. */
  why?: string | null | undefined;
}

/** What was done, or would be. */
export interface ChosenFiles {
  files: number;
  /** Of all of them together. */
  bytes: bigint;
  /** Live requests that hold one of them, or wait for one. */
  requests: number;
}

/** Files that one transaction withdraws, or brings back: nobody can make a request for so long. */
const STEP = 10_000;

/** @throws InvalidInputError; NotFoundError where there is none, or all are withdrawn already */
export async function withdrawFiles(ctx: Context, input: WithdrawFilesInput): Promise<ChosenFiles> {
  const { path, why, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'withdrawFiles', kind: 'CATALOGUE', object: path, given: { why, isDryRun } },
    async (note) => {
      allow(ctx, 'withdrawFiles');
      const which = chosenFiles(path);
      const reason = why ? checkReason(why) : null;
      // what a list has withdrawn comes back with a list, and what somebody withdraws does not
      const leaves = sql`${which} AND (${isOffered} OR f.is_unlisted)`;
      const chosen = await countChosen(ctx, leaves);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'withdrawn already' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: leaves, note: (step) => note({ given: { ...step, why } }) },
        (tx) => withdrawStep(ctx, tx, reason),
        (work) => transaction(ctx.db.pool, 'withdrawFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/**
 * Brings withdrawn files back, by hand or by a list withdrawn. Requests that wait for them take them in; those that were told that they are
 * withdrawn ask for them anew (`retryRequest`).
 * @throws InvalidInputError; NotFoundError where none is withdrawn
 */
export async function reinstateFiles(ctx: Context, input: ChosenPaths): Promise<ChosenFiles> {
  const { path, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'reinstateFiles', kind: 'CATALOGUE', object: path, given: { isDryRun } },
    async (note) => {
      allow(ctx, 'reinstateFiles');
      const which = chosenFiles(path);
      const chosen = await countChosen(ctx, sql`${which} AND ${isWithdrawn}`);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'not withdrawn' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: sql`${which} AND ${isWithdrawn}`, note: (step) => note({ given: { ...step } }) },
        (tx) => reinstateStep(ctx, tx),
        (work) => transaction(ctx.db.pool, 'reinstateFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/** It stays with the requests that are told of it, whoever is forgotten. @throws InvalidInputError */
function checkReason(why: string): string {
  if (/[^\s@]@[^\s@]/.test(why)) throw new InvalidInputError('why', `must not hold an address of mail: ${quote(why)}`);
  return checkText('why', why);
}

/** A condition on the file `f`. @param field whose path it is @throws InvalidInputError */
export function chosenFiles(path: string, field = 'path'): Sql {
  if (path === '/') throw new InvalidInputError(field, 'must be a file or a folder, and not all there is: "/"');
  if (!path.endsWith('/')) return sql`f.path = ${checkPath(field, path)}`;
  const folder = checkPath(field, path.slice(0, -1));
  // the character after the slash ends what begins with it
  return sql`f.path ~>=~ ${`${folder}/`} AND f.path ~<~ ${`${folder}0`}`;
}

async function countChosen(ctx: Context, which: Sql): Promise<ChosenFiles> {
  const { rows } = await ctx.db.pool.query<{ files: number; bytes: string; requests: number }>(
    sql`WITH leaving AS MATERIALIZED (SELECT f.id, f.path, f.size FROM tape_file f WHERE ${which})
        SELECT (SELECT count(*)::int FROM leaving) AS files, (SELECT coalesce(sum(size), 0) FROM leaving)::text AS bytes,
          (SELECT count(*)::int FROM request r WHERE r.id IN (${concernedBy}) AND ${isLive}) AS requests`,
  );
  const { files = 0, bytes = '0', requests = 0 } = rows[0] ?? {};
  return { files, bytes: BigInt(bytes), requests };
}

/** Ids of requests that hold or await a file of the table `leaving`. */
export const concernedBy: Sql = sql`SELECT h.request_id FROM leaving o JOIN live_hold h ON h.file_id = o.id
  UNION SELECT a.request_id FROM leaving o JOIN awaited_path a ON a.path = o.path`;

async function whyNone(
  ctx: Context,
  { path, which, done }: { path: string; which: Sql; done: string },
): Promise<Error> {
  const below = chosenFiles(path.endsWith('/') ? path : `${path}/`);
  const { rows } = await ctx.db.pool.query<{ isKnown: boolean; isFolder: boolean }>(
    sql`SELECT EXISTS (SELECT FROM tape_file f WHERE ${which}) AS "isKnown", EXISTS (SELECT FROM tape_file f WHERE ${below}) AS "isFolder"`,
  );
  const { isKnown, isFolder } = rows[0] ?? {};
  const what = path.endsWith('/') ? `the files below ${quote(path)}` : `file ${quote(path)}`;
  if (isKnown) return new NotFoundError(`${what}: ${done}`);
  const hint = isFolder ? `; it is a folder, and ${quote(`${path}/`)} are the files below it` : '';
  return new NotFoundError(`there is no ${path.endsWith('/') ? 'file below' : 'file'} ${quote(path)}${hint}`);
}

interface Steps {
  /** A condition on the file `f`, which is true of it no more afterwards. */
  which: Sql;
  /** Says of each what it has done. */
  note: (done: Pick<ChosenFiles, 'files' | 'bytes'>) => Sql;
}

/**
 * Each step has its files in the temporary table `leaving`, with the catalogue's lock held.
 * @param run makes the transaction of a step
 */
async function inSteps(
  ctx: Context,
  { which, note }: Steps,
  step: (tx: Transaction) => Promise<void>,
  run: (work: (tx: Transaction) => Promise<Step>) => Promise<Step>,
): Promise<Pick<ChosenFiles, 'files' | 'bytes'>> {
  const done = { files: 0, bytes: 0n };
  for (let after = ''; ; ) {
    const work = async (tx: Transaction) => {
      await lockCatalogue(tx, 'alone');
      await tx.query(
        sql`CREATE TEMP TABLE leaving ON COMMIT DROP AS
            SELECT f.id, f.path, f.size FROM tape_file f WHERE ${which} AND f.path ~>~ ${after} ORDER BY f.path USING ~<~ LIMIT ${STEP}`,
      );
      await tx.query(sql`ANALYZE leaving`);
      await step(tx);
      const [row] = await tx.query<{ files: number; bytes: string; last: string | null }>(
        sql`SELECT count(*)::int AS files, coalesce(sum(size), 0)::text AS bytes, (SELECT path FROM leaving ORDER BY path USING ~>~ LIMIT 1) AS last FROM leaving`,
      );
      const { files = 0, bytes = '0', last = null } = row ?? {};
      if (files > 0) await tx.query(note({ files, bytes: BigInt(bytes) }));
      return { files, bytes: BigInt(bytes), last };
    };
    const { files, bytes, last } = await takeTurn(ctx, 'catalogue', () => run(work));
    done.files += files;
    done.bytes += bytes;
    if (files < STEP || last === null) return done;
    after = last;
  }
}

interface Step {
  files: number;
  bytes: bigint;
  /** The last of their paths. */
  last: string | null;
}

async function withdrawStep(ctx: Context, tx: Transaction, why: string | null): Promise<void> {
  const requestIds = await lockRequests(tx, sql`${isLive} AND r.id IN (${concernedBy})`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  const rows = await tx.query<{ id: bigint }>(sql`SELECT id FROM leaving ORDER BY id`);
  await lockFiles(
    tx,
    rows.map(({ id }) => id),
  );
  await withdrawLeaving(ctx, tx, { requestIds, why, isUnlisted: false });
}

interface Leave {
  /** The live requests that hold or await one of the files; they are locked, and so are their quotas. */
  requestIds: readonly number[];
  why: string | null;
  isUnlisted: boolean;
}

/** Withdraws the files of the temporary table `leaving`, which are locked, as is the catalogue: nobody else begins to hold one. */
export async function withdrawLeaving(
  ctx: Context,
  tx: Transaction,
  { requestIds, why, isUnlisted }: Leave,
): Promise<void> {
  await lockRecalls(tx, sql`c.file_id IN (SELECT id FROM leaving)`);
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = ${ctx.now()}::timestamp, withdrawn_why = ${why}, is_unlisted = ${isUnlisted}
        FROM leaving l WHERE f.id = l.id`,
  );
  await tx.query(sql`DELETE FROM recall c USING leaving l WHERE c.file_id = l.id AND ${isWaiting}`);
  const told = await tx.query<{ fileId: bigint; error: string }>(
    sql`SELECT f.id AS "fileId", ${whyWithdrawn} AS error FROM leaving l JOIN tape_file f ON f.id = l.id
        WHERE ${isRecalledNoMore} AND EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id AND h.state = 'WAITING') ORDER BY f.id`,
  );
  for (let from = 0; from < told.length; from += STEP) {
    const some = told.slice(from, from + STEP);
    await markHolds(
      ctx,
      tx,
      some.map(({ fileId, error }) => ({ fileId, failure: { errorClass: 'POLICY', error } })),
    );
  }
  await leaveAwaited(tx, requestIds);
}

async function leaveAwaited(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const unknown = await leaveWithdrawn(tx, sql`r.id = ANY(${requestIds}::int[]) AND f.id IN (SELECT id FROM leaving)`);
  await tx.query(
    sql`UPDATE quota q SET awaited_paths = q.awaited_paths + u.paths
        FROM unnest(${unknown.map(({ quotaId }) => quotaId)}::int[], ${unknown.map(({ paths }) => paths)}::int[]) AS u (id, paths) WHERE q.id = u.id`,
  );
  recordProgress(tx, requestIds);
}

async function reinstateStep(ctx: Context, tx: Transaction): Promise<void> {
  await findJoining(ctx, tx, sql`SELECT id FROM leaving`, { isNew: true });
  await lockRequests(tx, sql`r.id IN (SELECT request_id FROM joining)`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM joining)`);
  await reinstateLeaving(tx);
  await storeJoining(ctx, tx);
}

async function reinstateLeaving(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ id: bigint }>(sql`SELECT id FROM leaving ORDER BY id`);
  await lockFiles(
    tx,
    rows.map(({ id }) => id),
  );
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = NULL, withdrawn_why = NULL, is_unlisted = false FROM leaving l WHERE f.id = l.id`,
  );
}

/**
 * Finds files that an operator selects by path, and changes the files in steps. Each step is a transaction that holds
 * the catalogue lock, so that no request for the step's files is created during the step. If the process dies, the next
 * call for the same path changes the remaining files.
 */

import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { lockCatalogue, lockFiles } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPath } from '../input.js';
import { withSlot } from '../turn.js';

export interface ChosenPaths {
  /** Path of a file, or a prefix with a trailing slash, which selects all files below the prefix. */
  path: string;
  isDryRun?: boolean | null | undefined;
}

export interface ChosenFiles {
  files: number;
  bytes: bigint;
  requests: number;
}

/**
 * Maximum number of files in a step. The number is small, because no request can be created while a step holds the
 * catalogue lock.
 */
export const stepSize = { files: 10_000 };

/**
 * Returns the SQL condition that is true if a path selects the file `f`.
 * @param field name of the input in error messages
 * @throws InvalidInputError
 */
export function chosenFiles(path: string, field = 'path'): Sql {
  if (path === '/') throw new InvalidInputError(field, 'must be a file or a directory, not "/"');
  if (!path.endsWith('/')) return sql`f.path = ${checkPath(field, path)}`;
  const prefix = checkPath(field, path.slice(0, -1));
  // in byte order, `0` is the next character after `/`, so all paths below the prefix sort before `<prefix>0`
  return sql`f.path ~>=~ ${`${prefix}/`} AND f.path ~<~ ${`${prefix}0`}`;
}

export async function countChosen(ctx: Context, which: Sql): Promise<ChosenFiles> {
  const rows = await ctx.db.rows<{ files: number; bytes: string; requests: number }>(
    sql`WITH leaving AS MATERIALIZED (SELECT f.id, f.path, f.size FROM tape_file f WHERE ${which})
        SELECT (SELECT count(*)::int FROM leaving) AS files, (SELECT coalesce(sum(size), 0) FROM leaving)::text AS bytes,
          (SELECT count(*)::int FROM request r WHERE r.id IN (${affectedRequests}) AND ${isLive}) AS requests`,
  );
  const { files = 0, bytes = '0', requests = 0 } = rows[0] ?? {};
  return { files, bytes: BigInt(bytes), requests };
}

/** Selects the ids of live requests that contain a file in the table `leaving`, or list its path as unresolved. */
export const affectedRequests: Sql = sql`SELECT h.request_id FROM leaving o JOIN live_request_file h ON h.file_id = o.id
  UNION SELECT a.request_id FROM leaving o JOIN unresolved_path a ON a.path = o.path`;

/**
 * Returns the error for an input path that selects no file to change.
 * @param done text for the error message if the path selects only files that do not need the change, such as `already
 * withdrawn`
 */
export async function whyNone(
  ctx: Context,
  { path, which, done }: { path: string; which: Sql; done: string },
): Promise<Error> {
  const below = chosenFiles(path.endsWith('/') ? path : `${path}/`);
  const rows = await ctx.db.rows<{ isKnown: boolean; isDirectory: boolean }>(
    sql`SELECT EXISTS (SELECT FROM tape_file f WHERE ${which}) AS "isKnown", EXISTS (SELECT FROM tape_file f WHERE ${below}) AS "isDirectory"`,
  );
  const { isKnown, isDirectory } = rows[0] ?? {};
  const what = path.endsWith('/') ? `the files below ${quote(path)}` : `file ${quote(path)}`;
  if (isKnown) return new NotFoundError(`${what}: ${done}`);
  const hint = isDirectory ? `; it is a directory: to select the files below it, use ${quote(`${path}/`)}` : '';
  return new NotFoundError(`there is no ${path.endsWith('/') ? 'file below' : 'file'} ${quote(path)}${hint}`);
}

interface Steps {
  /**
   * Condition that selects the files `f` to change. A step must change its files so that the condition no longer
   * selects them.
   */
  which: Sql;
  columns?: Sql;
  auditEntry: (done: Pick<ChosenFiles, 'files' | 'bytes'>) => Sql;
}

/**
 * Runs the function `step` for each page of files, in path order. Each step finds its page of files in the temporary
 * table `leaving`, and may add files to the table. Between two steps, a file might be renamed to a path before the
 * current page. Therefore, all pages are read again until a round over all pages changes no file.
 */
export async function inSteps(
  ctx: Context,
  { which, columns = empty, auditEntry }: Steps,
  step: (tx: Transaction, before: number) => Promise<void>,
  run: (work: (tx: Transaction) => Promise<Step>) => Promise<Step>,
): Promise<Pick<ChosenFiles, 'files' | 'bytes'>> {
  const done = { files: 0, bytes: 0n };
  for (let [after, doneBeforeRound] = ['', 0]; ; ) {
    const work = async (tx: Transaction) => {
      await lockCatalogue(tx, 'alone');
      await tx.query(
        sql`CREATE TEMP TABLE leaving ON COMMIT DROP AS
            SELECT f.id, f.path, f.size ${columns} FROM tape_file f WHERE ${which} AND f.path ~>~ ${after} ORDER BY f.path USING ~<~ LIMIT ${stepSize.files}`,
      );
      await tx.query(sql`ANALYZE leaving`);
      const [chosen] = await tx.query<{ count: number; last: string | null }>(
        sql`SELECT count(*)::int AS count, (SELECT path FROM leaving ORDER BY path USING ~>~ LIMIT 1) AS last FROM leaving`,
      );
      await step(tx, done.files);
      const [row] = await tx.query<{ files: number; bytes: string }>(
        sql`SELECT count(*)::int AS files, coalesce(sum(size), 0)::text AS bytes FROM leaving`,
      );
      const { files = 0, bytes = '0' } = row ?? {};
      if (files > 0) await tx.query(auditEntry({ files, bytes: BigInt(bytes) }));
      const isLast = (chosen?.count ?? 0) < stepSize.files;
      return { files, bytes: BigInt(bytes), last: isLast ? null : (chosen?.last ?? null) };
    };
    const { files, bytes, last } = await withSlot(ctx, 'catalogue', () => run(work));
    done.files += files;
    done.bytes += bytes;
    if (last === null && (after === '' || done.files === doneBeforeRound)) return done;
    if (last === null) doneBeforeRound = done.files;
    after = last ?? '';
  }
}

interface Step {
  files: number;
  bytes: bigint;
  last: string | null;
}

export async function lockLeaving(tx: Transaction): Promise<void> {
  await lockFiles(tx, sql`f.id IN (SELECT id FROM leaving)`);
}

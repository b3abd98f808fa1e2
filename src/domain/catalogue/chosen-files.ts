/**
 * Files that an operator chooses by a path, and changes of them in steps. Each step is a transaction with the catalogue
 * lock, so that no request of its files is created meanwhile. If the process dies, the next call continues.
 */

import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { lockCatalogue, lockFiles } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPath } from '../input.js';
import { takeTurn } from '../turn.js';

export interface ChosenPaths {
  /** Path of a file; with a trailing slash, all files below a directory. */
  path: string;
  isDryRun?: boolean | null | undefined;
}

export interface ChosenFiles {
  files: number;
  bytes: bigint;
  requests: number;
}

/** Files of one step, during which no request can be created. Tests use a smaller number. */
export const stepSize = { files: 10_000 };

/** Returns a condition on the file `f`. @param field named in errors @throws InvalidInputError */
export function chosenFiles(path: string, field = 'path'): Sql {
  if (path === '/') throw new InvalidInputError(field, 'must be a file or a folder, and not all there is: "/"');
  if (!path.endsWith('/')) return sql`f.path = ${checkPath(field, path)}`;
  const folder = checkPath(field, path.slice(0, -1));
  // `0` follows the slash, so it ends the range of paths
  return sql`f.path ~>=~ ${`${folder}/`} AND f.path ~<~ ${`${folder}0`}`;
}

export async function countChosen(ctx: Context, which: Sql): Promise<ChosenFiles> {
  const rows = await ctx.db.rows<{ files: number; bytes: string; requests: number }>(
    sql`WITH leaving AS MATERIALIZED (SELECT f.id, f.path, f.size FROM tape_file f WHERE ${which})
        SELECT (SELECT count(*)::int FROM leaving) AS files, (SELECT coalesce(sum(size), 0) FROM leaving)::text AS bytes,
          (SELECT count(*)::int FROM request r WHERE r.id IN (${concernedBy}) AND ${isLive}) AS requests`,
  );
  const { files = 0, bytes = '0', requests = 0 } = rows[0] ?? {};
  return { files, bytes: BigInt(bytes), requests };
}

export const concernedBy: Sql = sql`SELECT h.request_id FROM leaving o JOIN live_request_file h ON h.file_id = o.id
  UNION SELECT a.request_id FROM leaving o JOIN unresolved_path a ON a.path = o.path`;

/** Returns why no file is left to change. @param done the state of files that need no change */
export async function whyNone(
  ctx: Context,
  { path, which, done }: { path: string; which: Sql; done: string },
): Promise<Error> {
  const below = chosenFiles(path.endsWith('/') ? path : `${path}/`);
  const rows = await ctx.db.rows<{ isKnown: boolean; isFolder: boolean }>(
    sql`SELECT EXISTS (SELECT FROM tape_file f WHERE ${which}) AS "isKnown", EXISTS (SELECT FROM tape_file f WHERE ${below}) AS "isFolder"`,
  );
  const { isKnown, isFolder } = rows[0] ?? {};
  const what = path.endsWith('/') ? `the files below ${quote(path)}` : `file ${quote(path)}`;
  if (isKnown) return new NotFoundError(`${what}: ${done}`);
  const hint = isFolder ? `; it is a folder, and ${quote(`${path}/`)} are the files below it` : '';
  return new NotFoundError(`there is no ${path.endsWith('/') ? 'file below' : 'file'} ${quote(path)}${hint}`);
}

interface Steps {
  /** A condition on the file `f`, which is false after the step. */
  which: Sql;
  /** More columns of `leaving`, each after a comma. */
  columns?: Sql;
  note: (done: Pick<ChosenFiles, 'files' | 'bytes'>) => Sql;
}

/**
 * Runs steps in order of paths on the temporary table `leaving`, to which a step may add files. A file may be renamed
 * between steps to a path already passed, so the steps start over until one sees all remaining files, or a round
 * changes nothing.
 * @param step gets the number of files of earlier steps
 */
export async function inSteps(
  ctx: Context,
  { which, columns = empty, note }: Steps,
  step: (tx: Transaction, before: number) => Promise<void>,
  run: (work: (tx: Transaction) => Promise<Step>) => Promise<Step>,
): Promise<Pick<ChosenFiles, 'files' | 'bytes'>> {
  const done = { files: 0, bytes: 0n };
  for (let [after, doneBefore] = ['', 0]; ; ) {
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
      if (files > 0) await tx.query(note({ files, bytes: BigInt(bytes) }));
      const isLast = (chosen?.count ?? 0) < stepSize.files;
      return { files, bytes: BigInt(bytes), last: isLast ? null : (chosen?.last ?? null) };
    };
    const { files, bytes, last } = await takeTurn(ctx, 'catalogue', () => run(work));
    done.files += files;
    done.bytes += bytes;
    if (last === null && (after === '' || done.files === doneBefore)) return done;
    if (last === null) doneBefore = done.files;
    after = last ?? '';
  }
}

interface Step {
  files: number;
  bytes: bigint;
  /** The last path of the step; null if there are no more. */
  last: string | null;
}

export async function lockLeaving(tx: Transaction): Promise<void> {
  await lockFiles(tx, sql`f.id IN (SELECT id FROM leaving)`);
}

/**
 * A file whose path is a folder of another file's path could not be restored beside it: such paths are refused where they enter.
 * What is in the catalogue already is left alone.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';

/** Two paths of which one is a folder of the other. */
interface Clash {
  outer: string;
  inner: string;
}

/** Of a path: what is before its last slash; empty at the top. */
const parentOf = (path: Sql): Sql => sql`left(${path}, -strpos(reverse(${path}), '/'))`;

/** The files below the path: `~>=~` compares bytes, and `0` is the next one after the slash. */
const liesBelow = (inner: Sql, outer: Sql): Sql =>
  sql`${inner} ~>=~ (${outer} || '/') AND ${inner} ~<~ (${outer} || '0')`;

/**
 * Clashes of paths with the catalogue, at most so many of each of the two kinds. Each folder is looked for once, however many files
 * it has.
 * @param paths a query that gives them as `path`; each is looked up in the index by bytes, whose order is asked for, since a planner
 *   that expects to find much would rather read the table up to the first one
 */
const clashesOf = (paths: Sql, limit: number): Sql => sql`
  WITH RECURSIVE fresh_path AS MATERIALIZED (${paths}), folder (path) AS (
    SELECT ${parentOf(sql`p.path`)} FROM fresh_path p
    UNION SELECT ${parentOf(sql`d.path`)} FROM folder d WHERE d.path <> ''
  ), outer_file AS (
    SELECT f.path FROM folder d JOIN tape_file f ON f.path = d.path LIMIT ${limit}
  ), inside AS (
    SELECT o.path AS "outer", p.path AS "inner" FROM outer_file o CROSS JOIN LATERAL (
      SELECT p.path FROM fresh_path p WHERE ${liesBelow(sql`p.path`, sql`o.path`)} ORDER BY p.path LIMIT 1) p
  ), around AS (
    SELECT p.path AS "outer", f.path AS "inner" FROM fresh_path p CROSS JOIN LATERAL (
      SELECT f.path FROM tape_file f WHERE ${liesBelow(sql`f.path`, sql`p.path`)} ORDER BY f.path USING ~<~ LIMIT 1) f
    LIMIT ${limit}
  )
  SELECT * FROM inside UNION SELECT a.* FROM around a WHERE NOT EXISTS (SELECT FROM inside s WHERE s."outer" = a."outer")`;

/**
 * New files were inserted before, and the catalogue is locked: of two imports that race, the later one sees what the other has added.
 * @throws ImportError
 */
export async function refuseFolders(tx: Transaction): Promise<void> {
  const fresh = sql`SELECT i.path FROM incoming i WHERE NOT EXISTS (SELECT FROM old o WHERE o.line = i.line)`;
  const rows = await tx.query<Clash & { outerLine: bigint | null; innerLine: bigint | null }>(
    sql`SELECT c.*, o.line AS "outerLine", i.line AS "innerLine"
        FROM (${clashesOf(fresh, MAX_FAULTS + 1)}) c
          LEFT JOIN incoming o ON o.path = c."outer" LEFT JOIN incoming i ON i.path = c."inner"
        ORDER BY coalesce(i.line, o.line) LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(({ outerLine, innerLine, ...clash }) => {
      const lines = [outerLine, innerLine].filter((line) => line !== null).sort((a, b) => Number(a - b));
      return `line${lines.length > 1 ? 's' : ''} ${lines.join(' and ')}: ${describeClash(clash)}`;
    }),
  );
}

/** Of new paths, each a row of the query, one that cannot be; the catalogue is locked. @returns what is wrong with it */
export async function findClash(tx: Transaction, paths: Sql): Promise<string | undefined> {
  const [clash] = await tx.query<Clash>(clashesOf(paths, 1));
  return clash && describeClash(clash);
}

function describeClash({ outer, inner }: Clash): string {
  return `${quote(outer)} cannot be a file and a folder, of ${quote(inner)}`;
}

/** Why paths could not be imported now, by the path; those that could are not in it. Another import may come in between. */
export async function findFolderClashes(ctx: Context, paths: readonly string[]): Promise<Map<string, string>> {
  const given = sql`SELECT g.path FROM unnest(${paths}::text[]) AS g (path)
    WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = g.path)`;
  const { rows } = await ctx.db.pool.query<Clash>(clashesOf(given, paths.length));
  const problems = new Map<string, string>();
  for (const path of paths) {
    const clash = rows.find(({ outer }) => outer === path || path.startsWith(`${outer}/`));
    if (clash) problems.set(path, describeClash(clash.outer === path ? clash : { ...clash, inner: path }));
  }
  return problems;
}

/**
 * Checks that reject a whole import. The temporary table `incoming` contains the import's rows. The table `old`
 * contains the ids and import lines of files that the catalogue already contains.
 */
import type pg from 'pg';
import { quote } from '../../core/errors.js';
import { lockLibrariesKept } from '../../db/locks.js';
import { plannedByKeys, plannedFreely } from '../../db/planning.js';
import { type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import type { KnownFile } from '../catalogue/tape-files.js';
import { describeRetired } from '../catalogue/volumes.js';
import { isByPath } from '../conditions.js';
import type { Context } from '../context.js';
import { FIRST_LIBRARY } from '../libraries/libraries.js';
import type { Reject } from './import-incoming.js';
import { ImportError, MAX_FAULTS } from './import-lines.js';

/**
 * Rejects the import if a statement returns any row. The statement must not contain a LIMIT clause.
 * @throws ImportError
 */
export async function refuseRows<Row extends object>(
  tx: Transaction,
  statement: Sql,
  describe: (row: Row) => string,
  ofNames = false,
): Promise<void> {
  const rows = await tx.query<Row>(sql`${statement} LIMIT ${MAX_FAULTS + 1}`);
  if (rows.length > 0) throw new ImportError(rows.map(describe), { hasNames: ofNames });
}

export async function refuseDuplicates(tx: Transaction): Promise<void> {
  await refuseRows<{ path: string; lines: string[] }>(
    tx,
    sql`SELECT path, (array_agg(line::text ORDER BY line))[1:3] AS lines FROM incoming
        GROUP BY path HAVING count(*) > 1 ORDER BY min(line)`,
    ({ path, lines }) => `lines ${lines.join(' and ')} contain the same path: ${JSON.stringify(path)}`,
  );
}

export type ExpectedFile = Pick<KnownFile, 'id' | 'path' | 'tapePosition'>;

/**
 * Rejects the import if an expected file was renamed, withdrawn or moved after the caller read it. The caller must have
 * locked the catalogue.
 */
export async function refuseChanged(tx: Transaction, expected: readonly ExpectedFile[]): Promise<void> {
  if (expected.length === 0) return;
  const [ids, paths] = [expected.map(({ id }) => id), expected.map(({ path }) => path)];
  const volumes = expected.map(({ tapePosition }) => tapePosition?.volume ?? null);
  const positions = expected.map(({ tapePosition }) => tapePosition?.position ?? null);
  await refuseRows<{ path: string }>(
    tx,
    sql`SELECT s.path FROM unnest(${ids}::bigint[], ${paths}::text[], ${volumes}::text[], ${positions}::bigint[]) AS s (id, path, volume, position)
        WHERE NOT EXISTS (
          SELECT FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id WHERE f.id = s.id AND f.path = s.path AND f.withdrawn_at IS NULL
            AND (s.volume, s.position) IS NOT DISTINCT FROM (CASE WHEN f.position IS NOT NULL THEN v.name END, f.position))
        ORDER BY s.path`,
    ({ path }) => `${quote(path)} was renamed, withdrawn or moved during the import`,
  );
}

/**
 * Adds each unknown volume to the library that the volume's row names. If the row names no library, adds the volume to
 * the first library.
 * @throws ImportError
 */
export async function addVolumes(tx: Transaction): Promise<void> {
  await lockLibrariesKept(tx);
  await refuseRows<{ line: bigint; library: string; names: string }>(
    tx,
    sql`SELECT min(i.line) AS line, i.library, (SELECT string_agg(b.name, ', ' ORDER BY b.id) FROM library b) AS names FROM incoming i
        WHERE i.library IS NOT NULL AND NOT EXISTS (SELECT FROM library b WHERE b.name = i.library) GROUP BY i.library ORDER BY 1`,
    ({ line, library, names }) => `line ${line}: there is no library ${quote(library)}; the libraries are ${names}`,
  );
  await tx.query(
    sql`INSERT INTO volume (name, library_id)
        SELECT o.volume, coalesce(max(b.id) FILTER (WHERE o.is_first), CASE WHEN NOT bool_or(o.is_first) THEN max(b.id) END, ${FIRST_LIBRARY})
        FROM incoming i LEFT JOIN library b ON b.name = i.library
          CROSS JOIN LATERAL (VALUES (i.volume, true), (i.copy_volume, false)) AS o (volume, is_first)
        WHERE o.volume IS NOT NULL GROUP BY o.volume ORDER BY o.volume
        ON CONFLICT (name) DO NOTHING`,
  );
  await refuseRows<{ line: bigint; volume: string; known: string; library: string }>(
    tx,
    sql`SELECT min(i.line) AS line, i.volume, b.name AS known, i.library
        FROM incoming i JOIN volume v ON v.name = i.volume JOIN library b ON b.id = v.library_id
        WHERE i.library <> b.name GROUP BY i.volume, known, i.library ORDER BY 1`,
    ({ line, volume, known, library }) =>
      `line ${line}: volume ${quote(volume)} is in library ${quote(known)}, not in ${quote(library)}`,
  );
}

export async function refuseRetired(tx: Transaction): Promise<void> {
  await refuseRows<{ line: bigint; volume: string; why: string | null }>(
    tx,
    sql`SELECT min(i.line) AS line, v.name AS volume, v.retired_reason AS why
        FROM incoming i CROSS JOIN LATERAL (VALUES (i.volume), (i.copy_volume)) AS o (volume) JOIN volume v ON v.name = o.volume
        WHERE v.retired_at IS NOT NULL GROUP BY v.id ORDER BY 1, 2`,
    ({ line, volume, why }) => `line ${line}: ${describeRetired(volume, why)}`,
  );
}

/**
 * Rejects rows with the old path of a file that was renamed only in the catalogue, and not in the library. Such a row
 * would add a second path for the renamed file, or replace the file's bytes. The caller must have locked the catalogue.
 */
export async function refuseTapeNames(tx: Transaction): Promise<void> {
  // make PostgreSQL use an index, because it might overestimate the number of renamed files and scan the table
  tx.send(plannedByKeys());
  const [renamed] = await tx.query(sql`SELECT FROM tape_file f WHERE f.tape_path IS NOT NULL LIMIT 1`);
  tx.send(plannedFreely());
  if (!renamed) return;
  await refuseRows<{ line: bigint; path: string; name: string }>(
    tx,
    sql`SELECT i.line, o.path, f.path AS name FROM incoming i JOIN tape_file o ON o.tape_path = i.path JOIN tape_file f ON f.path = i.path
          LEFT JOIN old q ON q.line = i.line
        WHERE EXISTS (SELECT FROM volume v WHERE v.name IN (i.volume, i.copy_volume) AND ${isByPath(sql`v.id`)}
            AND v.library_id IN (SELECT w.library_id FROM volume w WHERE w.id IN (o.volume_id, o.copy_volume_id))
            AND (q.line IS NULL OR (v.id IN (f.volume_id, f.copy_volume_id)) IS NOT TRUE OR i.size <> f.size
              OR i.checksum <> f.checksum))
        ORDER BY i.line`,
    ({ line, path, name }) =>
      `line ${line}: ${quote(name)} is the library's name for ${quote(path)}, which was renamed only in Tapegate; if the file was also renamed in the library, use \`rename --in-library\``,
  );
}

/** Two file paths that cannot both exist on a disk, because `outer` would also be a directory that contains `inner`. */
interface Clash {
  outer: string;
  inner: string;
}

const parentOf = (path: Sql): Sql => sql`left(${path}, -strpos(reverse(${path}), '/'))`;

/**
 * Returns the SQL condition that is true if the path `inner` is below `outer`. The operators compare bytes. Because `0`
 * follows `/` in ASCII, all paths below `outer` sort before `<outer>0`.
 */
const liesBelow = (inner: Sql, outer: Sql): Sql =>
  sql`${inner} ~>=~ (${outer} || '/') AND ${inner} ~<~ (${outer} || '0')`;

/**
 * Selects those `paths` that clash with the catalogue. Such a path is below the path of a catalogue file, or is a
 * directory that contains a catalogue file. The lateral queries have an ORDER BY clause, so that PostgreSQL uses an
 * index and does not scan the table.
 */
const clashesOf = (paths: Sql, limit: number): Sql => sql`
  WITH RECURSIVE fresh_path AS MATERIALIZED (${paths}), directory (path) AS (
    SELECT ${parentOf(sql`p.path`)} FROM fresh_path p
    UNION SELECT ${parentOf(sql`d.path`)} FROM directory d WHERE d.path <> ''
  ), outer_file AS (
    SELECT f.path FROM directory d JOIN tape_file f ON f.path = d.path LIMIT ${limit}
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
 * Rejects new files whose paths clash with other files. The caller must have locked the catalogue, so that this import
 * sees the files that concurrent imports have added.
 */
export async function refuseDirectories(tx: Transaction, canSkip: boolean): Promise<void> {
  const fresh = sql`SELECT i.path FROM incoming i WHERE NOT EXISTS (SELECT FROM old o WHERE o.line = i.line)`;
  await refuseRows<Clash & { outerLine: bigint | null; innerLine: bigint | null }>(
    tx,
    sql`SELECT c.*, o.line AS "outerLine", i.line AS "innerLine"
        FROM (${clashesOf(fresh, MAX_FAULTS + 1)}) c
          LEFT JOIN incoming o ON o.path = c."outer" LEFT JOIN incoming i ON i.path = c."inner"
        ORDER BY coalesce(i.line, o.line)`,
    ({ outerLine, innerLine, ...clash }) => {
      const lines = [outerLine, innerLine].filter((line) => line !== null).sort((a, b) => Number(a - b));
      return `line${lines.length > 1 ? 's' : ''} ${lines.join(' and ')}: ${describeClash(clash)}`;
    },
    canSkip,
  );
}

export interface ClashingRow extends Reject {
  path: string;
}

export const MAX_REJECTS = 100_000;

/**
 * Deletes rows from the table `incoming` if their path clashes with another path in the table or in the catalogue. Two
 * paths clash if one path would be both a file and a directory. Keeps rows of files that the catalogue already
 * contains. If two new files clash, deletes only the row of the file whose path would also be a directory.
 */
export async function dropClashes(client: pg.PoolClient): Promise<ClashingRow[]> {
  await client.query(sql`CREATE INDEX ON incoming (path text_pattern_ops)`);
  const { rows } = await client.query<{ line: string; path: string; outer: string; inner: string }>(
    sql`WITH RECURSIVE fresh_path AS MATERIALIZED (
          SELECT i.line, i.path FROM incoming i WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = i.path)
        ), directory (path) AS (
          SELECT ${parentOf(sql`p.path`)} FROM fresh_path p
          UNION SELECT ${parentOf(sql`d.path`)} FROM directory d WHERE d.path <> ''
        ), clash AS (
          SELECT p.line, f.path AS "outer", p.path AS "inner" FROM directory d JOIN tape_file f ON f.path = d.path
            JOIN fresh_path p ON ${liesBelow(sql`p.path`, sql`f.path`)}
          UNION ALL SELECT p.line, p.path, f.path FROM fresh_path p CROSS JOIN LATERAL (
            SELECT f.path FROM tape_file f WHERE ${liesBelow(sql`f.path`, sql`p.path`)} ORDER BY f.path USING ~<~ LIMIT 1) f
          UNION ALL SELECT p.line, p.path, i.path FROM fresh_path p CROSS JOIN LATERAL (
            SELECT i.path FROM incoming i WHERE ${liesBelow(sql`i.path`, sql`p.path`)} ORDER BY i.path USING ~<~ LIMIT 1) i
        ), one AS (SELECT DISTINCT ON (c.line) c.* FROM clash c ORDER BY c.line)
        DELETE FROM incoming i USING one c WHERE i.line = c.line RETURNING c.line, i.path, c."outer", c."inner"`,
  );
  const rejects = rows.map(({ line, path, ...clash }) => ({ line: Number(line), path, problem: describeClash(clash) }));
  return rejects.sort((a, b) => a.line - b.line);
}

/**
 * Returns a description of one clash between the paths and the catalogue; undefined if no path clashes. The caller must
 * have locked the catalogue.
 */
export async function findClash(tx: Transaction, paths: Sql): Promise<string | undefined> {
  const [clash] = await tx.query<Clash>(clashesOf(paths, 1));
  return clash && describeClash(clash);
}

function describeClash({ outer, inner }: Clash): string {
  return `${quote(outer)} cannot be a file and also the directory of ${quote(inner)}`;
}

/** Returns a description of each clash between the paths and the catalogue, by path. */
export async function findDirectoryClashes(ctx: Context, paths: readonly string[]): Promise<Map<string, string>> {
  const given = sql`SELECT g.path FROM unnest(${paths}::text[]) AS g (path)
    WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = g.path)`;
  const rows = await ctx.db.rows<Clash>(clashesOf(given, paths.length));
  const problems = new Map<string, string>();
  for (const path of paths) {
    const clash = rows.find(({ outer }) => outer === path || path.startsWith(`${outer}/`));
    if (clash) problems.set(path, describeClash(clash.outer === path ? clash : { ...clash, inner: path }));
  }
  return problems;
}

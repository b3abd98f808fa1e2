/**
 * Adopts files that the catalogue does not contain. For files that the catalogue already contains, reports differences.
 */
import type { PoolClient } from 'pg';
import type { Stage } from '../core/stages.js';
import { sql } from '../db/sql.js';
import type { Context } from '../domain/context.js';
import { registerWithoutClashes } from '../domain/import/import.js';
import { RowError } from '../domain/import/import-lines.js';
import { type CatalogueRow, checkRow } from '../domain/import/import-rows.js';
import { type Adopting, readPages } from './report.js';
import { readSourceTime } from './tables.js';

/**
 * Maps the source's stage numbers to Tapegate's stage letters. A file with a restored copy gets the stage ONTAPE until
 * the copy is adopted.
 */
const stageLettersThere: Record<string, 'U' | 'T' | 'D' | undefined> = { 0: 'U', 1: 'T', 2: 'T', 3: 'D', 5: 'T' };
const namesThere: Record<string, string> = {
  ...{ 0: 'UNVERIFIED', 1: 'ON TAPE', 2: 'restoring', 3: 'on disk', 4: 'DELETED', 5: 'RESTORED' },
};

/**
 * Copies the source's files to the temporary table `source_chosen`. If several files have the same path, chooses one: a
 * restored file if possible, otherwise a file on disk.
 */
export async function chooseSourceFiles(client: PoolClient, { report }: Adopting): Promise<void> {
  await client.query(
    sql`CREATE TEMPORARY TABLE source_chosen AS
        SELECT DISTINCT ON (s.logical_path) s.id, s.logical_path AS path, s.size, s.stage, s.restore_disk_id, s.verified,
          count(*) OVER (PARTITION BY s.logical_path) AS times
        FROM source_tapefile s ORDER BY s.logical_path, array_position('{5,3,1,2,0,4}'::text[], s.stage), s.id`,
  );
  await client.query(sql`CREATE INDEX ON source_chosen (path)`);
  await client.query(sql`ANALYZE source_chosen`);
  const { rows } = await client.query<{ path: string; times: bigint; stage: string; size: string }>(
    sql`SELECT c.path, c.times, c.stage, c.size FROM source_chosen c WHERE c.times > 1 ORDER BY c.path`,
  );
  for (const { path, times, stage, size } of rows) {
    const here = `only one of these files: ${describeThere({ stage, size })}`;
    report({ kind: 'file-twice', object: path, there: `${times} files with this path`, here });
  }
}

interface ChosenFile {
  path: string;
  size: string;
  stage: string;
  verified: string | null;
  hereSize: bigint | null;
  hereStage: Stage | null;
}

const PAGE = 5000;

export async function adoptFiles(ctx: Context, client: PoolClient, adopting: Adopting): Promise<void> {
  const { isTrial, report, counts } = adopting;
  const clashing = await registerWithoutClashes(ctx, readNewRows(client, adopting), { isDryRun: isTrial });
  if (clashing.length === 0) return;
  counts.files -= clashing.length;
  const { rows } = await client.query<{ path: string; size: string; stage: string }>(
    sql`DELETE FROM source_chosen c WHERE c.path = ANY(${clashing.map(({ path }) => path)}::text[])
        RETURNING c.path, c.size, c.stage`,
  );
  const problems = new Map(clashing.map(({ path, problem }) => [path, problem]));
  for (const { path, ...file } of rows.sort((a, b) => (a.path < b.path ? -1 : 1))) {
    report({ kind: 'file-refused', object: path, there: describeThere(file), here: `nothing: ${problems.get(path)}` });
  }
}

const describeThere = ({ stage, size }: { stage: string; size: string }): string =>
  `${namesThere[stage] ?? `stage ${stage}`}, ${size} bytes`;

async function* readNewRows(client: PoolClient, adopting: Adopting): AsyncGenerator<CatalogueRow> {
  let line = 0;
  for await (const file of readOthers(client)) {
    const row = toCatalogueRow(++line, file, adopting);
    if (!row) continue;
    adopting.counts.files++;
    yield row;
  }
}

async function* readOthers(client: PoolClient): AsyncGenerator<ChosenFile> {
  const pages = readPages<ChosenFile>(PAGE, async (last) => {
    const { rows } = await client.query<ChosenFile>(
      sql`SELECT c.path, c.size, c.stage, c.verified, f.size AS "hereSize", f.stage AS "hereStage"
          FROM source_chosen c LEFT JOIN tape_file f ON f.path = c.path
          WHERE c.path > ${last?.path ?? ''} AND (f.id IS NULL OR f.size::text <> c.size
            OR f.stage IN ('UNVERIFIED', 'ONDISK') AND f.changed_disk_id IS NULL AND c.stage IN ('1', '2', '5')
            OR f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL AND c.stage = '3')
          ORDER BY c.path LIMIT ${PAGE}`,
    );
    return rows;
  });
  for await (const page of pages) yield* page;
}

function toCatalogueRow(line: number, file: ChosenFile, { report }: Adopting): CatalogueRow | undefined {
  const { path, size, stage, hereSize, hereStage } = file;
  const there = describeThere(file);
  const letter = stageLettersThere[stage];
  if (letter === undefined) {
    if (hereSize === null) report({ kind: 'file-deleted', object: path, there, here: 'nothing' });
    return undefined;
  }
  if (hereSize !== null && String(hereSize) !== size) {
    report({ kind: 'file-size', object: path, there, here: `${hereStage}, ${hereSize} bytes, as in the catalogue` });
    return undefined;
  }
  const verified = readSourceTime(file.verified);
  const row = checkRow(line, { path, size, stage: letter, ...(verified ? { verified } : {}) });
  if (!(row instanceof RowError)) return row;
  report({ kind: 'file-refused', object: path, there, here: `nothing: ${row.problem}` });
  return undefined;
}

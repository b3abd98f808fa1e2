/** Loads an import's rows into the temporary table `incoming`. */
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { toUnavailable } from '../../db/line.js';
import { sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { batchRows, type CatalogueRow, type RowSource } from './import-rows.js';

export interface ImportResult {
  added: number;
  directories?: number;
  updated: number;
  /** Number of new files that become UNVERIFIED, because their rows do not have a stage. */
  addedWithoutStage: number;
  /**
   * Number of new files that become ONTAPE, although their rows have the stage RESTORING or RESTORED. Tapegate does not
   * have copies of these files on disk.
   */
  addedWithoutCopy: number;
  /** Number of reinstated files. An earlier import had withdrawn these files because its list omitted them. */
  reinstated?: number;
  /** Number of imported files that stay withdrawn, because an operator (and not an import) withdrew them. */
  staysWithdrawn?: number;
  /**
   * Number of files that the import withdraws because a complete list omits them; absent if the list is not complete.
   * `known` is the number of catalogue files below the list's prefix.
   */
  withdrawn?: number;
  known?: number;
  rejects?: Reject[];
}

export interface Reject {
  line: number;
  problem: string;
}

/**
 * Optional columns, in their order in the table `incoming`. `known` is the SQL expression for a column's value in the
 * catalogue.
 */
export const incomingColumns = [
  { name: 'verified', column: 'verified', known: 'f.verified' },
  { name: 'spotName', column: 'spot_name', known: 'f.spot_name' },
  { name: 'volume', column: 'volume', known: 'v.name' },
  { name: 'position', column: '"position"', known: 'f."position"' },
  { name: 'checksum', column: 'checksum', known: 'f.checksum' },
  { name: 'copyVolume', column: 'copy_volume', known: '(SELECT o.name FROM volume o WHERE o.id = f.copy_volume_id)' },
  { name: 'copyPosition', column: 'copy_position', known: 'f.copy_position' },
  { name: 'mode', column: 'mode', known: 'f.mode' },
  { name: 'mtime', column: 'mtime', known: 'f.mtime' },
  { name: 'uid', column: 'uid', known: 'f.uid' },
  { name: 'gid', column: 'gid', known: 'f.gid' },
] as const;

const copyColumns = `line, path, size, stage, ${incomingColumns.map(({ column }) => column).join(', ')}, omitted, library, is_namesake, adler32`;

/**
 * Creates and fills three temporary tables, which PostgreSQL drops when the connection closes:
 * - `incoming`: the rows of files
 * - `namesake`: the paths of files that must not be withdrawn, even if a complete list omits them
 * - `incoming_directory`: the rows of directories, if the import contains directories
 * @returns whether the import contains directories
 * @throws ImportError
 */
export async function loadIncoming(client: pg.PoolClient, rows: RowSource): Promise<boolean> {
  let hasDirectories = false;
  const toLine = (row: CatalogueRow) => {
    if (row.path.endsWith('/')) hasDirectories = true;
    return copyLine(row);
  };
  await client.query(
    sql`CREATE TEMP TABLE incoming (line bigint, path text, size bigint, stage "Stage", verified timestamp(6),
          spot_name text, volume text, "position" bigint, checksum text, copy_volume text, copy_position bigint, mode int, mtime timestamp(6), uid bigint, gid bigint, omitted text[], library text,
          checksum_taken boolean NOT NULL DEFAULT false, is_copy_known boolean NOT NULL DEFAULT false, is_namesake boolean NOT NULL, adler32 text)`,
  );
  let failure: unknown;
  async function* readTexts() {
    try {
      yield* batchRows(rows, toLine);
    } catch (error) {
      failure = error;
      throw error;
    }
  }
  await pipeline(readTexts, client.query(copyFrom(`COPY incoming (${copyColumns}) FROM STDIN`))).catch((error) => {
    // if the error comes from the import's input, do not report it as a database error
    throw error === failure ? error : toUnavailable(error);
  });
  if (hasDirectories) await client.query(splitDirectories);
  await client.query(
    sql`CREATE TEMP TABLE namesake (path text);
        WITH removed AS (DELETE FROM incoming WHERE is_namesake RETURNING path) INSERT INTO namesake SELECT DISTINCT path FROM removed;
        ANALYZE incoming; ANALYZE namesake`,
  );
  return hasDirectories;
}

/**
 * Moves the rows of directories from `incoming` to their own table. If a directory has several rows, keeps only the
 * last row.
 */
const splitDirectories = sql`CREATE TEMP TABLE incoming_directory AS
    SELECT DISTINCT ON (path) rtrim(path, '/') AS path, mode, gid FROM incoming WHERE path LIKE '%/' ORDER BY path, line DESC;
  DELETE FROM incoming WHERE path LIKE '%/'`;

export async function applyDirectories(tx: Transaction): Promise<number> {
  const rows = await tx.query<{ path: string }>(
    sql`INSERT INTO directory (path, mode, gid) SELECT path, mode & 511, gid FROM incoming_directory ORDER BY path
        ON CONFLICT (path) DO UPDATE SET mode = excluded.mode, gid = excluded.gid RETURNING path`,
  );
  return rows.length;
}

function copyLine(row: CatalogueRow): string {
  const values = [row.line, row.path, row.size, row.stage, ...incomingColumns.map(({ name }) => row[name] ?? null)];
  const omitted = incomingColumns.filter(({ name }) => row[name] === undefined).map(({ name }) => name);
  const others = [`{${omitted.join(',')}}`, row.library ?? null, row.isNamesake ?? false, row.adler32 ?? null];
  return `${[...values, ...others].map((value) => (value === null ? '\\N' : escapeCopy(String(value)))).join('\t')}\n`;
}

const COPY_ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

function escapeCopy(text: string): string {
  return text.replace(/[\\\t\n\r]/g, (character) => COPY_ESCAPES[character] ?? character);
}

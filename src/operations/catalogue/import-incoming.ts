/** The rows of an import on their way into a temporary table, `incoming`, and what is wrong with them. */
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { toUnavailable } from '../../database/line.js';
import { sql } from '../../database/sql.js';
import { ImportError, MAX_FAULTS, type RowSource } from './import-faults.js';
import { RowError } from './import-lines.js';
import type { TellImport } from './import-progress.js';
import type { CatalogueRow } from './import-rows.js';

export interface ImportResult {
  added: number;
  updated: number;
  /** Rows without a stage: new files, which are UNVERIFIED and so at their primary place, and known ones, which stay as they were. */
  addedWithoutStage: number;
  knownWithoutStage: number;
  /** New files whose rows say A or R: Tapegate has restored nothing of them, and they are ONTAPE. */
  addedWithoutCopy: number;
  /** Files that are back, since an earlier complete list did not have them and this one does; left out where there are none. */
  reinstated?: number;
  /** Files of rows that were withdrawn by hand, and stay as they are; left out where there are none. */
  staysWithdrawn?: number;
  /** Of a complete list: files below its folder that it does not have, and how many there were. */
  withdrawn?: number;
  known?: number;
}

/** Columns that a row may leave out, in the order of the table: their names, and what is known (`f` and its volume `v`). */
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

const copyColumns = `line, path, size, stage, ${incomingColumns.map(({ column }) => column).join(', ')}, kept, library`;

/** Makes the table and fills it; it lives until the connection drops it. @returns how many rows it has @throws ImportError */
export async function loadIncoming(client: pg.PoolClient, rows: RowSource, tell?: TellImport): Promise<number> {
  await client.query(
    sql`CREATE TEMP TABLE incoming (line bigint, path text, size bigint, stage "Stage", verified timestamp(6),
          spot_name text, volume text, "position" bigint, checksum text, copy_volume text, copy_position bigint, mode int, mtime timestamp(6), uid bigint, gid bigint, kept text[], library text,
          checksum_taken boolean NOT NULL DEFAULT false, is_copy_known boolean NOT NULL DEFAULT false)`,
  );
  const ofSource = new Set<unknown>();
  let count = 0;
  const onRows = (more: number) => {
    count += more;
    tell?.({ step: 'reading', rows: count });
  };
  const lines = noteFailure(copyLines(rows, onRows), ofSource);
  await pipeline(lines, client.query(copyFrom(`COPY incoming (${copyColumns}) FROM STDIN`))).catch((error) => {
    throw ofSource.has(error) ? error : toUnavailable(error);
  });
  tell?.({ step: 'comparing' });
  await client.query(sql`ANALYZE incoming`);
  return count;
}

/** What the source throws is no fault of the database, also where it comes from the system, as that of the network does. */
async function* noteFailure(lines: AsyncGenerator<string>, failures: Set<unknown>): AsyncGenerator<string> {
  try {
    yield* lines;
  } catch (error) {
    failures.add(error);
    throw error;
  }
}

/** @param onRows is told of each batch that is taken @throws ImportError once all faults are known, or too many */
async function* copyLines(rows: RowSource, onRows: (more: number) => void): AsyncGenerator<string> {
  const faults: string[] = [];
  let [batch, count] = ['', 0];
  for await (const row of rows) {
    if (row instanceof RowError) {
      faults.push(row.message);
      if (faults.length > MAX_FAULTS) break;
    } else if (faults.length === 0) {
      batch += copyLine(row);
      count++;
      if (batch.length > 64 * 1024) {
        yield batch;
        onRows(count);
        [batch, count] = ['', 0];
      }
    }
  }
  if (faults.length > 0) throw new ImportError(faults);
  yield batch;
  onRows(count);
}

function copyLine(row: CatalogueRow): string {
  const values = [row.line, row.path, row.size, row.stage, ...incomingColumns.map(({ name }) => row[name] ?? null)];
  const kept = incomingColumns.filter(({ name }) => row[name] === undefined).map(({ name }) => name);
  return `${[...values, `{${kept.join(',')}}`, row.library ?? null].map((value) => (value === null ? '\\N' : escapeCopy(String(value)))).join('\t')}\n`;
}

const COPY_ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

function escapeCopy(text: string): string {
  return text.replace(/[\\\t\n\r]/g, (character) => COPY_ESCAPES[character] ?? character);
}

/**
 * Adds rows to the catalogue and updates known ones, all or nothing. A row replaces what the catalogue says of its
 * file. Files that live requests wait for join them in the same transaction.
 *
 * The rows go into a temporary table first, so that the transaction can be run again after a deadlock.
 */
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import type { Context } from '../../context.js';
import { lockCatalogue, runTransaction, type Transaction } from '../../database/transaction.js';
import { codeOf } from '../../errors.js';
import { type Move, moveFiles, type Stage, stageLetters } from '../../stages.js';
import { IS_LIVE } from '../conditions.js';
import { settleRequests } from '../requests/holds.js';
import { joinFiles } from '../requests/joins.js';
import { RowError } from './import-lines.js';
import type { CatalogueRow } from './import-rows.js';

/** Faults listed before an import gives up. */
const MAX_FAULTS = 20;

/** What is wrong with an import, a line each; nothing of it was stored. */
export class ImportError extends Error {
  readonly faults: string[];

  /** @param faults one more than are listed, where there are more */
  constructor(faults: string[]) {
    const listed = faults.slice(0, MAX_FAULTS);
    const more = faults.length > MAX_FAULTS ? `\n  … (only the first ${MAX_FAULTS} are listed)` : '';
    super(`nothing was imported:\n${listed.map((fault) => `  ${fault}`).join('\n')}${more}`);
    this.faults = listed;
  }
}

export interface ImportResult {
  added: number;
  updated: number;
}

/** @throws ImportError */
export async function importRows(
  ctx: Context,
  rows: AsyncIterable<CatalogueRow | RowError> | Iterable<CatalogueRow | RowError>,
): Promise<ImportResult> {
  const client = await ctx.db.pool.connect();
  try {
    await client.query(
      `CREATE TEMP TABLE incoming (line bigint, path text, size bigint, stage "Stage", verified timestamp(6),
         spot_name text, volume text, "position" bigint, checksum text, kept text[])`,
    );
    await load(client, rows);
    await client.query('ANALYZE incoming');
    return await applyAgain(() => runTransaction(client, (tx) => apply(ctx, tx)));
  } finally {
    const dropped = await client.query('DROP TABLE IF EXISTS pg_temp.incoming').catch((error: Error) => error);
    client.release(dropped instanceof Error);
  }
}

/** Of two imports that add the same file, the later one finds it known when it tries again. */
async function applyAgain(attempt: () => Promise<ImportResult>): Promise<ImportResult> {
  for (let left = MAX_ATTEMPTS; ; left--) {
    try {
      return await attempt();
    } catch (error) {
      if (codeOf(error) !== UNIQUE_VIOLATION || left === 1) throw error;
    }
  }
}

const UNIQUE_VIOLATION = '23505';
const MAX_ATTEMPTS = 5;

async function load(
  client: pg.PoolClient,
  rows: AsyncIterable<CatalogueRow | RowError> | Iterable<CatalogueRow | RowError>,
): Promise<void> {
  const text = async function* () {
    const faults: string[] = [];
    let batch = '';
    for await (const row of rows) {
      if (row instanceof RowError) {
        faults.push(row.message);
        if (faults.length > MAX_FAULTS) break;
      } else if (faults.length === 0) {
        batch += copyLine(row);
        if (batch.length > 64 * 1024) {
          yield batch;
          batch = '';
        }
      }
    }
    if (faults.length > 0) throw new ImportError(faults);
    yield batch;
  };
  await pipeline(text, client.query(copyFrom('COPY incoming FROM STDIN')));
}

/** Columns that a row may leave out, in the order of the table. */
const OPTIONAL = ['verified', 'spotName', 'volume', 'position', 'checksum'] as const;

function copyLine(row: CatalogueRow): string {
  const values = [row.line, row.path, row.size, row.stage, ...OPTIONAL.map((name) => row[name] ?? null)];
  const kept = OPTIONAL.filter((name) => row[name] === undefined);
  return `${[...values, `{${kept.join(',')}}`].map((value) => (value === null ? '\\N' : escapeCopy(String(value)))).join('\t')}\n`;
}

const COPY_ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

function escapeCopy(text: string): string {
  return text.replace(/[\\\t\n\r]/g, (character) => COPY_ESCAPES[character] ?? character);
}

async function apply(ctx: Context, tx: Transaction): Promise<ImportResult> {
  await refuseDuplicates(tx);
  await tx.query(
    `INSERT INTO volume (name) SELECT DISTINCT volume FROM incoming WHERE volume IS NOT NULL ORDER BY volume
     ON CONFLICT (name) DO NOTHING`,
  );
  await tx.query(
    `CREATE TEMP TABLE known ON COMMIT DROP AS
     SELECT f.id, f.stage, f.size, f.disk_id, i.line FROM incoming i JOIN tape_file f ON f.path = i.path
     ORDER BY f.id FOR NO KEY UPDATE OF f`,
  );
  await refuseIllegal(tx);
  await keepWhatIsLeftOut(tx);
  const moved = await move(tx);
  const [updated] = await tx.query<{ count: bigint }>(
    `WITH updated AS (
       UPDATE tape_file f SET size = i.size, verified = i.verified, spot_name = i.spot_name, volume_id = v.id,
         "position" = i.position, checksum = i.checksum
       FROM known k JOIN incoming i ON i.line = k.line LEFT JOIN volume v ON v.name = i.volume
       WHERE f.id = k.id AND (f.size, f.verified, f.spot_name, f.volume_id, f.position, f.checksum)
         IS DISTINCT FROM (i.size, i.verified, i.spot_name, v.id, i.position, i.checksum)
       RETURNING f.id
     ) SELECT count(*) FROM (SELECT id FROM updated UNION SELECT unnest($1::bigint[])) u`,
    [moved],
  );
  // what was wrong with a copy of which the catalogue said something else is of no interest any more
  await tx.query('DELETE FROM verification w USING known k WHERE w.file_id = k.id');
  await tx.query(`CREATE TEMP TABLE fresh (id bigint) ON COMMIT DROP`);
  // in the order of paths, so that two imports of the same files wait for each other rather than lock each other up
  const [added] = await tx.query<{ count: bigint }>(
    `WITH added AS (
       INSERT INTO tape_file (path, size, stage, verified, spot_name, volume_id, "position", checksum)
       SELECT i.path, i.size, coalesce(i.stage, 'UNVERIFIED'), i.verified, i.spot_name, v.id, i.position, i.checksum
       FROM incoming i LEFT JOIN volume v ON v.name = i.volume
       WHERE NOT EXISTS (SELECT FROM known k WHERE k.line = i.line) ORDER BY i.path
       RETURNING id
     ), noted AS (INSERT INTO fresh SELECT id FROM added)
     SELECT count(*) FROM added`,
  );
  await lockCatalogue(tx, 'alone');
  await followChanges(ctx, tx);
  await joinFiles(ctx, tx, 'SELECT id FROM fresh', { isNew: true });
  return { added: Number(added?.count ?? 0), updated: Number(updated?.count ?? 0) };
}

async function refuseDuplicates(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ path: string; lines: string[] }>(
    `SELECT path, (array_agg(line::text ORDER BY line))[1:3] AS lines FROM incoming
     GROUP BY path HAVING count(*) > 1 ORDER BY min(line) LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length > 0) {
    throw new ImportError(
      rows.map(({ path, lines }) => `lines ${lines.join(' and ')}: the same path ${JSON.stringify(path)}`),
    );
  }
}

/** A column that a row does not have says nothing: what is known of the file stays. */
async function keepWhatIsLeftOut(tx: Transaction): Promise<void> {
  const keep = (column: string, name: (typeof OPTIONAL)[number], known: string) =>
    `${column} = CASE WHEN '${name}' = ANY (i.kept) THEN ${known} ELSE i.${column} END`;
  await tx.query(
    `UPDATE incoming i SET ${keep('verified', 'verified', 'f.verified')}, ${keep('spot_name', 'spotName', 'f.spot_name')},
       ${keep('volume', 'volume', 'v.name')}, ${keep('"position"', 'position', 'f."position"')},
       ${keep('checksum', 'checksum', 'f.checksum')}
     FROM known k JOIN tape_file f ON f.id = k.id LEFT JOIN volume v ON v.id = f.volume_id
     WHERE i.line = k.line AND i.kept <> '{}'`,
  );
}

/** Moves that a row may ask for; a step over ONDISK is two moves. */
const IMPORT_MOVES = [
  { from: 'UNVERIFIED', to: 'ONDISK' },
  { from: 'ONDISK', to: 'ONTAPE' },
  { from: 'ONDISK', to: 'UNVERIFIED' },
] as const satisfies readonly Move[];

/**
 * A file that is in the restore area or on its way there belongs to the engine: a row may say that it is on tape,
 * which is true of it, and must not change its size.
 */
async function refuseIllegal(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ line: bigint; from: Stage; to: Stage; sizes: boolean; old: bigint; fresh: bigint }>(
    `SELECT i.line, k.stage AS "from", coalesce(i.stage, k.stage) AS "to", k.size AS old, i.size AS fresh, s.sizes
     FROM known k JOIN incoming i ON i.line = k.line CROSS JOIN LATERAL (
       SELECT k.size <> i.size AND (k.stage IN ('RESTORING', 'RESTORED') OR k.disk_id IS NOT NULL) AS sizes) s
     WHERE s.sizes OR (i.stage <> k.stage AND (k.stage, i.stage) NOT IN (
       ('UNVERIFIED', 'ONDISK'), ('UNVERIFIED', 'ONTAPE'), ('ONDISK', 'ONTAPE'), ('ONDISK', 'UNVERIFIED'),
       ('RESTORING', 'ONTAPE'), ('RESTORED', 'ONTAPE'), ('ONTAPE', 'RESTORING'), ('ONTAPE', 'RESTORED'),
       ('RESTORING', 'RESTORED'), ('RESTORED', 'RESTORING')))
     ORDER BY i.line LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(({ line, from, to, sizes, old, fresh }) =>
      sizes
        ? `line ${line}: the size cannot change from ${old} to ${fresh} bytes while the file is in the restore area`
        : `line ${line}: a file cannot move from ${stageLetters[from]} to ${stageLetters[to]}`,
    ),
  );
}

async function move(tx: Transaction): Promise<bigint[]> {
  const moved: bigint[] = [];
  const idsAt = async (from: Stage, to: readonly Stage[]) => {
    const rows = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM known k JOIN incoming i ON i.line = k.line JOIN tape_file f ON f.id = k.id
       WHERE f.stage = $1 AND i.stage = ANY($2::"Stage"[])`,
      [from, to],
    );
    return rows.map((row) => row.id);
  };
  const [confirm, remove, doubt] = IMPORT_MOVES;
  moved.push(...(await moveFiles(tx, await idsAt('ONDISK', ['UNVERIFIED']), doubt)));
  moved.push(...(await moveFiles(tx, await idsAt('UNVERIFIED', ['ONDISK', 'ONTAPE']), confirm)));
  moved.push(...(await moveFiles(tx, await idsAt('ONDISK', ['ONTAPE']), remove)));
  return moved;
}

/** Live requests follow what was changed of files that they hold: sizes are charged anew, new places reach the queue. */
async function followChanges(ctx: Context, tx: Transaction): Promise<void> {
  // what a request was charged must not be changed while it is given back
  await tx.query(
    `SELECT r.id FROM request r WHERE ${IS_LIVE}
       AND r.id IN (SELECT h.request_id FROM known k JOIN live_hold h ON h.file_id = k.id)
     ORDER BY r.id FOR NO KEY UPDATE`,
  );
  await tx.query(
    `UPDATE recall c SET volume_id = f.volume_id, "position" = f.position, size = f.size
     FROM known k JOIN tape_file f ON f.id = k.id WHERE c.file_id = f.id AND c.state = 'WAITING'`,
  );
  const rows = await tx.query<{ id: number }>(
    `WITH changed AS (
       SELECT h.request_id, h.file_id, h.quota_id, f.size, f.size - h.size AS delta,
         CASE WHEN f.stage = 'ONTAPE' AND h.state = 'ON_DISK' THEN 'WAITING' ELSE h.state END AS state
       FROM known k JOIN tape_file f ON f.id = k.id JOIN live_hold h ON h.file_id = f.id
       WHERE (f.size <> h.size OR (f.stage = 'ONTAPE' AND h.state = 'ON_DISK'))
     ), held AS (
       UPDATE hold h SET size = c.size, state = c.state::"HoldState" FROM changed c
       WHERE h.request_id = c.request_id AND h.file_id = c.file_id
     ), charged AS (
       UPDATE quota q SET used = q.used + s.delta
       FROM (SELECT quota_id, sum(delta) AS delta FROM changed GROUP BY quota_id) s WHERE q.id = s.quota_id
     ) SELECT DISTINCT request_id AS id FROM changed ORDER BY id`,
  );
  if (rows.length > 0) {
    await settleRequests(
      ctx,
      tx,
      rows.map((row) => row.id),
    );
  }
}

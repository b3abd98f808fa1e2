/** An import's rows are taken over into the catalogue, in one transaction that may be run again. */
import type { Context } from '../../context.js';
import { lockCatalogue, locking, lockQuotas, lockRequests } from '../../database/locks.js';
import { join, raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { type Stage, stageLetters } from '../../stages.js';
import { isByPath, isChanged, isLive } from '../conditions.js';
import { settleHolds } from '../requests/holds.js';
import { findJoining, storeJoining } from '../requests/joins.js';
import { recountRequests } from '../requests/progress.js';
import { concernedBy } from './chosen-files.js';
import { alignCopies, dropSecondCopies, refuseCopies } from './import-copies.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';
import { refuseFolders } from './import-folders.js';
import { followChanges } from './import-holds.js';
import { type ImportResult, incomingColumns } from './import-incoming.js';
import { addVolumes, refuseRetired } from './import-libraries.js';
import { refuseTapeNames } from './import-names.js';
import { type TellImport, tellAdding } from './import-progress.js';
import { isElsewhere, isOtherStage, legalSteps, moveKnown, saysOnTape } from './import-stages.js';
import { refuseOvertaken, type StandingFile } from './import-standing.js';
import { moveFiles } from './moves.js';
import { type Complete, findUnlisted, reinstateListed, withdrawUnlisted } from './unlisted.js';
import { forgetVerifications } from './verifications.js';
import { isSameVersion } from './versions.js';

interface Told {
  tell: TellImport;
  count: number;
}

export interface Applying {
  /** Who is told how far it is, and how many rows there are. */
  told?: Told | undefined;
  /** The rows are all that is below a folder: what they do not have of it is withdrawn. */
  complete?: Complete | undefined;
  /** Files that are still to be as they were. */
  standing?: readonly StandingFile[] | undefined;
}

/**
 * New files go in first: nobody else sees them yet. Then what the catalogue's lock keeps apart, in the order of all
 * locks: requests that wait for the new files or hold changed ones, their quotas, the changed files.
 * @throws ImportError; UnlistedError
 */
export async function applyIncoming(
  ctx: Context,
  tx: Transaction,
  { told, complete, standing = [] }: Applying,
): Promise<ImportResult> {
  await refuseDuplicates(tx);
  await addVolumes(ctx, tx);
  const added = await addFresh(ctx, tx, told);
  told?.tell({ step: 'settling' });
  await lockCatalogue(tx, 'alone');
  await refuseOvertaken(tx, standing);
  await refuseRetired(tx);
  if (added > 0) await refuseFolders(tx);
  await refuseTapeNames(tx);
  await tx.query(sql`INSERT INTO fresh SELECT f.id FROM old o JOIN tape_file f ON f.id = o.id WHERE f.is_unlisted`);
  const unlisted = await findUnlisted(tx, complete);
  await alignCopies(tx);
  await findJoining(ctx, tx, sql`SELECT id FROM fresh`, { isNew: true });
  const requestIds = await lockConcerned(tx);
  await refuseIllegal(tx);
  await keepWhatIsLeftOut(tx);
  await refuseCopies(tx);
  const updated = await updateKnown(ctx, tx);
  await dropSecondCopies(tx);
  const again = await reinstateListed(tx);
  await dropStale(ctx, tx);
  const changed = await followChanges(tx);
  if (changed.length > 0) await recountRequests(tx, changed, ctx.now()); // the limits of who grows are judged by its counts
  await storeJoining(ctx, tx);
  await settleHolds(
    ctx,
    tx,
    changed,
    sql`h.request_id = ANY(${changed}::int[]) AND h.file_id IN (SELECT id FROM known)`,
  );
  if (unlisted) await withdrawUnlisted(ctx, tx, requestIds);
  return { added, updated, ...(await countWithoutStage(tx)), ...again, ...unlisted };
}

/** @returns how many files are new; their ids are in the temporary table `fresh`, and the rows of the others in `old` */
async function addFresh(ctx: Context, tx: Transaction, told: Told | undefined): Promise<number> {
  await tx.query(
    sql`CREATE TEMP TABLE old ON COMMIT DROP AS
        SELECT f.id, i.line FROM incoming i JOIN tape_file f ON f.path = i.path`,
  );
  await tx.query(sql`ANALYZE old`);
  await tx.query(sql`CREATE TEMP TABLE fresh (id bigint) ON COMMIT DROP`);
  if (!told) return await insertFresh(tx);
  const [old] = await tx.query<{ count: bigint }>(sql`SELECT count(*) FROM old`);
  return await tellAdding(ctx, { of: told.count - Number(old?.count ?? 0), tell: told.tell }, () => insertFresh(tx));
}

async function insertFresh(tx: Transaction): Promise<number> {
  // in the order of paths, so that two imports of the same files wait for each other rather than lock each other up
  const [added] = await tx.query<{ count: bigint }>(
    sql`WITH added AS (
          INSERT INTO tape_file (path, size, stage, verified, spot_name, volume_id, "position", checksum, copy_volume_id, copy_position,
            mode, mtime, uid, gid)
          SELECT i.path, i.size, CASE WHEN ${isElsewhere} THEN 'ONTAPE' ELSE coalesce(i.stage, 'UNVERIFIED') END, i.verified, i.spot_name, v.id, i.position, i.checksum, cv.id, i.copy_position,
            i.mode, i.mtime, i.uid, i.gid
          FROM incoming i LEFT JOIN volume v ON v.name = i.volume LEFT JOIN volume cv ON cv.name = i.copy_volume
          WHERE NOT EXISTS (SELECT FROM old o WHERE o.line = i.line) ORDER BY i.path
          RETURNING id
        ), noted AS (INSERT INTO fresh SELECT id FROM added)
        SELECT count(*) FROM added`,
  );
  return Number(added?.count ?? 0);
}

/** What became of rows that say nothing of the stage is told, since a new file without one counts as on disk; and of those that say too much. */
async function countWithoutStage(tx: Transaction): Promise<Omit<ImportResult, 'added' | 'updated'>> {
  const [row] = await tx.query<{ fresh: number; known: number; elsewhere: number }>(
    sql`SELECT count(*) FILTER (WHERE o.line IS NULL AND i.stage IS NULL)::int AS fresh, count(o.line) FILTER (WHERE i.stage IS NULL)::int AS known,
          count(*) FILTER (WHERE o.line IS NULL AND ${isElsewhere})::int AS elsewhere
        FROM incoming i LEFT JOIN old o ON o.line = i.line WHERE i.stage IS NULL OR ${isElsewhere}`,
  );
  return {
    addedWithoutStage: row?.fresh ?? 0,
    knownWithoutStage: row?.known ?? 0,
    addedWithoutCopy: row?.elsewhere ?? 0,
  };
}

/**
 * The row says something else than the catalogue. `i` is the row, `f` the file, `v` its volume; what the row leaves out says
 * nothing. A checksum that was taken here, and not told, differs from any that is.
 */
const isDifferent = sql`(f.size <> i.size OR (${isOtherStage}) OR ${join(
  incomingColumns.map(({ name, column, known }) => {
    const differs = sql`(NOT ${name} = ANY (i.kept) AND i.${raw(column)} IS DISTINCT FROM ${raw(known)})`;
    return name === 'checksum'
      ? sql`CASE WHEN f.checksum_taken THEN i.checksum IS NOT NULL ELSE ${differs} END`
      : differs;
  }),
  ' OR ',
)})`;

/**
 * Locks the requests that the import concerns, their quotas, and the files that it changes or withdraws; the former are in the temporary table
 * `known` then. Files of which it says nothing new are left alone.
 */
async function lockConcerned(tx: Transaction): Promise<number[]> {
  await tx.query(
    sql`CREATE TEMP TABLE differing ON COMMIT DROP AS
        SELECT o.id, o.line FROM old o JOIN incoming i ON i.line = o.line JOIN tape_file f ON f.id = o.id
          LEFT JOIN volume v ON v.id = f.volume_id WHERE f.is_unlisted OR ${isDifferent}`,
  );
  await tx.query(sql`ANALYZE differing`);
  const requestIds = await lockRequests(
    tx,
    sql`${isLive} AND r.id IN (
          SELECT request_id FROM joining
          UNION SELECT h.request_id FROM differing d JOIN live_hold h ON h.file_id = d.id
          UNION ${concernedBy})`,
  );
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await tx.query(
    sql`SELECT count(*) FROM (SELECT FROM tape_file f WHERE f.id IN (SELECT id FROM differing UNION ALL SELECT id FROM leaving)
          ORDER BY f.id ${locking.file}) locked`,
  );
  await tx.query(
    sql`CREATE TEMP TABLE known ON COMMIT DROP AS
        SELECT f.id, f.stage, f.size, f.checksum, f.volume_id, f.position, f.copy_volume_id, f.copy_position, f.disk_id, f.changed_disk_id, d.line
        FROM tape_file f JOIN differing d ON d.id = f.id ORDER BY f.id`,
  );
  await tx.query(sql`ANALYZE known`);
  return requestIds;
}

/** What went wrong there may go wrong again: the bytes are said to be where they were. */
const isSameCopy = sql`((f.copy_volume_id, f.copy_position, f.size, f.checksum) IS NOT DISTINCT FROM (cv.id, i.copy_position, i.size, i.checksum))`;

/** The library that has the file `f` knows it as before: where it is on another volume now, that of its second copy, or one that is to let it go. */
const keepsTapeName = sql`(f.volume_id IS NULL OR f.volume_id IS NOT DISTINCT FROM v.id OR (NOT ${isByPath(sql`v.id`)}
  AND (${isByPath(sql`cv.id`)} OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id))))`;

/** @returns how many files have changed */
async function updateKnown(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<number> {
  const moved = await moveKnown(ctx, tx);
  const [updated] = await tx.query<{ count: bigint }>(
    sql`WITH updated AS (
          UPDATE tape_file f SET size = i.size, verified = i.verified, spot_name = i.spot_name, volume_id = v.id,
            "position" = i.position, checksum = i.checksum, checksum_taken = i.checksum_taken,
            copy_volume_id = cv.id, copy_position = i.copy_position, copy_error = CASE WHEN ${isSameCopy} THEN f.copy_error END,
            tape_path = CASE WHEN ${keepsTapeName} THEN f.tape_path END, mode = i.mode, mtime = i.mtime, uid = i.uid, gid = i.gid
          FROM known k JOIN incoming i ON i.line = k.line LEFT JOIN volume v ON v.name = i.volume LEFT JOIN volume cv ON cv.name = i.copy_volume
          WHERE f.id = k.id AND (f.size, f.verified, f.spot_name, f.volume_id, f.position, f.checksum, f.checksum_taken, f.copy_volume_id, f.copy_position, f.mode, f.mtime, f.uid, f.gid)
            IS DISTINCT FROM (i.size, i.verified, i.spot_name, v.id, i.position, i.checksum, i.checksum_taken, cv.id, i.copy_position, i.mode, i.mtime, i.uid, i.gid)
          RETURNING f.id
        ) SELECT count(*) FROM (SELECT id FROM updated UNION SELECT unnest(${moved}::bigint[])) u`,
  );
  // what was wrong with a copy of which the catalogue said something else is of no interest any more
  await tx.query(
    sql`DELETE FROM verification w USING old o, tape_file f WHERE w.file_id = o.id AND f.id = o.id AND NOT ${isChanged}`,
  );
  return Number(updated?.count ?? 0);
}

async function refuseDuplicates(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ path: string; lines: string[] }>(
    sql`SELECT path, (array_agg(line::text ORDER BY line))[1:3] AS lines FROM incoming
     GROUP BY path HAVING count(*) > 1 ORDER BY min(line) LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length > 0) {
    throw new ImportError(
      rows.map(({ path, lines }) => `lines ${lines.join(' and ')}: the same path ${JSON.stringify(path)}`),
    );
  }
}

/** What the row says in a column, or what is known where it does not have it. */
function saidOf(column: string): Sql {
  return join(
    incomingColumns
      .filter(({ name }) => name === column)
      .map((of) => sql`CASE WHEN ${of.name} = ANY (i.kept) THEN ${raw(of.known)} ELSE i.${raw(of.column)} END`),
  );
}

/**
 * A checksum that was taken at the first restore says what lay at a place: it stays as long as the file lies there and the archive
 * tells none, be its column there and empty. At another place it says nothing.
 */
const staysTaken = sql`(f.checksum_taken AND i.checksum IS NULL AND i.size = f.size
  AND ${saidOf('volume')} IS NOT DISTINCT FROM v.name AND ${saidOf('position')} IS NOT DISTINCT FROM f.position)`;

/** A column that a row does not have says nothing: what is known of the file stays. */
async function keepWhatIsLeftOut(tx: Transaction): Promise<void> {
  const columns = incomingColumns.map(({ name, column }) => {
    const checksum = sql`CASE WHEN ${staysTaken} THEN f.checksum WHEN f.checksum_taken THEN i.checksum ELSE ${saidOf(name)} END`;
    return sql`${raw(column)} = ${name === 'checksum' ? checksum : saidOf(name)}`;
  });
  await tx.query(
    sql`UPDATE incoming i SET ${join(columns)}, checksum_taken = ${staysTaken}
        FROM known k JOIN tape_file f ON f.id = k.id LEFT JOIN volume v ON v.id = f.volume_id
        WHERE i.line = k.line AND (i.kept <> '{}' OR f.checksum_taken)`,
  );
}

/**
 * A file that is in the restore area or on its way there belongs to the engine: a row may say that it is on tape,
 * which is true of it, and may give it another place and checksum, but not another size: room is accounted by it. One that only counts
 * as restored, without a copy, has none to account for.
 */
async function refuseIllegal(tx: Transaction): Promise<void> {
  const steps = legalSteps();
  const [legalFrom, legalTo] = [steps.map((step) => step.from), steps.map((step) => step.to)];
  const rows = await tx.query<{ line: bigint; from: Stage; to: Stage; sizes: boolean; old: bigint; fresh: bigint }>(
    sql`SELECT i.line, k.stage AS "from", coalesce(i.stage, k.stage) AS "to", k.size AS old, i.size AS fresh, s.sizes
        FROM known k JOIN incoming i ON i.line = k.line CROSS JOIN LATERAL (
          SELECT k.size <> i.size AND (k.stage = 'RESTORING' OR k.disk_id IS NOT NULL) AS sizes) s
        WHERE s.sizes OR (i.stage <> k.stage AND NOT (k.changed_disk_id IS NOT NULL AND k.stage = 'UNVERIFIED' AND ${saysOnTape})
          AND (k.stage, i.stage) NOT IN (
          SELECT * FROM unnest(${legalFrom}::"Stage"[], ${legalTo}::"Stage"[])))
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

/** The first place of `f` is what was the second one of `k`: the same bytes, as far as anybody has said. */
const isOtherCopy = sql`(f.checksum IS NULL AND f.size = k.size AND f.volume_id = k.copy_volume_id AND f.position IS NOT DISTINCT FROM k.copy_position)`;

/**
 * A copy belongs to the version that it was read from: the file is on tape again, its copy leaves as any that is to go, and
 * whoever holds it waits for the new version. What was made of a copy by hand is left alone, and stands for its file no more.
 */
export async function dropStale(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<void> {
  const stale = await tx.query<{ id: bigint; stage: 'RESTORED' | 'UNVERIFIED' }>(
    sql`SELECT f.id, f.stage FROM known k JOIN tape_file f ON f.id = k.id
        WHERE (f.stage = 'RESTORED' OR ${isChanged}) AND NOT ${isSameVersion('k', 'f')} AND NOT ${isOtherCopy}`,
  );
  const pick = (from: Stage) => stale.filter(({ stage }) => stage === from).map(({ id }) => id);
  await moveFiles(ctx, tx, pick('RESTORED'), { from: 'RESTORED', to: 'ONTAPE' });
  await forgetVerifications(tx, await moveFiles(ctx, tx, pick('UNVERIFIED'), { from: 'UNVERIFIED', to: 'ONTAPE' }));
}

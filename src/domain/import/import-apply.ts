/** Applies an import's rows in one transaction. The transaction runs again after a deadlock. */

import { quote } from '../../core/errors.js';
import { type Move, type Stage, stageLetters } from '../../core/stages.js';
import { lockCatalogue, lockFiles, lockQuotas, lockRequests } from '../../db/locks.js';
import { join, raw, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { affectedRequests } from '../catalogue/chosen-files.js';
import { moveFiles } from '../catalogue/moves.js';
import { deleteVerifications } from '../catalogue/verifications.js';
import { isSamePosition, isSameSource, isSameVersion, positionOfFile } from '../catalogue/versions.js';
import { type Complete, findUnlisted, reinstateListed, withdrawLeaving } from '../catalogue/withdrawals.js';
import { isByPath, isChanged, isLive, isWaiting } from '../conditions.js';
import type { Context } from '../context.js';
import { resetMatched } from '../requests/excluded-paths.js';
import { findJoining, matchEarly, storeJoining } from '../requests/joins.js';
import { recountRequests } from '../requests/progress.js';
import { settleRequestFiles } from '../requests/request-files.js';
import {
  addVolumes,
  type ExpectedFile,
  refuseChanged,
  refuseDirectories,
  refuseDuplicates,
  refuseRetired,
  refuseRows,
  refuseTapeNames,
} from './import-checks.js';
import { type ImportResult, incomingColumns } from './import-incoming.js';

const MAX_BYTES = 2n ** 63n - 1n;

interface ApplyOptions {
  complete?: Complete | undefined;
  expected?: readonly ExpectedFile[] | undefined;
  canSkip?: boolean | undefined;
}

/**
 * Applies the rows in the temporary table `incoming`. Adds new files before it locks the catalogue. This is safe,
 * because other transactions cannot see the new files before the commit. Takes locks in the global order: the
 * catalogue, the affected requests, their quotas, and the changed files.
 * @throws ImportError, InUseError
 */
export async function applyIncoming(
  ctx: Context,
  tx: Transaction,
  { complete, expected = [], canSkip = false }: ApplyOptions,
): Promise<ImportResult> {
  await refuseDuplicates(tx);
  await addVolumes(tx);
  const added = await addFresh(tx);
  await followRelisted(tx);
  await tx.query(sql`ANALYZE fresh`);
  await matchEarly(ctx, tx, sql`SELECT id FROM fresh`, asListed);
  await lockCatalogue(tx, 'alone');
  await refuseChanged(tx, expected);
  await refuseRetired(tx);
  if (added > 0) await refuseDirectories(tx, canSkip);
  await refuseTapeNames(tx);
  // if the table `fresh` has changed, discard the pattern matches that `matchEarly` found
  if (await followRelisted(tx)) await resetMatched(tx);
  const unlisted = await findUnlisted(tx, complete);
  await alignCopies(tx);
  await findJoining(ctx, tx, sql`SELECT id FROM fresh`, { isNew: true, as: asListed });
  const requestIds = await lockConcerned(tx);
  await refuseIllegal(tx);
  await fillOmitted(tx);
  await refuseCopies(tx);
  const updated = await updateKnown(ctx, tx);
  await dropSecondCopies(tx);
  const relisted = await reinstateListed(tx);
  await dropStale(ctx, tx);
  const changed = await followChanges(ctx, tx);
  await storeJoining(ctx, tx);
  await settleFollowed(ctx, tx, changed);
  if (unlisted) {
    const reason = 'missing from a complete list of the archive';
    await withdrawLeaving(ctx, tx, { requestIds, reason, isUnlisted: true });
  }
  return { added, updated, ...(await countWithoutStage(tx)), ...relisted, ...unlisted };
}

/**
 * Adds new files. Creates two temporary tables: `fresh` contains the ids and sizes of new files. `old` contains the ids
 * and import lines of files that the catalogue already contains.
 */
async function addFresh(tx: Transaction): Promise<number> {
  await tx.query(
    sql`CREATE TEMP TABLE old ON COMMIT DROP AS
        SELECT f.id, i.line FROM incoming i JOIN tape_file f ON f.path = i.path`,
  );
  await tx.query(sql`ANALYZE old`);
  await tx.query(sql`CREATE TEMP TABLE fresh (id bigint, size bigint) ON COMMIT DROP`);
  // insert in path order, so that concurrent imports of the same files do not deadlock
  const [added] = await tx.query<{ count: bigint }>(
    sql`WITH added AS (
          INSERT INTO tape_file (path, size, stage, verified, spot_name, volume_id, "position", checksum, copy_volume_id, copy_position,
            mode, mtime, uid, gid, adler32)
          SELECT i.path, i.size, CASE WHEN ${isElsewhere} THEN 'ONTAPE' ELSE coalesce(i.stage, 'UNVERIFIED') END, i.verified, i.spot_name, v.id, i.position, i.checksum, cv.id, i.copy_position,
            i.mode, i.mtime, i.uid, i.gid, i.adler32
          FROM incoming i LEFT JOIN volume v ON v.name = i.volume LEFT JOIN volume cv ON cv.name = i.copy_volume
          WHERE NOT EXISTS (SELECT FROM old o WHERE o.line = i.line) ORDER BY i.path
          RETURNING id, size
        ), recorded AS (INSERT INTO fresh SELECT id, size FROM added)
        SELECT count(*) FROM added`,
  );
  return Number(added?.count ?? 0);
}

/**
 * Files in the table `fresh`, with the sizes that the import lists. For a withdrawn file, the catalogue still contains
 * the size before the import.
 */
const asListed = sql`(SELECT n.id, f.path, n.size FROM fresh n JOIN tape_file f ON f.id = n.id)`;

/**
 * Adds to the table `fresh` the files that an earlier import withdrew because its list omitted them. Removes a file
 * from the table if another import has reinstated the file in the meantime, or an operator has withdrawn it.
 */
async function followRelisted(tx: Transaction): Promise<boolean> {
  const changed = await tx.query(
    sql`WITH removed AS (
          DELETE FROM fresh n USING old o, tape_file f WHERE n.id = o.id AND f.id = o.id AND NOT f.is_unlisted RETURNING n.id
        ), recorded AS (
          INSERT INTO fresh SELECT f.id, i.size
          FROM old o JOIN tape_file f ON f.id = o.id JOIN incoming i ON i.line = o.line
          WHERE f.is_unlisted AND NOT EXISTS (SELECT FROM fresh n WHERE n.id = f.id) RETURNING id
        ) SELECT id FROM removed UNION ALL SELECT id FROM recorded LIMIT 1`,
  );
  return changed.length > 0;
}

async function countWithoutStage(tx: Transaction): Promise<Omit<ImportResult, 'added' | 'updated'>> {
  const [row] = await tx.query<{ addedWithoutStage: number; addedWithoutCopy: number }>(
    sql`SELECT count(*) FILTER (WHERE i.stage IS NULL)::int AS "addedWithoutStage", count(*) FILTER (WHERE ${isElsewhere})::int AS "addedWithoutCopy"
        FROM incoming i WHERE NOT EXISTS (SELECT FROM old o WHERE o.line = i.line)`,
  );
  return row ?? { addedWithoutStage: 0, addedWithoutCopy: 0 };
}

/**
 * SQL condition that is true if the row `i` describes a copy that another system has restored. Tapegate cannot use a
 * copy from another system, and therefore records the file as ONTAPE.
 */
const isElsewhere = sql`(i.stage IN ('RESTORING', 'RESTORED'))`;

/** Stages of a file on tape before, during and after a restore. An import does not move files between these stages. */
const TAPE_STAGES: readonly Stage[] = ['ONTAPE', 'RESTORING', 'RESTORED'];

const hasTapeStage = sql`i.stage = ANY(${TAPE_STAGES}::"Stage"[])`;

const isOtherStage = sql`(CASE WHEN ${hasTapeStage} THEN f.stage <> ALL(${TAPE_STAGES}::"Stage"[]) AND NOT ${isChanged} ELSE f.stage <> i.stage END)`;

/**
 * SQL condition that is true if the row `i` differs from the file `f` and its volume `v`. A row with a checksum always
 * counts as different if the catalogue's checksum was computed by Tapegate during a restore.
 */
const isDifferent = sql`(f.size <> i.size OR (${isOtherStage}) OR ${join(
  incomingColumns.map(({ name, column, known }) => {
    const differs = sql`(NOT ${name} = ANY (i.omitted) AND i.${raw(column)} IS DISTINCT FROM ${raw(known)})`;
    return name === 'checksum'
      ? sql`CASE WHEN f.checksum_taken THEN i.checksum IS NOT NULL ELSE ${differs} END`
      : differs;
  }),
  ' OR ',
)})`;

/**
 * Locks the affected requests, their quotas and the changed files. Copies changed files to the temporary table `known`.
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
          UNION SELECT h.request_id FROM differing d JOIN live_request_file h ON h.file_id = d.id
          UNION ${affectedRequests})`,
  );
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockFiles(tx, sql`f.id IN (SELECT id FROM differing UNION ALL SELECT id FROM leaving)`);
  await tx.query(
    sql`CREATE TEMP TABLE known ON COMMIT DROP AS
        SELECT f.id, f.stage, f.size, f.checksum, f.volume_id, f.position, f.copy_volume_id, f.copy_position, f.disk_id, f.changed_disk_id, d.line
        FROM tape_file f JOIN differing d ON d.id = f.id ORDER BY f.id`,
  );
  await tx.query(sql`ANALYZE known`);
  return requestIds;
}

/**
 * Stage changes that an import can make, in the order in which they are applied. Moving a file from UNVERIFIED to
 * ONTAPE takes two stage changes.
 */
const IMPORT_MOVES = [
  { from: 'ONDISK', to: 'UNVERIFIED' },
  { from: 'UNVERIFIED', to: 'ONDISK' },
  { from: 'ONDISK', to: 'ONTAPE' },
] as const satisfies readonly Move[];

function legalSteps(): { from: Stage; to: Stage }[] {
  const steps = TAPE_STAGES.flatMap((from) => TAPE_STAGES.map((to) => ({ from, to })));
  for (const { from } of IMPORT_MOVES) {
    const reached = new Set<Stage>([from]);
    for (const stage of reached) {
      for (const move of IMPORT_MOVES) if (move.from === stage) reached.add(move.to);
    }
    for (const to of reached) steps.push({ from, to });
  }
  return steps;
}

async function moveKnown(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<bigint[]> {
  const moved: bigint[] = [];
  for (const move of IMPORT_MOVES) {
    const due = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM known k JOIN incoming i ON i.line = k.line JOIN tape_file f ON f.id = k.id
          WHERE f.stage = ${move.from} AND (i.stage = ${move.to}
            OR (${move.to}::"Stage" = 'ONDISK' AND i.stage = 'ONTAPE' AND NOT ${isChanged}))`,
    );
    const fileIds = due.map((file) => file.id);
    moved.push(...(await moveFiles(ctx, tx, fileIds, move)));
  }
  return moved;
}

/**
 * SQL condition that is true if the row `i` describes the second copy that the file `f` already has. The import then
 * keeps the error that the catalogue contains for the second copy.
 */
const isSameCopy = sql`((f.copy_volume_id, f.copy_position, f.size, f.checksum) IS NOT DISTINCT FROM (cv.id, i.copy_position, i.size, i.checksum))`;

/**
 * SQL condition that is true if the catalogue must keep the recorded tape path of the file `f`. The recorded path stays
 * if the first copy stays on its volume. It also stays if a library needs the path to find the second copy, or to
 * release a staged copy.
 */
const keepsTapeName = sql`(f.volume_id IS NULL OR f.volume_id IS NOT DISTINCT FROM v.id OR (NOT ${isByPath(sql`v.id`)}
  AND (${isByPath(sql`cv.id`)} OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id))))`;

async function updateKnown(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<number> {
  const moved = await moveKnown(ctx, tx);
  const [updated] = await tx.query<{ count: bigint }>(
    sql`WITH updated AS (
          UPDATE tape_file f SET size = i.size, verified = i.verified, spot_name = i.spot_name, volume_id = v.id,
            "position" = i.position, checksum = i.checksum, checksum_taken = i.checksum_taken,
            adler32 = coalesce(i.adler32, CASE WHEN f.checksum = i.checksum AND f.size = i.size THEN f.adler32 END),
            copy_volume_id = cv.id, copy_position = i.copy_position, copy_error = CASE WHEN ${isSameCopy} THEN f.copy_error END,
            tape_path = CASE WHEN ${keepsTapeName} THEN f.tape_path END, mode = i.mode, mtime = i.mtime, uid = i.uid, gid = i.gid
          FROM known k JOIN incoming i ON i.line = k.line LEFT JOIN volume v ON v.name = i.volume LEFT JOIN volume cv ON cv.name = i.copy_volume
          WHERE f.id = k.id AND (f.size, f.verified, f.spot_name, f.volume_id, f.position, f.checksum, f.checksum_taken, f.copy_volume_id, f.copy_position, f.mode, f.mtime, f.uid, f.gid)
            IS DISTINCT FROM (i.size, i.verified, i.spot_name, v.id, i.position, i.checksum, i.checksum_taken, cv.id, i.copy_position, i.mode, i.mtime, i.uid, i.gid)
          RETURNING f.id
        ) SELECT count(*) FROM (SELECT id FROM updated UNION SELECT unnest(${moved}::bigint[])) u`,
  );
  // delete verification failures of files that the import lists, because the import might have corrected the wrong
  // values that caused the failures
  await tx.query(
    sql`DELETE FROM verification w USING old o, tape_file f WHERE w.file_id = o.id AND f.id = o.id AND NOT ${isChanged}`,
  );
  return Number(updated?.count ?? 0);
}

function rowValueOf(column: string): Sql {
  return join(
    incomingColumns
      .filter(({ name }) => name === column)
      .map((of) => sql`CASE WHEN ${of.name} = ANY (i.omitted) THEN ${raw(of.known)} ELSE i.${raw(of.column)} END`),
  );
}

/**
 * SQL condition that is true if the file `f` keeps the checksum that Tapegate computed at its first restore. The file's
 * position and size must stay the same, and the row `i` must not have a checksum.
 */
const keepsTakenChecksum = sql`(f.checksum_taken AND i.checksum IS NULL AND i.size = f.size
  AND ${rowValueOf('volume')} IS NOT DISTINCT FROM v.name AND ${rowValueOf('position')} IS NOT DISTINCT FROM f.position)`;

async function fillOmitted(tx: Transaction): Promise<void> {
  const columns = incomingColumns.map(({ name, column }) => {
    const checksum = sql`CASE WHEN ${keepsTakenChecksum} THEN f.checksum WHEN f.checksum_taken THEN i.checksum ELSE ${rowValueOf(name)} END`;
    return sql`${raw(column)} = ${name === 'checksum' ? checksum : rowValueOf(name)}`;
  });
  await tx.query(
    sql`UPDATE incoming i SET ${join(columns)}, checksum_taken = ${keepsTakenChecksum}
        FROM known k JOIN tape_file f ON f.id = k.id LEFT JOIN volume v ON v.id = f.volume_id
        WHERE i.line = k.line AND (i.omitted <> '{}' OR f.checksum_taken)`,
  );
}

/** Rejects illegal stage changes. Also rejects a new size for a file that is in the restore area or being restored. */
async function refuseIllegal(tx: Transaction): Promise<void> {
  const steps = legalSteps();
  const [legalFrom, legalTo] = [steps.map((step) => step.from), steps.map((step) => step.to)];
  await refuseRows<{ line: bigint; from: Stage; to: Stage; sizes: boolean; old: bigint; fresh: bigint }>(
    tx,
    sql`SELECT i.line, k.stage AS "from", coalesce(i.stage, k.stage) AS "to", k.size AS old, i.size AS fresh, s.sizes
        FROM known k JOIN incoming i ON i.line = k.line CROSS JOIN LATERAL (
          SELECT k.size <> i.size AND (k.stage = 'RESTORING' OR k.disk_id IS NOT NULL) AS sizes) s
        WHERE s.sizes OR (i.stage <> k.stage AND NOT (k.changed_disk_id IS NOT NULL AND k.stage = 'UNVERIFIED' AND ${hasTapeStage})
          AND (k.stage, i.stage) NOT IN (
          SELECT * FROM unnest(${legalFrom}::"Stage"[], ${legalTo}::"Stage"[])))
        ORDER BY i.line`,
    ({ line, from, to, sizes, old, fresh }) =>
      sizes
        ? `line ${line}: the size cannot change from ${old} to ${fresh} bytes while the file is in the restore area`
        : `line ${line}: the stage of a file cannot change from ${stageLetters[from]} to ${stageLetters[to]}`,
  );
}

/**
 * SQL condition that is true if the import made the second copy of a file its first copy. The row `k` contains the
 * values before the import. If the file has no checksum after the import, Tapegate assumes that both copies have the
 * same bytes.
 */
const isOtherCopy = sql`(f.checksum IS NULL AND f.size = k.size AND f.volume_id = k.copy_volume_id AND f.position IS NOT DISTINCT FROM k.copy_position)`;

/**
 * Moves a file back to ONTAPE if its copy on disk belongs to an older version of the file. An engine later removes the
 * copy from disk, unless the copy was changed outside Tapegate.
 */
async function dropStale(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<void> {
  const stale = await tx.query<{ id: bigint; stage: 'RESTORED' | 'UNVERIFIED' }>(
    sql`SELECT f.id, f.stage FROM known k JOIN tape_file f ON f.id = k.id
        WHERE (f.stage = 'RESTORED' OR ${isChanged}) AND NOT ${isSameVersion('k', 'f')} AND NOT ${isOtherCopy}`,
  );
  const pick = (from: Stage) => stale.filter(({ stage }) => stage === from).map(({ id }) => id);
  await moveFiles(ctx, tx, pick('RESTORED'), { from: 'RESTORED', to: 'ONTAPE' });
  await deleteVerifications(tx, await moveFiles(ctx, tx, pick('UNVERIFIED'), { from: 'UNVERIFIED', to: 'ONTAPE' }));
}

const isOmitted = (name: string) => sql`${name} = ANY (i.omitted)`;

const hasSameBytes = sql`(i.size = f.size AND (${isOmitted('checksum')} OR coalesce(i.checksum = f.checksum, true)))`;

/**
 * Adapts the rows of files whose two tape copies were swapped because the first copy was unreadable
 * (catalogue/versions.ts). If a row lists the two copies in the order before the swap, the import keeps the catalogue's
 * order, unless the row describes other bytes.
 */
async function alignCopies(tx: Transaction): Promise<void> {
  const isNamedFirst = sql`o.line = i.line AND f.id = o.id AND s.id = f.copy_volume_id AND NOT ${isOmitted('volume')} AND i.volume = s.name
    AND (${isOmitted('position')} OR f.copy_position IS NULL OR i.position = f.copy_position)`;
  const hasFirstAsCopy = sql`(${isOmitted('copyVolume')} OR i.copy_volume IS NOT DISTINCT FROM v.name)
    AND (${isOmitted('copyPosition')} OR i.copy_position IS NOT DISTINCT FROM f.position)`;
  await tx.query(
    sql`UPDATE incoming i SET volume = v.name, position = f.position, copy_volume = s.name,
          copy_position = coalesce(f.copy_position, CASE WHEN NOT ${isOmitted('position')} THEN i.position END),
          omitted = array_remove(i.omitted, 'copyPosition')
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id, volume s WHERE ${isNamedFirst} AND ${hasFirstAsCopy} AND ${hasSameBytes}`,
  );
  const ofFile = sql`o.line = i.line AND f.id = o.id`;
  // rows that describe only a second copy, which the swap has made the first copy in the catalogue
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = s.name, copy_position = f.copy_position
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id JOIN volume s ON s.id = f.copy_volume_id
        WHERE ${ofFile} AND ${isOmitted('volume')} AND i.copy_volume = v.name
          AND (${isOmitted('copyPosition')} OR i.copy_position IS NOT DISTINCT FROM f.position)`,
  );
  const namedCopy = sql`omitted = array_remove(array_remove(i.omitted, 'copyPosition'), 'copyVolume')`;
  // rows that describe only a first copy, on a new volume: the new copy replaces the unreadable copy, and the file
  // keeps the readable copy
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = v.name, copy_position = f.position, is_copy_known = true, ${namedCopy}
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id
        WHERE ${ofFile} AND f.copy_error IS NOT NULL AND ${isOmitted('copyVolume')} AND NOT ${isOmitted('volume')} AND i.volume <> v.name`,
  );
  // rows that describe other bytes on the second copy's volume: remove the second copy
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = NULL, copy_position = NULL, ${namedCopy} FROM old o, tape_file f JOIN volume s ON s.id = f.copy_volume_id
        WHERE ${ofFile} AND ${isOmitted('copyVolume')} AND NOT ${isOmitted('volume')} AND i.volume = s.name AND NOT ${hasSameBytes}`,
  );
}

async function refuseCopies(tx: Transaction): Promise<void> {
  await refuseRows<{ line: bigint; copy: string; volume: string | null }>(
    tx,
    sql`SELECT i.line, i.copy_volume AS copy, i.volume FROM incoming i LEFT JOIN old o ON o.line = i.line
        WHERE (o.id IS NULL OR EXISTS (SELECT FROM known k WHERE k.line = i.line))
          AND i.copy_volume IS NOT NULL AND (i.volume IS NULL OR i.volume = i.copy_volume) ORDER BY i.line`,
    ({ line, copy, volume }) =>
      volume === null
        ? `line ${line}: copy_volume must be empty if the file has no volume, not ${quote(copy)}`
        : `line ${line}: copy_volume must be different from the file's volume, not ${quote(copy)}`,
  );
}

/** Removes the second copy of files whose bytes have changed, unless the row describes the second copy. */
async function dropSecondCopies(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE tape_file f SET copy_volume_id = NULL, copy_position = NULL, copy_error = NULL FROM known k JOIN incoming i ON i.line = k.line
        WHERE f.id = k.id AND f.copy_volume_id IS NOT NULL AND (${isOmitted('copyVolume')} OR i.is_copy_known) AND NOT ${isSameVersion('k', 'f')}
          AND NOT (k.checksum IS NULL AND f.checksum IS NOT NULL AND k.size = f.size AND ${isSamePosition('k', 'f')})`,
  );
}

/**
 * SQL condition that is true if the file `f` has a new second copy that no drive has tried to read yet. The row `k`
 * contains the file's values before the import.
 */
const hasNewCopy = sql`(f.copy_volume_id IS NOT NULL AND f.copy_error IS NULL
  AND (k.copy_volume_id, k.copy_position) IS DISTINCT FROM (f.copy_volume_id, f.copy_position))`;

/**
 * Updates the live requests that contain files in the table `known`. Charges the files' new sizes to the quotas, and
 * updates waiting recalls. Retries failed request files if the import has changed the position or checksum of their
 * file. The caller must pass the returned request ids to `settleFollowed`.
 * @throws ImportError
 */
export async function followChanges(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<number[]> {
  await refuseUncountable(tx);
  // clear errors, because they concern the earlier bytes or positions; a running recall is updated when it ends
  await tx.query(
    sql`UPDATE recall c SET ${positionOfFile}, attempts = 0, earlier_tries = 0, not_before = NULL, error_class = NULL, error = NULL
        FROM known k JOIN tape_file f ON f.id = k.id WHERE c.file_id = f.id AND ${isWaiting}
          AND NOT ${isSameSource('k', 'f')}`,
  );
  const waitsAgain = sql`((f.stage = 'ONTAPE' AND h.state = 'ON_DISK') OR (h.state = 'FAILED' AND (${hasNewCopy} OR NOT ${isSameSource('k', 'f')})))`;
  const rows = await tx.query<{ id: number }>(
    sql`WITH changed AS (
          SELECT h.request_id, h.file_id, h.quota_id, f.size, f.size - h.size AS delta, ${waitsAgain} AS waits
          FROM known k JOIN tape_file f ON f.id = k.id JOIN live_request_file h ON h.file_id = f.id
          WHERE f.size <> h.size OR ${waitsAgain}
            OR (h.state = 'WAITING' AND k.stage = 'UNVERIFIED' AND f.stage <> 'UNVERIFIED')
        ), updated AS (
          UPDATE request_file h SET size = c.size, state = CASE WHEN c.waits THEN 'WAITING' ELSE h.state END,
            error_class = CASE WHEN NOT c.waits THEN h.error_class END, error = CASE WHEN NOT c.waits THEN h.error END
          FROM changed c WHERE h.request_id = c.request_id AND h.file_id = c.file_id
        ), charged AS (
          UPDATE quota q SET used = q.used + s.delta
          FROM (SELECT quota_id, sum(delta) AS delta FROM changed GROUP BY quota_id) s WHERE q.id = s.quota_id
        ) SELECT DISTINCT request_id AS id FROM changed ORDER BY id`,
  );
  const requestIds = rows.map((row) => row.id);
  if (requestIds.length > 0) await recountRequests(tx, requestIds, ctx.now());
  return requestIds;
}

export async function settleFollowed(ctx: Context, tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isKnown = sql`h.request_id = ANY(${requestIds}::int[]) AND h.file_id IN (SELECT id FROM known)`;
  await settleRequestFiles(ctx, tx, requestIds, isKnown);
}

/** Rejects the import if new file sizes would make a quota's used bytes too large for the database column. */
async function refuseUncountable(tx: Transaction): Promise<void> {
  await refuseRows<{ user: string; used: bigint; grown: string }>(
    tx,
    sql`SELECT q."user", q.used, (q.used + sum(f.size - h.size))::text AS grown
        FROM known k JOIN tape_file f ON f.id = k.id JOIN live_request_file h ON h.file_id = f.id JOIN quota q ON q.id = h.quota_id
        WHERE f.size <> h.size GROUP BY q.id HAVING q.used + sum(f.size - h.size) > ${MAX_BYTES}::numeric ORDER BY q."user"`,
    ({ user, used, grown }) =>
      `the import would increase the total size of the files requested by user ${quote(user)} from ${used} to ${grown} bytes; the maximum is ${MAX_BYTES} bytes`,
  );
}

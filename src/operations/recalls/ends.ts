/**
 * How recalls end. Whoever runs recalls holds a drive's lease; a write of a holder whose lease is lost finds no recall
 * with its epoch, and changes nothing.
 */
import type { Context } from '../../context.js';
import { byKeys } from '../../database/planning.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import type { Move } from '../../stages.js';
import { addSeconds } from '../../time.js';
import { type CopyTraits, moveFiles, type NewCopy, newCopies, noteCopy, takeChecksum } from '../catalogue/moves.js';
import { turnToCopies } from '../catalogue/second-copies.js';
import { isSameSource, isSameVersion, waitingAgain } from '../catalogue/versions.js';
import { isLive, isUnheld, isWaiting, isWithdrawn, whyWithdrawn } from '../conditions.js';
import { NOT_OURS } from '../disks/copies.js';
import { noteLeftBehind } from '../disks/left-behind.js';
import { keepUnverified } from '../disks/removals.js';
import { freeReserved, type Reservation } from '../disks/reservations.js';
import { type HoldOutcome, lockHolders, markHolds } from '../requests/holds.js';
import { advanceRequests } from '../requests/progress.js';
import type { Lease } from './drives.js';

/** How a running recall ended. `isUnseen`: what it may have left on its disk could not be looked at. */
export type RecallOutcome = { fileId: bigint; isUnseen?: boolean } & (
  | ({ kind: 'restored' } & CopyTraits)
  /** A file that nobody has noted stands in its place, and has the same bytes, with this checksum: it is left there. */
  | { kind: 'standing'; checksum: string }
  /** For good. */
  | { kind: 'failed'; errorClass: ErrorClass; error: string; isOfTape?: boolean }
  /** To be tried again, not before the time given. */
  | { kind: 'retry'; errorClass: ErrorClass; error: string; notBefore: string }
  /** What has failed is not the file, which counts as no try of it: it waits, and says why. */
  | { kind: 'postponed'; errorClass: ErrorClass; error: string; notBefore?: string }
  /** Not tried: back into the queue as it was. */
  | { kind: 'returned' }
);

/** The copy that a recall has put in place. */
type Restored = Extract<RecallOutcome, { kind: 'restored' }>;

/**
 * An import has said something else of the file meanwhile, so that what came of reading it counts for nothing: it is read
 * again as it is now. A copy that was put in place is removed first, as any is that is to go. `isTurned`: nobody has said anything else, and
 * what could not be read is read at its second place.
 */
type Superseded = {
  fileId: bigint;
  kind: 'superseded';
  copy: Restored | undefined;
  notBefore: string;
  isTurned?: boolean;
};

/** How an outcome is written down. */
type Judged = RecallOutcome | Superseded;

/** However often files are renewed: a recall rests between two starts. */
const SUPERSEDED_PAUSE_SECONDS = 1;

/**
 * Writes down how recalls of a drive ended, together: stages, holds, requests, reserved and used room, mail.
 * Recalls that this lease does not hold any more are passed over. What was read counts only while the catalogue still
 * says of the file what it said when the recall began.
 * @returns the ids of the files of which it says something else
 */
export async function finishRecalls(
  ctx: Context,
  lease: Lease,
  outcomes: readonly RecallOutcome[],
): Promise<Set<bigint>> {
  const fileIds = outcomes.map((outcome) => outcome.fileId);
  return await transaction(ctx.db.pool, 'finishRecalls', async (begun) => {
    const tx = byKeys(begun);
    // none of these requests ends before the commit: else its end would be dealt with while its files are not there yet,
    // and they would stay for ever
    await lockHolders(tx, fileIds);
    await dateLateRequests(ctx, tx, lease, fileIds);
    const judged = await turnFailed(ctx, tx, lease, await judgeOutcomes(ctx, tx, lease, outcomes));
    await noteUnseen(tx, lease, outcomes);
    const reservations = await endRecalls(tx, lease, judged);
    const ended = new Map(reservations.map((reservation) => [reservation.fileId, reservation]));
    const written = judged.filter((outcome) => ended.has(outcome.fileId));
    const placedIds = await placeFinished(ctx, tx, written, ended);
    await placeStanding(ctx, tx, written, ended);
    await markHolds(ctx, tx, written.flatMap(toHoldOutcome));
    // last, since recalls that start wait for the disks
    await freeReserved(tx, reservations, new Set(placedIds));
    const isOther = (outcome: Judged) => outcome.kind === 'superseded' && !outcome.isTurned;
    return new Set(written.filter(isOther).map(({ fileId }) => fileId));
  });
}

/** The recall `c` was begun in the lease's epoch, be that an earlier holder's, and the lease's engine holds the drive now. */
function isRunUnder({ driveId, epoch, engineId }: Lease): Sql {
  return sql`(c.drive_id = ${driveId} AND c.epoch = ${epoch}
    AND EXISTS (SELECT FROM drive held WHERE held.id = c.drive_id AND held.engine_id = ${engineId}::uuid))`;
}

/** Compares what was read with what the files say now; the files are locked. What was withdrawn meanwhile is not tried again. */
async function judgeOutcomes(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  outcomes: readonly RecallOutcome[],
): Promise<Judged[]> {
  const fileIds = outcomes.map((outcome) => outcome.fileId);
  const rows = await tx.query<{ fileId: bigint; isOther: boolean; isSame: boolean; withdrawn: string | null }>(
    sql`SELECT c.file_id AS "fileId", NOT ${isSameSource('c', 'f')} AS "isOther", ${isSameVersion('c', 'f')} AS "isSame",
          CASE WHEN ${isWithdrawn} THEN ${whyWithdrawn} END AS withdrawn FROM recall c JOIN tape_file f ON f.id = c.file_id
        WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.state = 'RUNNING' AND ${isRunUnder(lease)}
          AND (${isWithdrawn} OR NOT ${isSameSource('c', 'f')})`,
  );
  const changed = new Map(rows.map((row) => [row.fileId, row]));
  const notBefore = addSeconds(ctx.now(), SUPERSEDED_PAUSE_SECONDS);
  return outcomes.map((outcome) => {
    const { fileId, kind } = outcome;
    const change = changed.get(fileId);
    const isTriedAgain = kind === 'retry' || kind === 'postponed' || kind === 'returned';
    if (isTriedAgain && typeof change?.withdrawn === 'string') {
      const isUnseen = outcome.isUnseen ?? false;
      return { fileId, kind: 'failed', errorClass: 'POLICY', error: change.withdrawn, isUnseen };
    }
    if (!change?.isOther) return outcome;
    // the same bytes at another place are as good, and what went wrong at the old place says nothing of the new one
    if (change.isSame && (kind === 'restored' || kind === 'standing')) return outcome;
    return { fileId, kind: 'superseded', copy: kind === 'restored' ? outcome : undefined, notBefore };
  });
}

/** What has failed at one place is read at the other, if the file has two; what the lease does not hold any more says nothing of it. */
async function turnFailed(ctx: Context, tx: Transaction, lease: Lease, outcomes: readonly Judged[]): Promise<Judged[]> {
  const all = outcomes.flatMap((outcome) => (outcome.kind === 'failed' ? [outcome] : []));
  if (all.length === 0) return [...outcomes];
  const held = await tx.query<{ fileId: bigint }>(
    sql`SELECT c.file_id AS "fileId" FROM recall c
        WHERE c.file_id = ANY(${all.map(({ fileId }) => fileId)}::bigint[]) AND c.state = 'RUNNING' AND ${isRunUnder(lease)}`,
  );
  const heldIds = new Set(held.map(({ fileId }) => fileId));
  const failed = all.filter(({ fileId }) => heldIds.has(fileId));
  const { turned, told } = await turnToCopies(ctx, tx, failed);
  const notBefore = addSeconds(ctx.now(), SUPERSEDED_PAUSE_SECONDS);
  return outcomes.map((outcome) => {
    const { fileId, kind } = outcome;
    if (kind !== 'failed') return outcome;
    if (turned.has(fileId)) return { fileId, kind: 'superseded', copy: undefined, notBefore, isTurned: true };
    return { ...outcome, error: told.get(fileId) ?? outcome.error };
  });
}

/**
 * Moves files to where their recalls have brought them; one that is restored and that nobody holds any more leaves at once,
 * and so does the copy of another version than that of now.
 * @returns the ids of those that have a copy
 */
async function placeFinished(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly Judged[],
  ended: ReadonlyMap<bigint, Reservation>,
): Promise<bigint[]> {
  const toCopy = (outcome: Restored) => {
    const recall = ended.get(outcome.fileId);
    return recall ? [{ ...outcome, diskId: recall.diskId }] : [];
  };
  const copies = outcomes.flatMap((outcome) => (outcome.kind === 'restored' ? toCopy(outcome) : []));
  const stale = outcomes.flatMap((outcome) =>
    outcome.kind === 'superseded' && outcome.copy ? toCopy(outcome.copy) : [],
  );
  await noteCopies(ctx, tx, copies, { from: 'RESTORING', to: 'RESTORED' });
  await noteCopies(ctx, tx, stale, { from: 'RESTORING', to: 'ONTAPE' });
  const placed = new Set([...copies, ...stale].map((copy) => copy.fileId));
  const isElsewhere = ({ fileId, kind }: Judged) => kind !== 'standing' && !placed.has(fileId);
  const others = outcomes.filter(isElsewhere).map((outcome) => outcome.fileId);
  await moveFiles(ctx, tx, others, { from: 'RESTORING', to: 'ONTAPE' });
  const restoredIds = copies.map((copy) => copy.fileId);
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${restoredIds}::bigint[]) AND ${isUnheld}`,
  );
  const unheld = rows.map((file) => file.id);
  await moveFiles(ctx, tx, unheld, { from: 'RESTORED', to: 'ONTAPE' });
  return [...placed];
}

/**
 * What stands in the place of a file stands for it as a copy does that was changed by hand: as long as it is there. It is
 * not Tapegate's, and neither counted nor removed.
 */
async function placeStanding(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly Judged[],
  ended: ReadonlyMap<bigint, Reservation>,
): Promise<void> {
  const sums = new Map(outcomes.flatMap((o) => (o.kind === 'standing' ? [[o.fileId, o.checksum] as const] : [])));
  const moved = await moveFiles(ctx, tx, [...sums.keys()], { from: 'RESTORING', to: 'UNVERIFIED' });
  if (moved.length === 0) return;
  const diskIds = moved.map((fileId) => ended.get(fileId)?.diskId ?? null);
  const checksums = moved.map((fileId) => sums.get(fileId) ?? null);
  await tx.query(
    sql`UPDATE tape_file f SET changed_disk_id = m.disk_id, ${takeChecksum}
        FROM unnest(${moved}::bigint[], ${diskIds}::int[], ${checksums}::text[]) AS m (id, disk_id, checksum) WHERE f.id = m.id`,
  );
  await keepUnverified(ctx, tx, moved, NOT_OURS);
}

/** Moves files and notes their copies; that of a file that is not at RESTORING, as it should be, is noted as well. */
async function noteCopies(
  ctx: Context,
  tx: Transaction,
  copies: readonly (NewCopy & { fileId: bigint })[],
  move: Move,
): Promise<void> {
  const fileIds = copies.map((copy) => copy.fileId);
  const moved = new Set(await moveFiles(ctx, tx, fileIds, move, copies));
  const others = copies.filter((copy) => !moved.has(copy.fileId));
  if (others.length === 0) return;
  const ids = others.map((copy) => copy.fileId);
  await tx.query(sql`UPDATE tape_file f SET ${noteCopy} FROM ${newCopies(ids, others)} WHERE f.id = m.id`);
}

/** What those who hold the file are told; nothing while it is still to be recalled. */
function toHoldOutcome(outcome: Judged): HoldOutcome[] {
  const { fileId } = outcome;
  if (outcome.kind === 'restored' || outcome.kind === 'standing') return [{ fileId }];
  if (outcome.kind !== 'failed') return [];
  return [{ fileId, failure: { errorClass: outcome.errorClass, error: outcome.error } }];
}

/** A request that was made while its recall began was not seen then: it starts with the recall all the same. */
async function dateLateRequests(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  fileIds: readonly bigint[],
): Promise<void> {
  const late = await tx.query<{ id: number }>(
    sql`UPDATE request r SET tapestore_request_start = greatest(s.started_at, r.request_date) FROM (
          SELECT h.request_id, min(c.started_at) AS started_at FROM recall c JOIN hold h ON h.file_id = c.file_id
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isRunUnder(lease)} AND h.state = 'WAITING'
          GROUP BY h.request_id
        ) s WHERE r.id = s.request_id AND r.tapestore_request_start IS NULL AND ${isLive} RETURNING r.id`,
  );
  // it is RESTORING from now on, also where no file came of it
  const ids = late.map((request) => request.id);
  await advanceRequests(ctx, tx, ids);
}

/** Takes the recalls that have ended out of the queue and puts the others back, as far as the lease holds them. */
async function endRecalls(tx: Transaction, lease: Lease, outcomes: readonly Judged[]): Promise<Reservation[]> {
  const isOver = ({ kind }: Judged) => kind === 'restored' || kind === 'standing' || kind === 'failed';
  const over = outcomes.filter(isOver).map((outcome) => outcome.fileId);
  const gone = await tx.query<Reservation>(
    sql`DELETE FROM recall c WHERE c.file_id = ANY(${over}::bigint[]) AND c.state = 'RUNNING' AND ${isRunUnder(lease)}
        RETURNING file_id AS "fileId", size, disk_id AS "diskId"`,
  );
  const back = outcomes.filter((outcome) => !isOver(outcome));
  return back.length === 0 ? gone : [...gone, ...(await requeue(tx, lease, back))];
}

/** Before the recalls forget what they were about to put in place. */
async function noteUnseen(tx: Transaction, lease: Lease, outcomes: readonly RecallOutcome[]): Promise<void> {
  const unseen = outcomes.filter((outcome) => outcome.isUnseen);
  if (unseen.length === 0) return;
  const fileIds = unseen.map((outcome) => outcome.fileId);
  await noteLeftBehind(tx, sql`c.file_id = ANY(${fileIds}::bigint[]) AND ${isRunUnder(lease)}`);
}

/** The place is that of the file; what is read as another version has all of its tries before it. */
async function requeue(tx: Transaction, lease: Lease, back: readonly Judged[]): Promise<Reservation[]> {
  const told = back.map((outcome) => (outcome.kind === 'retry' || outcome.kind === 'postponed' ? outcome : undefined));
  const isTry = back.map((outcome) => outcome.kind === 'retry');
  const isOther = back.map((outcome) => outcome.kind === 'superseded');
  const fileIds = back.map((outcome) => outcome.fileId);
  const [classes, errors] = [told.map((o) => o?.errorClass ?? null), told.map((o) => o?.error ?? null)];
  const notBefore = back.map((o) => ('notBefore' in o ? (o.notBefore ?? null) : null));
  const queued = await tx.query<Reservation>(
    sql`UPDATE recall c SET ${waitingAgain}, not_before = b.not_before,
          attempts = CASE WHEN b.is_other THEN 0 ELSE c.attempts + b.is_try::int END,
          earlier_tries = CASE WHEN b.is_other THEN 0 ELSE c.earlier_tries END,
          error_class = CASE WHEN b.is_other THEN NULL ELSE coalesce(b.error_class, c.error_class) END,
          error = CASE WHEN b.is_other THEN NULL ELSE coalesce(b.error, c.error) END
        FROM unnest(${fileIds}::bigint[], ${classes}::"ErrorClass"[], ${errors}::text[], ${notBefore}::timestamp[],
            ${isOther}::bool[], ${isTry}::bool[]) AS b (file_id, error_class, error, not_before, is_other, is_try), recall old, tape_file f
        WHERE c.file_id = b.file_id AND old.file_id = c.file_id AND f.id = c.file_id
          AND c.state = 'RUNNING' AND ${isRunUnder(lease)}
        RETURNING c.file_id AS "fileId", old.size, old.disk_id AS "diskId"`,
  );
  const queuedIds = queued.map((recall) => recall.fileId);
  // a recall that went back into the queue while its last request ended has nobody left to wait for it
  await tx.query(
    sql`DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY(${queuedIds}::bigint[]) AND ${isWaiting}
          AND f.id = c.file_id AND ${isUnheld}`,
  );
  return queued;
}

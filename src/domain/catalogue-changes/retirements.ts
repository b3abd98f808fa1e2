/**
 * Retires volumes. First marks the volume as retired, so that drives stop reading the volume, and neither `archive` nor
 * imports add files to it. Then removes the volume's copies from the catalogue, in steps that hold the catalogue lock.
 * If the process dies, the next retirement of the volume continues the work.
 */

import { InUseError, NotFoundError, quote } from '../../core/errors.js';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { lockCatalogue } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { Volume } from '../../generated/prisma/client.js';
import { type AuditEntry, audited } from '../audit/audited.js';
import { affectedRequests, inSteps } from '../catalogue/chosen-files.js';
import { checkReason, withdrawLeaving } from '../catalogue/withdrawals.js';
import { hasPosition, isByPath, isClaimed, isLive, isOffered, isWithdrawn } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { withSlot } from '../turn.js';
import { followPositions, isOn, lockMoving, volumeColumns } from './volume-moves.js';

interface RetireVolumeInput {
  name: string;
  /** Reason for the retirement, shown to users who request a file that the retirement withdrew. */
  reason?: string | null | undefined;
  withdraw?: boolean | null | undefined;
  isDryRun?: boolean | null | undefined;
}

export interface RetiredVolume {
  /** Number of files with a copy on the volume, including files that were already withdrawn. */
  files: number;
  bytes: bigint;
  elsewhere: number;
  withdrawn: number;
  requests: number;
}

/**
 * Retires a volume.
 * @throws NotFoundError if the volume is unknown, or retired and empty
 * @throws InUseError if a drive uses the volume, or if files have no other copy and `withdraw` is not set
 * @throws InvalidInputError
 */
export async function retireVolume(ctx: Context, input: RetireVolumeInput): Promise<RetiredVolume> {
  const { name: given, reason, withdraw, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'retireVolume', kind: 'VOLUME', object: given, given: { reason, withdraw, isDryRun } },
    async (auditEntry) => {
      const name = checkText('name', given);
      const retirement = { name, reason: reason ? checkReason(reason) : null, withdraw: withdraw ?? false };
      if (isDryRun) return await computeDryRun(ctx, retirement);
      const { id, figures } = await withSlot(ctx, 'catalogue', () => markRetired(ctx, retirement, auditEntry));
      const stepEntry = (step: object) => auditEntry({ given: { ...step, reason, withdraw } });
      const removal: RetireStep = [
        sql`${isOn(id)} AND (${isElsewhere(id)} OR ${isWithdrawn})`,
        (tx) => removeCopiesStep(ctx, tx, id),
      ];
      const steps = [removal];
      if (retirement.withdraw) {
        const isLost = sql`${isOn(id)} AND ${isOffered} AND NOT ${isElsewhere(id)}`;
        steps.push([isLost, (tx, volume) => withdrawLost(ctx, tx, volume)], removal);
      }
      for (const [which, step] of steps) {
        await inSteps(
          ctx,
          { which, auditEntry: stepEntry },
          async (tx) => await step(tx, await readRetired(tx, { id, name })),
          (work) => transaction(ctx.db.pool, 'retireVolume', work),
        );
      }
      await rejectRemaining(ctx, { id, name });
      return figures;
    },
  );
}

type RetireStep = [which: Sql, step: (tx: Transaction, volume: Retired) => Promise<void>];

/**
 * SQL condition that is true if neither tape copy of the file `f` can be read. The first copy is unreadable if its
 * restore has failed in a live request. The second copy is unreadable if the catalogue contains an error for it.
 */
const hasFailedAtBoth = sql`(f.copy_error IS NOT NULL AND f.stage = 'ONTAPE' AND EXISTS (
  SELECT FROM request_file h JOIN request r ON r.id = h.request_id WHERE h.file_id = f.id AND NOT h.is_ended AND h.state = 'FAILED' AND ${isLive}
    AND h.error_class IN ('TRANSIENT', 'MEDIA', 'PERMANENT')))`;

/**
 * SQL condition that is true if the file `f` has another usable copy, at a known position or path on a volume that is
 * not retired.
 */
const isElsewhere = (volumeId: number): Sql => sql`(CASE WHEN f.volume_id = ${volumeId}
  THEN f.copy_error IS NULL AND EXISTS (SELECT FROM volume o WHERE o.id = f.copy_volume_id AND o.id <> ${volumeId} AND o.retired_at IS NULL)
    AND (f.copy_position IS NOT NULL OR ${isByPath(sql`f.copy_volume_id`)})
  ELSE EXISTS (SELECT FROM volume o WHERE o.id = f.volume_id AND o.retired_at IS NULL) AND ${hasPosition} AND NOT ${hasFailedAtBoth} END)`;

/** SQL assignments that remove the copy on the volume. The file's other copy becomes its first copy. */
const removeCopyOn = (volumeId: number): Sql => {
  const isFirst = sql`f.volume_id = ${volumeId}`;
  return sql`volume_id = CASE WHEN ${isFirst} THEN nullif(f.copy_volume_id, ${volumeId}) ELSE f.volume_id END,
    "position" = CASE WHEN ${isFirst} THEN CASE WHEN f.copy_volume_id <> ${volumeId} THEN f.copy_position END ELSE f.position END,
    copy_volume_id = NULL, copy_position = NULL, copy_error = NULL, copy_failed_at = NULL`;
};

interface Retirement {
  name: string;
  reason: string | null;
  withdraw: boolean;
}

/**
 * Computes what a retirement would change.
 * @throws NotFoundError, InUseError if the volume cannot be retired
 */
async function computeRetirement(
  tx: Transaction,
  { name, withdraw }: Retirement,
  volume: Pick<Volume, 'id' | 'retiredAt'>,
): Promise<RetiredVolume> {
  const { id, retiredAt } = volume;
  const figures = await readFigures(tx, id);
  if (retiredAt !== null && figures.files === 0) throw new NotFoundError(`volume ${quote(name)} is already retired`);
  await refuseInDrive(tx, { id, name });
  if (figures.withdrawn > 0 && !withdraw) throw await describeLostFiles(tx, { id, name });
  return figures;
}

async function computeDryRun(ctx: Context, retirement: Retirement): Promise<RetiredVolume> {
  return await transaction(ctx.db.pool, 'retireVolume', async (tx) => {
    const [volume] = await tx.query<Volume>(
      sql`SELECT ${volumeColumns} FROM volume v WHERE v.name = ${retirement.name}`,
    );
    if (!volume) throw new NotFoundError(`there is no volume ${quote(retirement.name)}`);
    return await computeRetirement(tx, retirement, volume);
  });
}

async function readFigures(tx: Transaction, id: number): Promise<RetiredVolume> {
  const [row] = await tx.query<Omit<RetiredVolume, 'bytes'> & { bytes: string }>(
    sql`WITH leaving AS MATERIALIZED (
          SELECT f.id, f.path, f.size, ${isElsewhere(id)} AS is_elsewhere, ${isOffered} AS is_offered FROM tape_file f WHERE ${isOn(id)}
        )
        SELECT count(*)::int AS files, coalesce(sum(l.size), 0)::text AS bytes,
          (count(*) FILTER (WHERE l.is_offered AND l.is_elsewhere))::int AS elsewhere,
          (count(*) FILTER (WHERE l.is_offered AND NOT l.is_elsewhere))::int AS withdrawn,
          (SELECT count(*)::int FROM request r WHERE r.id IN (${affectedRequests}) AND ${isLive}) AS requests
        FROM leaving l`,
  );
  const { bytes = '0', ...figures } = row ?? { files: 0, elsewhere: 0, withdrawn: 0, requests: 0 };
  return { ...figures, bytes: BigInt(bytes) };
}

async function refuseInDrive(tx: Transaction, { id, name }: { id: number; name: string }): Promise<void> {
  const isRead = sql`c.volume_id = ${id} AND c.state = 'RUNNING'`;
  const [use] = await tx.query<{ drive: string; isMounted: boolean; files: number; hasEngine: boolean }>(
    sql`SELECT d.name AS drive, ${isClaimed} AS "hasEngine", coalesce(d.volume_id = ${id}, false) AS "isMounted",
          (SELECT count(*)::int FROM recall c WHERE c.drive_id = d.id AND ${isRead}) AS files
        FROM drive d WHERE d.volume_id = ${id} OR d.id IN (SELECT c.drive_id FROM recall c WHERE ${isRead})
        ORDER BY files DESC, d.id LIMIT 1`,
  );
  if (!use) return;
  const { drive, isMounted, files, hasEngine } = use;
  const reads = `reads ${plural(files, 'file')} from it`;
  const does = files === 0 ? 'has it mounted' : `${isMounted ? 'has it mounted and ' : ''}${reads}`;
  const advice = hasEngine
    ? 'suspend or drain the volume, and try again when no drive uses it'
    : "the drive's engine has stopped: try again when another engine has recovered the drive";
  throw new InUseError(`volume ${quote(name)} is in use: ${drive} ${does}; ${advice}`);
}

const MAX_NAMED = 3;

async function describeLostFiles(tx: Transaction, { id, name }: { id: number; name: string }): Promise<InUseError> {
  const isLost = sql`${isOn(id)} AND ${isOffered} AND NOT ${isElsewhere(id)}`;
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(f.size), 0)::text AS bytes FROM tape_file f WHERE ${isLost}`,
  );
  const first = await tx.query<{ path: string }>(
    sql`SELECT f.path FROM tape_file f WHERE ${isLost} ORDER BY f.path USING ~<~ LIMIT ${MAX_NAMED}`,
  );
  const { files = 0, bytes = '0' } = sum ?? {};
  const more = files > MAX_NAMED ? ` and ${files - MAX_NAMED} more` : '';
  return new InUseError(
    `volume ${quote(name)} has the only usable copy of ${plural(files, 'file')} (${formatBytes(bytes)}): ${first
      .map(({ path }) => quote(path))
      .join(
        ', ',
      )}${more}; withdraw these files together with the volume, or first import their positions on other volumes`,
  );
}

/**
 * Marks the volume as retired. Locks the volume's row before the catalogue, because all transactions take these two
 * locks in this order.
 */
async function markRetired(
  ctx: Context,
  retirement: Retirement,
  auditEntry: AuditEntry,
): Promise<{ id: number; figures: RetiredVolume }> {
  return await transaction(ctx.db.pool, 'retireVolume', async (tx) => {
    const [volume] = await tx.query<Pick<Volume, 'id' | 'retiredAt'>>(
      sql`UPDATE volume v SET retired_at = coalesce(o.retired_at, ${ctx.now()}::timestamp),
            retired_reason = CASE WHEN o.retired_at IS NULL THEN ${retirement.reason} ELSE o.retired_reason END, failures = 0, failing_since = NULL,
            retry_at = NULL, problem = NULL
          FROM volume o WHERE v.name = ${retirement.name} AND o.id = v.id RETURNING v.id, o.retired_at AS "retiredAt"`,
    );
    if (!volume) throw new NotFoundError(`there is no volume ${quote(retirement.name)}`);
    await lockCatalogue(tx, 'alone');
    const figures = await computeRetirement(tx, retirement, volume);
    await tx.query(sql`DELETE FROM suspension WHERE kind = 'VOLUME' AND name = ${retirement.name}`);
    // if the volume was already retired, an earlier call has audited the retirement
    if (volume.retiredAt === null) await tx.query(auditEntry());
    return { id: volume.id, figures };
  });
}

interface Retired {
  id: number;
  name: string;
  reason: string | null;
}

/** Reads the retired volume's row. @throws InUseError if the volume has since been reinstated */
async function readRetired(tx: Transaction, { id, name }: { id: number; name: string }): Promise<Retired> {
  const [volume] = await tx.query<{ reason: string | null }>(
    sql`SELECT v.retired_reason AS reason FROM volume v WHERE v.id = ${id} AND v.retired_at IS NOT NULL`,
  );
  if (!volume) throw new InUseError(`volume ${quote(name)} was reinstated meanwhile, and keeps its remaining files`);
  return { id, name, reason: volume.reason };
}

async function removeCopiesStep(ctx: Context, tx: Transaction, id: number): Promise<void> {
  await lockMoving(tx);
  // check again under the locks, because a file's other copy might have failed since the first check
  await tx.query(
    sql`UPDATE tape_file f SET ${removeCopyOn(id)} FROM known k
        WHERE f.id = k.id AND ${isOn(id)} AND (${isElsewhere(id)} OR ${isWithdrawn}) AND NOT ${isBeingRead(id)}`,
  );
  // skip withdrawn files: no request waits for a withdrawn file, and its failed request files must keep their error
  // text
  await tx.query(sql`DELETE FROM known k USING tape_file f WHERE f.id = k.id AND ${isWithdrawn}`);
  await followPositions(ctx, tx);
}

const isBeingRead = (volumeId: number): Sql =>
  sql`EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.volume_id = ${volumeId} AND c.state = 'RUNNING')`;

async function withdrawLost(ctx: Context, tx: Transaction, { id, name, reason }: Retired): Promise<void> {
  const requestIds = await lockMoving(tx);
  await tx.query(sql`DELETE FROM leaving l USING tape_file f WHERE f.id = l.id AND ${isElsewhere(id)}`);
  await tx.query(sql`DELETE FROM known k WHERE NOT EXISTS (SELECT FROM leaving l WHERE l.id = k.id)`);
  const withdrawal = `volume ${name} was retired${reason === null ? '' : `: ${reason}`}`;
  await withdrawLeaving(ctx, tx, { requestIds, reason: withdrawal, isUnlisted: false });
  await tx.query(
    sql`UPDATE tape_file f SET ${removeCopyOn(id)} FROM known k WHERE f.id = k.id AND ${isOn(id)} AND NOT ${isBeingRead(id)}`,
  );
  await tx.query(sql`DELETE FROM verification w USING known k WHERE w.file_id = k.id`);
}

async function rejectRemaining(ctx: Context, { id, name }: { id: number; name: string }): Promise<void> {
  const rows = await ctx.db.rows<{ files: number; path: string | null }>(
    sql`SELECT count(*)::int AS files, min(f.path) AS path FROM tape_file f WHERE ${isOn(id)}`,
  );
  const { files = 0, path = null } = rows[0] ?? {};
  if (files === 0) return;
  throw new InUseError(
    `volume ${quote(name)} is retired, but still contains ${plural(files, 'file')} that were read or changed during the operation, such as ${quote(path ?? '')}: retire the volume again`,
  );
}

/**
 * Puts a retired volume back into use. The volume's files are not restored to the catalogue: an operator must import or
 * reinstate them.
 * @returns the volume's id
 * @throws NotFoundError
 */
export async function reinstateVolume(ctx: Context, given: string): Promise<number> {
  return await audited(ctx, { operation: 'reinstateVolume', kind: 'VOLUME', object: given }, async (auditEntry) => {
    const name = checkText('name', given);
    const [volume] = await ctx.db.rows<{ id: number; isReinstated: boolean }>(
      sql`WITH reinstated AS (
            UPDATE volume v SET retired_at = NULL, retired_reason = NULL WHERE v.name = ${name} AND v.retired_at IS NOT NULL RETURNING v.id, v.name
          ), recorded AS (${auditEntry({ each: sql`SELECT name FROM reinstated` })})
          SELECT v.id, EXISTS (SELECT FROM reinstated) AS "isReinstated" FROM volume v WHERE v.name = ${name}`,
    );
    if (!volume) throw new NotFoundError(`there is no volume ${quote(name)}`);
    if (!volume.isReinstated) throw new NotFoundError(`volume ${quote(name)} is not retired`);
    return volume.id;
  });
}

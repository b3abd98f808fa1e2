/**
 * Moves a volume's files to the same positions on another volume, after an operator has copied the cartridge. Each step
 * is a transaction that holds the catalogue lock. If the process dies, the next move of the volume continues the work.
 */

import { InUseError, InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { lockAdvisory, lockLibrariesKept, lockQuotas, lockRequests } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { Prisma, type Volume } from '../../generated/prisma/client.js';
import { audited } from '../audit/audited.js';
import { affectedRequests, type ChosenFiles, countChosen, inSteps, lockLeaving } from '../catalogue/chosen-files.js';
import { isSamePosition } from '../catalogue/versions.js';
import { describeRetired } from '../catalogue/volumes.js';
import { isChanged, isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { followChanges, settleFollowed } from '../import/import-apply.js';
import { checkText } from '../input.js';
import { columnsOf } from '../row-columns.js';

interface MoveVolumeInput {
  from: string;
  /**
   * Name of the new volume. If the catalogue does not contain the new volume, the move creates it in the old volume's
   * library, with the old volume's medium.
   */
  to: string;
  isDryRun?: boolean | null | undefined;
}

/**
 * Moves a volume's files.
 * @returns how many files have a copy on `from`, their total size in bytes, and how many requests contain them
 * @throws InvalidInputError
 * @throws NotFoundError if the volume is unknown or empty
 * @throws InUseError if a position on `to` is taken
 */
export async function moveVolume(ctx: Context, input: MoveVolumeInput): Promise<ChosenFiles> {
  const { from, to, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'moveVolume', kind: 'VOLUME', object: from, given: { to, isDryRun } },
    async (auditEntry) => {
      const names = { from: checkVolumeName('from', from), to: checkVolumeName('to', to) };
      if (names.from === names.to) {
        throw new InvalidInputError('to', `must differ from the source volume: both are ${quote(names.to)}`);
      }
      const query: Query = async <Row extends object>(statement: Sql) => (await ctx.db.pool.query<Row>(statement)).rows;
      const volumes = await findVolumes(query, names);
      const which = isOn(volumes.from.id);
      const chosen = await countChosen(ctx, which);
      if (chosen.files === 0) throw new NotFoundError(`volume ${quote(names.from)} contains no files`);
      await refuseTaken(query, volumes);
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which, auditEntry: (step) => auditEntry({ given: { ...step, to } }) },
        (tx) => moveStep(ctx, tx, names),
        (work) =>
          transaction(ctx.db.pool, 'moveVolume', async (tx) => {
            await prepareVolume(tx, names);
            return await work(tx);
          }),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

type Query = Transaction['query'];

interface Names {
  from: string;
  to: string;
}

interface Volumes {
  names: Names;
  from: Volume;
  to: Volume | undefined;
}

async function findVolumes(query: Query, names: Names): Promise<Volumes> {
  const rows = await query<Volume>(
    sql`SELECT ${volumeColumns} FROM volume v WHERE v.name IN (${names.from}, ${names.to})`,
  );
  const from = rows.find(({ name }) => name === names.from);
  const to = rows.find(({ name }) => name === names.to);
  if (!from) throw new NotFoundError(`there is no volume ${quote(names.from)}`);
  if (to?.retiredAt) {
    throw new InvalidInputError('to', `must not be retired: ${describeRetired(names.to, to.retiredReason)}`);
  }
  return { names, from, to };
}

/**
 * Creates the target volume, and reserves the positions that `archive` has reserved on the source volume. Must run
 * before the transaction locks the catalogue.
 */
async function prepareVolume(tx: Transaction, names: Names): Promise<void> {
  await lockLibrariesKept(tx);
  const { from, to } = await findVolumes(tx.query, names);
  if (to && to.used >= from.used && to.nextPosition >= from.nextPosition) return;
  await lockAdvisory(tx, 'positions');
  await tx.query(
    sql`INSERT INTO volume (name, library_id, medium, used, next_position)
        SELECT ${names.to}, v.library_id, v.medium, v.used, v.next_position FROM volume v WHERE v.id = ${from.id}
        ON CONFLICT (name) DO UPDATE SET used = greatest(volume.used, excluded.used),
          next_position = greatest(volume.next_position, excluded.next_position)`,
  );
}

/**
 * Moves the files in the temporary table `leaving` to the new volume. The caller must have locked the catalogue, which
 * prevents concurrent imports and retirements.
 */
async function moveStep(ctx: Context, tx: Transaction, names: Names): Promise<void> {
  const volumes = await findVolumes(tx.query, names);
  const { from, to } = volumes;
  if (!to) throw new NotFoundError(`there is no volume ${quote(names.to)} any more`);
  await addSharing(tx, from.id);
  await lockMoving(tx);
  await refuseTaken(tx.query, volumes, { isStep: true });
  const isFirst = sql`f.volume_id = ${from.id}`;
  const isSecond = sql`f.copy_volume_id = ${from.id}`;
  // do not change the files' copies on disk or their checksums, because the new cartridge contains the same bytes
  await tx.query(
    sql`UPDATE tape_file f SET
          volume_id = CASE WHEN ${isFirst} THEN ${to.id} ELSE f.volume_id END,
          copy_volume_id = CASE WHEN ${isSecond} THEN ${to.id} ELSE f.copy_volume_id END,
          copy_error = CASE WHEN ${isSecond} THEN NULL ELSE f.copy_error END,
          copy_failed_at = CASE WHEN ${isSecond} THEN NULL ELSE f.copy_failed_at END
        FROM known k WHERE f.id = k.id AND ${isOn(from.id)}`,
  );
  await followPositions(ctx, tx);
}

/**
 * Adds to the table `leaving` all files that share a position with a file in the table. Files that share a position
 * must move in the same step, because a later step would find the new position taken.
 */
async function addSharing(tx: Transaction, fromId: number): Promise<void> {
  await tx.query(
    sql`INSERT INTO leaving SELECT DISTINCT g.id, g.path, g.size FROM leaving l JOIN tape_file f ON f.id = l.id
          CROSS JOIN LATERAL (VALUES (f.volume_id, f.position), (f.copy_volume_id, f.copy_position)) AS p (volume_id, position)
          CROSS JOIN LATERAL (
            SELECT o.id, o.path, o.size FROM tape_file o WHERE o.volume_id = ${fromId} AND o.position = p.position
            UNION ALL
            SELECT o.id, o.path, o.size FROM tape_file o WHERE o.copy_volume_id = ${fromId} AND o.copy_position = p.position
          ) g
        WHERE p.volume_id = ${fromId} AND NOT EXISTS (SELECT FROM leaving t WHERE t.id = g.id)`,
  );
}

/**
 * @throws InUseError if a position on `to` is taken, or `to` contains a file's other copy
 * @throws InvalidInputError if `to` is in another library
 */
async function refuseTaken(
  query: Query,
  { names, from, to }: Volumes,
  { isStep = false }: { isStep?: boolean } = {},
): Promise<void> {
  if (!to) return;
  const moving = isStep ? sql`known k JOIN tape_file f ON f.id = k.id` : sql`tape_file f`;
  const [twice] = await query<{ path: string }>(
    sql`SELECT f.path FROM ${moving} WHERE ${isOn(from.id)} AND ${isOn(to.id)} ORDER BY f.path LIMIT 1`,
  );
  if (twice) {
    throw new InUseError(
      `file ${quote(twice.path)} has one copy on volume ${quote(names.from)} and the other on ${quote(names.to)}: both would be on ${quote(names.to)}`,
    );
  }
  const [taken] = await query<{ path: string; other: string; position: bigint }>(
    sql`SELECT f.path, g.path AS other, p.position FROM ${moving}
          CROSS JOIN LATERAL (VALUES (f.volume_id, f.position), (f.copy_volume_id, f.copy_position)) AS p (volume_id, position)
          CROSS JOIN LATERAL (
            SELECT o.id, o.path, o.size, o.checksum FROM tape_file o WHERE o.volume_id = ${to.id} AND o.position = p.position
            UNION ALL
            SELECT o.id, o.path, o.size, o.checksum FROM tape_file o WHERE o.copy_volume_id = ${to.id} AND o.copy_position = p.position
          ) g
        WHERE ${isOn(from.id)} AND p.volume_id = ${from.id} AND NOT ${isOneCopy} LIMIT 1`,
  );
  if (taken) {
    throw new InUseError(
      `position ${taken.position} on volume ${quote(names.to)} already contains file ${quote(taken.other)}: file ${quote(taken.path)} on volume ${quote(names.from)} has the same position`,
    );
  }
  if (to.libraryId !== from.libraryId) {
    throw new InvalidInputError(
      'to',
      `must be in the same library as ${quote(names.from)}, but ${quote(names.to)} is not: import the new positions of the files instead`,
    );
  }
}

/** SQL condition that is true if the files `f` and `g` have the same bytes and can therefore share a position. */
const isOneCopy = sql`(g.size = f.size AND coalesce(g.checksum = f.checksum, false))`;

export const volumeColumns = columnsOf(Prisma.VolumeScalarFieldEnum, 'v');

export const isOn = (volumeId: number): Sql => sql`(f.volume_id = ${volumeId} OR f.copy_volume_id = ${volumeId})`;

const MAX_NAME = 255;

function checkVolumeName(field: string, value: string): string {
  const name = checkText(field, value);
  if (name.trim() === '' || name.length > MAX_NAME) {
    throw new InvalidInputError(field, `must be a name of 1 to ${MAX_NAME} characters, not ${quote(name)}`);
  }
  return name;
}

/**
 * Locks the files in the table `leaving`, the requests that contain these files, and the quotas of these requests.
 * Copies the files to the temporary table `known`.
 * @returns the request ids
 */
export async function lockMoving(tx: Transaction): Promise<number[]> {
  const requestIds = await lockRequests(tx, sql`${isLive} AND r.id IN (${affectedRequests})`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockLeaving(tx);
  await tx.query(
    sql`CREATE TEMP TABLE known ON COMMIT DROP AS
        SELECT f.id, f.stage, f.size, f.checksum, f.volume_id, f.position, f.copy_volume_id, f.copy_position, f.disk_id,
          f.changed_disk_id FROM leaving l JOIN tape_file f ON f.id = l.id ORDER BY f.id`,
  );
  await tx.query(sql`ANALYZE known`);
  return requestIds;
}

/**
 * Updates the positions of waiting recalls for files in the table `known`, and resets the recalls' attempt counts.
 * Retries failed request files if the move changes which tape copy drives read.
 */
export async function followPositions(ctx: Context, tx: Transaction): Promise<void> {
  // delete recorded verification failures of tape copies on the old volume, because drives no longer read these copies
  await tx.query(
    sql`DELETE FROM verification w USING known k, tape_file f
        WHERE w.file_id = k.id AND f.id = k.id AND NOT ${isSamePosition('k', 'f')} AND NOT ${isChanged}`,
  );
  await settleFollowed(ctx, tx, await followChanges(ctx, tx));
  await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
}

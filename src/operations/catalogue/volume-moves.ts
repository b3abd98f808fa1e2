/**
 * A cartridge was copied 1:1 onto another one: its files are said to be on that, at the same positions. Nothing is copied here.
 *
 * In steps, each a transaction that holds the catalogue's lock alone. Who is killed in between has moved a part, and the next call does the rest:
 * a file is on the one volume or on the other.
 */
import type { Context } from '../../context.js';
import { lockAdvisory, lockLibrariesKept } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { audited } from '../audit/audited.js';
import { isOffered } from '../conditions.js';
import { allow } from '../policy.js';
import { type ChosenFiles, countChosen, inSteps } from './chosen-files.js';
import { dropStale } from './import-apply.js';
import { tellRetired } from './retired.js';
import {
  type Ask,
  asking,
  checkVolumeName,
  followPlaces,
  isOn,
  type KnownVolume,
  lockMoving,
  volumeColumns,
} from './volume-steps.js';

export interface MoveVolumeInput {
  from: string;
  /** Is made, of the same library and medium, where nobody knows it. */
  to: string;
  /** Only says what would be done. */
  isDryRun?: boolean | null | undefined;
}

/**
 * @returns the files that have a copy on `from`, be it the first or the second
 * @throws InvalidInputError; NotFoundError for an unknown volume, and where nothing is on it; InUseError where a place of `to` is taken
 */
export async function moveVolume(ctx: Context, input: MoveVolumeInput): Promise<ChosenFiles> {
  const { from, to, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'moveVolume', kind: 'VOLUME', object: from, given: { to, isDryRun } },
    async (note) => {
      allow(ctx, 'moveVolume');
      const names = { from: checkVolumeName('from', from), to: checkVolumeName('to', to) };
      if (names.from === names.to) {
        throw new InvalidInputError('to', `must be another volume than from, and both are ${quote(names.to)}`);
      }
      const volumes = await findVolumes(asking(ctx), names);
      const which = isOn(volumes.from.id);
      const chosen = await countChosen(ctx, which);
      if (chosen.files === 0) throw new NotFoundError(`nothing is on volume ${quote(names.from)}`);
      await refuseTaken(asking(ctx), volumes);
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which, note: (step) => note({ given: { ...step, to } }) },
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

interface Names {
  from: string;
  to: string;
}

interface Volumes {
  names: Names;
  from: KnownVolume;
  /** Undefined: it is to be made. */
  to: KnownVolume | undefined;
}

async function findVolumes(ask: Ask, names: Names): Promise<Volumes> {
  const rows = await ask<KnownVolume & { name: string }>(
    sql`SELECT v.name, ${volumeColumns} FROM volume v WHERE v.name IN (${names.from}, ${names.to})`,
  );
  const from = rows.find(({ name }) => name === names.from);
  const to = rows.find(({ name }) => name === names.to);
  if (!from) throw new NotFoundError(`there is no volume ${quote(names.from)}`);
  if (to?.retiredAt) {
    throw new InvalidInputError('to', `must not be retired: ${tellRetired(names.to, to.retiredWhy)}`);
  }
  return { names, from, to };
}

/**
 * Makes the volume that files move to, and has `archive` give none of the places that were given out on the other one, on which it may have
 * written anything. Before the catalogue is locked, as the order of locks has it.
 */
async function prepareVolume(tx: Transaction, names: Names): Promise<void> {
  await lockLibrariesKept(tx);
  const { from, to } = await findVolumes(tx.query, names);
  if (to && to.used >= from.used && to.nextPosition >= from.nextPosition) return;
  await lockAdvisory(tx, 'places');
  await tx.query(
    sql`INSERT INTO volume (name, library_id, medium, used, next_position)
        SELECT ${names.to}, v.library_id, v.medium, v.used, v.next_position FROM volume v WHERE v.id = ${from.id}
        ON CONFLICT (name) DO UPDATE SET used = greatest(volume.used, excluded.used),
          next_position = greatest(volume.next_position, excluded.next_position)`,
  );
}

/** The files of a step are in `leaving`, and the catalogue is locked: since then no import gives a file a place, and nobody retires a volume. */
async function moveStep(ctx: Context, tx: Transaction, names: Names): Promise<void> {
  const volumes = await findVolumes(tx.query, names);
  const { from, to } = volumes;
  if (!to) throw new NotFoundError(`there is no volume ${quote(names.to)} any more`);
  await takeSharing(tx, from.id);
  await lockMoving(tx);
  await refuseTaken(tx.query, volumes, { isStep: true });
  const isFirst = sql`f.volume_id = ${from.id}`;
  const isSecond = sql`f.copy_volume_id = ${from.id}`;
  // a withdrawn file is not read again: the copy that some still have stays theirs
  const isVoid = sql`(f.checksum_taken AND coalesce(${isFirst}, false) AND (${isOffered} OR f.stage = 'ONTAPE'))`;
  await tx.query(
    sql`UPDATE tape_file f SET
          volume_id = CASE WHEN ${isFirst} THEN ${to.id} ELSE f.volume_id END,
          checksum = CASE WHEN ${isVoid} THEN NULL ELSE f.checksum END, checksum_taken = f.checksum_taken AND NOT ${isVoid},
          copy_volume_id = CASE WHEN ${isSecond} THEN ${to.id} ELSE f.copy_volume_id END,
          copy_error = CASE WHEN ${isSecond} THEN NULL ELSE f.copy_error END,
          copy_failed_at = CASE WHEN ${isSecond} THEN NULL ELSE f.copy_failed_at END
        FROM known k WHERE f.id = k.id AND ${isOn(from.id)}`,
  );
  await dropStale(ctx, tx);
  await followPlaces(ctx, tx);
}

/** Files may share a place. They move together, so that no step finds a place taken by what an earlier one has moved. */
async function takeSharing(tx: Transaction, fromId: number): Promise<void> {
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

/** @throws InUseError where a place is another file's, or a file would have both of its copies on one volume; InvalidInputError */
async function refuseTaken(
  ask: Ask,
  { names, from, to }: Volumes,
  { isStep = false }: { isStep?: boolean } = {},
): Promise<void> {
  if (!to) return;
  const moving = isStep ? sql`known k JOIN tape_file f ON f.id = k.id` : sql`tape_file f`;
  const [twice] = await ask<{ path: string }>(
    sql`SELECT f.path FROM ${moving} WHERE ${isOn(from.id)} AND ${isOn(to.id)} ORDER BY f.path LIMIT 1`,
  );
  if (twice) {
    throw new InUseError(
      `file ${quote(twice.path)} has one copy on volume ${quote(names.from)} and the other on ${quote(names.to)}: both would be on ${quote(names.to)}`,
    );
  }
  const [taken] = await ask<{ path: string; other: string; position: bigint }>(
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
      `position ${taken.position} of volume ${quote(names.to)} has file ${quote(taken.other)}, and would have ${quote(taken.path)} of volume ${quote(names.from)} as well`,
    );
  }
  if (to.libraryId !== from.libraryId) {
    throw new InvalidInputError(
      'to',
      `must be of the library of ${quote(names.from)}, where cartridges are copied, and ${quote(names.to)} is of another one: import says where files are there`,
    );
  }
}

/** Two names of the same bytes share a place, so that one of them may have come there after the other has moved. */
const isOneCopy = sql`(g.size = f.size AND coalesce(g.checksum = f.checksum, false))`;

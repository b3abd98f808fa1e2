/** Lists volumes, counts their files, sets their media, and reserves positions for `archive`. */

import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { lockAdvisory } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import type { Volume } from '../../generated/prisma/client.js';
import { media } from '../../planner/media.js';
import { audited } from '../audit/audited.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { FIRST_LIBRARY } from '../libraries/libraries.js';
import { atListServer } from '../list-server.js';
import { keyedList } from '../page-keys.js';
import { allow } from '../policy.js';

interface ListVolumesInput {
  retired?: boolean | null | undefined;
}

const isListed = ({ retired }: ListVolumesInput): Sql => (retired ? sql`true` : sql`v.retired_at IS NULL`);

export function listVolumes(ctx: Context, input: ListVolumesInput = {}) {
  allow(ctx, 'listVolumes');
  const list = { rows: sql`volume v WHERE ${isListed(input)}`, id: sql`v.id`, key: sql`v.name` };
  return keyedList<number, Volume>(ctx, list, (at, id, query) =>
    at.db.prisma.volume.findMany({ ...query, where: { id }, orderBy: { name: 'asc' } }),
  );
}

/** Returns a volume by its name. Returns null if the volume is unknown. */
export async function getVolume(ctx: Context, name: string, query: object = {}): Promise<Volume | null> {
  allow(ctx, 'getVolume');
  return await ctx.db.prisma.volume.findUnique({ ...query, where: { name: checkText('name', name) } });
}

/** Selects one row for each tape copy in the catalogue. A file with two tape copies has two rows. */
const copies = sql`SELECT f.id, f.volume_id, f.size FROM tape_file f UNION ALL SELECT f.id, f.copy_volume_id, f.size FROM tape_file f WHERE f.copy_volume_id IS NOT NULL`;

/** Returns the numbers of files and bytes on volumes, by volume id. */
export async function readVolumeFiguresOf(
  ctx: Context,
  volumeIds: readonly number[],
  reader?: AbortSignal,
): Promise<Map<number, { files: number; bytes: bigint }>> {
  allow(ctx, 'readVolumeFiguresOf');
  const statement = sql`SELECT f.volume_id AS id, count(*)::int AS files, sum(f.size) AS bytes FROM (${copies}) f
    WHERE f.volume_id = ANY(${volumeIds}::int[]) GROUP BY f.volume_id`;
  type Row = { id: number; files: number; bytes: bigint };
  const rows = await atListServer(ctx, (at) => askAtLength<Row>(at, statement, reader));
  return new Map(rows.map(({ id, files, bytes }) => [id, { files, bytes }]));
}

export async function hasVolumes(ctx: Context): Promise<boolean> {
  const rows = await ctx.db.rows<{ has: boolean }>(
    sql`SELECT EXISTS (SELECT FROM volume v WHERE v.library_id = ${FIRST_LIBRARY}) AS has`,
  );
  return rows[0]?.has ?? false;
}

export interface TapePosition {
  volume: string;
  position: bigint;
}

/** Pattern for the names that `archive` gives to new volumes. */
export const archiveVolumes = /^TG[0-9]{4,18}$/;

/**
 * Begins a new volume if the position `last`, which a file on tape uses, is not reserved in the catalogue. The
 * catalogue loses reservations if the database is restored from an older backup, or if a failover loses transactions.
 */
export async function skipUsedPositions(ctx: Context, last: TapePosition): Promise<void> {
  const { volume, position } = last;
  const number = BigInt(volume.slice(2));
  await transaction(ctx.db.pool, 'skipUsedPositions', async (tx) => {
    await lockAdvisory(tx, 'positions');
    await tx.query(
      sql`INSERT INTO volume (name, used, next_position) SELECT ${nameOf(number + 1n)}, 0, 1
          WHERE NOT EXISTS (SELECT FROM volume v WHERE v.name ~ ${archiveVolumes.source}
            AND (substr(v.name, 3)::bigint, v.next_position) > (${number}::bigint, ${position}::bigint))`,
    );
  });
}

interface OpenVolume {
  number: bigint;
  used: bigint;
  nextPosition: bigint;
  /**
   * Whether positions on the volume cannot be reserved, because the volume is suspended or belongs to another library.
   */
  isClosed: boolean;
}

/**
 * Reserves the next positions for files on the newest volume in the first library. Begins a new volume if the newest
 * volume is closed or full. A position is never reserved twice, even if nothing is written to it.
 */
export async function reservePositions(
  ctx: Context,
  { sizes, volumeSize }: { sizes: readonly bigint[]; volumeSize: bigint },
): Promise<TapePosition[]> {
  return await transaction(ctx.db.pool, 'reservePositions', async (tx) => {
    await lockAdvisory(tx, 'positions');
    const [newest] = await tx.query<OpenVolume>(
      sql`SELECT substr(v.name, 3)::bigint AS number, v.used, v.next_position AS "nextPosition",
            v.library_id <> ${FIRST_LIBRARY} OR EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AS "isClosed"
          FROM volume v WHERE v.name ~ ${archiveVolumes.source} ORDER BY 1 DESC LIMIT 1`,
    );
    const filled = new Map<bigint, OpenVolume>();
    let volume = newest ?? { number: 0n, used: volumeSize, nextPosition: 1n, isClosed: false };
    const positions = sizes.map((size) => {
      const isFull = volume.used > 0n && volume.used + size > volumeSize;
      if (volume.number === 0n || volume.isClosed || isFull) {
        volume = { number: volume.number + 1n, used: 0n, nextPosition: 1n, isClosed: false };
      }
      filled.set(volume.number, volume);
      volume.used += size;
      return { volume: nameOf(volume.number), position: volume.nextPosition++ };
    });
    const volumes = [...filled.values()];
    const names = volumes.map((v) => nameOf(v.number));
    const [used, next] = [volumes.map((v) => v.used), volumes.map((v) => v.nextPosition)];
    await tx.query(
      sql`INSERT INTO volume (name, used, next_position)
          SELECT * FROM unnest(${names}::text[], ${used}::bigint[], ${next}::bigint[])
          ON CONFLICT (name) DO UPDATE SET used = excluded.used, next_position = excluded.next_position`,
    );
    return positions;
  });
}

function nameOf(number: bigint): string {
  return `TG${String(number).padStart(4, '0')}`;
}

export async function readVolumes({ db }: Context, ids: readonly number[]): Promise<Map<number, Volume>> {
  const volumes = await db.prisma.volume.findMany({ where: { id: { in: [...ids] } } });
  return new Map(volumes.map((volume) => [volume.id, volume]));
}

export function describeRetired(name: string, reason: string | null): string {
  return `volume ${quote(name)} was retired: ${reason ?? 'it does not accept new files'}`;
}

export async function findVolume(ctx: Context, name: string): Promise<Volume | null> {
  allow(ctx, 'importRows');
  return await ctx.db.prisma.volume.findUnique({ where: { name } });
}

/**
 * Sets the medium of the volumes in `names`. If `names` is absent, sets the medium of all volumes. If any name is
 * unknown, changes nothing.
 * @throws InvalidInputError, NotFoundError
 */
export async function setMedium(
  ctx: Context,
  input: { medium: string; names?: readonly string[] | undefined },
): Promise<number> {
  const { medium, names: given = [] } = input;
  const object = given.length === 1 ? (given[0] ?? '') : '';
  const action = { operation: 'setMedium', kind: 'VOLUME', object, given: { medium, names: given } } as const;
  return await audited(ctx, action, async (auditEntry) => {
    if (!Object.hasOwn(media, medium)) {
      throw new InvalidInputError('medium', `must be one of ${Object.keys(media).join(', ')}, not ${quote(medium)}`);
    }
    const names = input.names && [...new Set(input.names.map((name) => checkText('names', name)))];
    const isChosen = names ? sql`v.name = ANY(${names}::text[])` : sql`true`;
    const rows = await ctx.db.rows<{ name: string }>(
      sql`SELECT n.name FROM unnest(${names ?? []}::text[]) WITH ORDINALITY AS n (name, ordinal)
          WHERE NOT EXISTS (SELECT FROM volume v WHERE v.name = n.name) ORDER BY n.ordinal LIMIT 1`,
    );
    if (rows[0]) throw new NotFoundError(`there is no volume ${quote(rows[0].name)}`);
    const { prisma } = ctx.db;
    const changed = prisma.$executeRaw(sql`UPDATE volume v SET medium = ${medium} WHERE ${isChosen}`);
    const [count] = await prisma.$transaction([changed, prisma.$executeRaw(auditEntry())]);
    return count;
  });
}

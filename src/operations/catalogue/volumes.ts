/** Volumes: listed, and as `archive` fills them. */
import type { Context } from '../../context.js';
import { lockAdvisory } from '../../database/locks.js';
import { askAtLength } from '../../database/snapshot.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { NotFoundError } from '../../errors.js';
import type { Prisma, Volume } from '../../generated/prisma/client.js';
import { FIRST_LIBRARY } from '../libraries/libraries.js';
import { atListServer } from '../list-server.js';
import { countRows, type KeyPage, readPageRows } from '../page-keys.js';
import { allow } from '../policy.js';

export interface ListVolumesInput {
  /** Retired ones as well, which are left out else. */
  retired?: boolean | null | undefined;
}

const isListed = ({ retired }: ListVolumesInput): Sql => (retired ? sql`true` : sql`v.retired_at IS NULL`);

/** In order of their names: counted, or by the page. */
export function listVolumes(ctx: Context, input: ListVolumesInput = {}) {
  allow(ctx, 'listVolumes');
  const rows = sql`volume v WHERE ${isListed(input)}`;
  return {
    count: () => atListServer(ctx, 'listVolumes', (at) => countRows(at, { rows })),
    page: (page: KeyPage<string>, query: Pick<Prisma.VolumeFindManyArgs, 'include' | 'select'>) =>
      atListServer(ctx, 'listVolumes', (at) =>
        readPageRows(at, { rows, id: sql`v.id`, key: sql`v.name` }, page, (ids: number[]) => {
          const where = { id: { in: ids } };
          return at.db.prisma.volume.findMany({ ...(query as object), where, orderBy: { name: 'asc' } });
        }),
      ),
  };
}

/** By its id. */
export async function getVolume(
  ctx: Context,
  id: number,
  query: Pick<Prisma.VolumeFindManyArgs, 'include' | 'select'>,
) {
  allow(ctx, 'listVolumes');
  const volume = await ctx.db.prisma.volume.findUnique({ ...(query as object), where: { id } });
  if (!volume) throw new NotFoundError('the volume was removed meanwhile');
  return volume;
}

/** What a volume holds. */
export interface VolumeFigures {
  name: string;
  /** Of its library. */
  library: string;
  medium: string;
  files: number;
  bytes: bigint;
  /** Null: it is in use. */
  retiredAt: string | null;
  retiredWhy: string | null;
}

/** What is on volumes: a file that is on tape twice is on both. */
const placed = sql`SELECT f.id, f.volume_id, f.size FROM tape_file f UNION ALL SELECT f.id, f.copy_volume_id, f.size FROM tape_file f WHERE f.copy_volume_id IS NOT NULL`;

/** Of all volumes, in order of their names. */
export async function readVolumeFigures(ctx: Context, input: ListVolumesInput = {}): Promise<VolumeFigures[]> {
  allow(ctx, 'readVolumeFiguresOf');
  const { rows } = await ctx.db.pool.query<VolumeFigures>(
    sql`SELECT v.name, coalesce(b.name, ${ctx.config.tapeBackend}) AS library, v.medium, count(f.id)::int AS files, coalesce(sum(f.size), 0) AS bytes,
          v.retired_at AS "retiredAt", v.retired_why AS "retiredWhy"
        FROM volume v JOIN library b ON b.id = v.library_id LEFT JOIN (${placed}) f ON f.volume_id = v.id WHERE ${isListed(input)} GROUP BY v.id, b.name ORDER BY v.name`,
  );
  return rows;
}

/** Of some volumes, by their ids. @param reader aborts when nobody waits for it any more */
export async function readVolumeFiguresOf(
  ctx: Context,
  volumeIds: readonly number[],
  reader?: AbortSignal,
): Promise<Map<number, Pick<VolumeFigures, 'files' | 'bytes'>>> {
  allow(ctx, 'readVolumeFiguresOf');
  const statement = sql`SELECT f.volume_id AS id, count(*)::int AS files, sum(f.size) AS bytes FROM (${placed}) f
    WHERE f.volume_id = ANY(${volumeIds}::int[]) GROUP BY f.volume_id`;
  type Row = { id: number; files: number; bytes: bigint };
  const rows = await atListServer(ctx, 'readVolumeFiguresOf', (at) => askAtLength<Row>(at, statement, reader));
  return new Map(rows.map(({ id, files, bytes }) => [id, { files, bytes }]));
}

/** Does the catalogue know any of the first library, with files or without? */
export async function hasVolumes(ctx: Context): Promise<boolean> {
  const { rows } = await ctx.db.pool.query<{ has: boolean }>(
    sql`SELECT EXISTS (SELECT FROM volume v WHERE v.library_id = ${FIRST_LIBRARY}) AS has`,
  );
  return rows[0]?.has ?? false;
}

export interface Place {
  volume: string;
  position: bigint;
}

interface OpenVolume {
  number: bigint;
  used: bigint;
  nextPosition: bigint;
  /** Out of service, retired, or another library's: nothing more is put on it. */
  isClosed: boolean;
}

/**
 * Gives files the next places on the newest volume of the first library, in order, and begins a new one when that is out of service or retired, and
 * whenever the next file would not fit; a file larger than a volume gets one of its own. A place is given out once,
 * whatever becomes of it.
 * @param sizes of the files, in bytes
 */
export async function placeFiles(
  ctx: Context,
  { sizes, volumeSize }: { sizes: readonly bigint[]; volumeSize: bigint },
): Promise<Place[]> {
  return await transaction(ctx.db.pool, 'placeFiles', async (tx) => {
    await lockAdvisory(tx, 'places');
    const [newest] = await tx.query<OpenVolume>(
      sql`SELECT substr(v.name, 3)::bigint AS number, v.used, v.next_position AS "nextPosition",
            v.library_id <> ${FIRST_LIBRARY} OR EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AS "isClosed"
          FROM volume v WHERE v.name ~ '^TG[0-9]{4,18}$' ORDER BY 1 DESC LIMIT 1`,
    );
    const filled = new Map<bigint, OpenVolume>();
    let volume = newest ?? { number: 0n, used: volumeSize, nextPosition: 1n, isClosed: false };
    const places = sizes.map((size) => {
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
    return places;
  });
}

function nameOf(number: bigint): string {
  return `TG${String(number).padStart(4, '0')}`;
}

/** Reads volumes by their ids. */
export async function readVolumes({ db }: Context, ids: readonly number[]): Promise<Map<number, Volume>> {
  const volumes = await db.prisma.volume.findMany({ where: { id: { in: [...ids] } } });
  return new Map(volumes.map((volume) => [volume.id, volume]));
}

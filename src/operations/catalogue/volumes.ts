/** Volumes as `archive` fills them. */
import type { Context } from '../../context.js';
import { lockVolumes, transaction } from '../../database/transaction.js';

export interface Place {
  volume: string;
  position: bigint;
}

interface OpenVolume {
  number: bigint;
  used: bigint;
  nextPosition: bigint;
  /** Out of service: nothing more is put on it. */
  isSuspended: boolean;
}

/**
 * Gives files the next places on the newest volume, in order, and begins a new one when that is out of service, and
 * whenever the next file would not fit; a file larger than a volume gets one of its own. A place is given out once, whatever becomes of it.
 * @param sizes of the files, in bytes
 */
export async function placeFiles(
  ctx: Context,
  { sizes, volumeSize }: { sizes: readonly bigint[]; volumeSize: bigint },
): Promise<Place[]> {
  return await transaction(ctx.db.pool, async (tx) => {
    await lockVolumes(tx);
    const [newest] = await tx.query<OpenVolume>(
      `SELECT substr(name, 3)::bigint AS number, used, next_position AS "nextPosition",
         EXISTS (SELECT FROM suspension s WHERE s.kind = 'VOLUME' AND s.name = volume.name) AS "isSuspended" FROM volume
       WHERE name ~ '^TG[0-9]{4,18}$' ORDER BY 1 DESC LIMIT 1`,
    );
    const filled = new Map<bigint, OpenVolume>();
    let volume = newest ?? { number: 0n, used: volumeSize, nextPosition: 1n, isSuspended: false };
    const places = sizes.map((size) => {
      const isFull = volume.used > 0n && volume.used + size > volumeSize;
      if (volume.number === 0n || volume.isSuspended || isFull) {
        volume = { number: volume.number + 1n, used: 0n, nextPosition: 1n, isSuspended: false };
      }
      filled.set(volume.number, volume);
      volume.used += size;
      return { volume: nameOf(volume.number), position: volume.nextPosition++ };
    });
    const volumes = [...filled.values()];
    await tx.query(
      `INSERT INTO volume (name, used, next_position) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
       ON CONFLICT (name) DO UPDATE SET used = excluded.used, next_position = excluded.next_position`,
      [volumes.map((v) => nameOf(v.number)), volumes.map((v) => v.used), volumes.map((v) => v.nextPosition)],
    );
    return places;
  });
}

function nameOf(number: bigint): string {
  return `TG${String(number).padStart(4, '0')}`;
}

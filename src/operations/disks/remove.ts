/** Restore disks are taken out of use for good. */
import type { Context } from '../../context.js';
import { lockDisks } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InUseError, NotFoundError, quote } from '../../errors.js';
import { audited, type Note } from '../audit/audited.js';
import { isChanged } from '../conditions.js';
import { allow } from '../policy.js';
import { checkMountpoint, type DiskRow } from './disks.js';

/**
 * Forgets a restore disk that holds nothing. What stands on it is left alone.
 * @returns what it was
 * @throws InvalidInputError; NotFoundError; InUseError with the figures, while copies are noted on it or recalls will put some there
 */
export async function forgetDisk(ctx: Context, given: string): Promise<DiskRow> {
  return await audited(ctx, { operation: 'forgetDisk', kind: 'DISK', object: given }, (note) =>
    forget(ctx, given, note),
  );
}

async function forget(ctx: Context, given: string, note: Note): Promise<DiskRow> {
  allow(ctx, 'forgetDisk');
  const mountpoint = checkMountpoint(given);
  return await transaction(ctx.db.pool, 'forgetDisk', async (tx) => {
    // locked first and judged in a second statement, which sees what whoever had it locked before has put there
    await lockDisks(tx, sql`k.mountpoint = ${mountpoint}`);
    const [disk] = await tx.query<DiskRow & { copies: number; copyBytes: bigint; running: number; changed: number }>(
      sql`SELECT k.id, k.mountpoint, k.size, k.used, k.reserved, c.copies, c.bytes AS "copyBytes",
            (SELECT count(*)::int FROM recall c WHERE c.disk_id = k.id) AS running,
            (SELECT count(*)::int FROM tape_file f WHERE f.changed_disk_id = k.id AND ${isChanged}) AS changed
          FROM restore_disk k CROSS JOIN LATERAL (
            SELECT count(*)::int AS copies, coalesce(sum(f.size), 0) AS bytes FROM tape_file f WHERE f.disk_id = k.id
          ) c WHERE k.mountpoint = ${mountpoint}`,
    );
    if (!disk) throw new NotFoundError(`there is no restore disk ${quote(mountpoint)}`);
    const { copies, copyBytes, running, changed, ...row } = disk;
    if (copies > 0 || running > 0) {
      throw new InUseError(
        `the restore disk ${quote(mountpoint)} holds ${copies} copies of ${copyBytes} bytes and has ${running} recalls under way: drain it, and remove it when they have gone`,
      );
    }
    if (changed > 0) {
      throw new InUseError(
        `the restore disk ${quote(mountpoint)} has ${changed} copies that were changed by hand and are all there is of their files on disk: take them away, and have doctor --repair look`,
      );
    }
    await tx.query(sql`DELETE FROM restore_disk k WHERE k.id = ${row.id}`);
    await tx.query(sql`DELETE FROM suspension WHERE kind = 'DISK' AND name = ${mountpoint}`);
    await tx.query(note());
    return row;
  });
}

/** Restore disks are taken out of use for good. */

import type { Context } from '../../context.js';
import { lockDisks } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InUseError, NotFoundError, quote } from '../../errors.js';
import { plural } from '../../plural.js';
import { audited, type Note } from '../audit/audited.js';
import { isChanged } from '../conditions.js';
import { allow } from '../policy.js';
import { checkMountpoint, type DiskRow } from './disks.js';

export interface ForgottenDisk extends DiskRow {
  /** Logical paths of files that recalls may have left there, whole or in part, and nobody could look for: the first 100. */
  leftBehind: string[];
}

const MOST_LEFT = 100;

/**
 * Forgets a restore disk that holds nothing. What stands on it is left alone. What recalls have left there is looked for by
 * engines first, unless it fails: then nobody can, and it is told.
 * @returns what it was
 * @throws InvalidInputError; NotFoundError; InUseError with the figures, while copies are noted on it, recalls will put some
 *   there or have left some
 */
export async function forgetDisk(ctx: Context, given: string): Promise<ForgottenDisk> {
  return await audited(ctx, { operation: 'forgetDisk', kind: 'DISK', object: given }, (note) =>
    forget(ctx, given, note),
  );
}

async function forget(ctx: Context, given: string, note: Note): Promise<ForgottenDisk> {
  allow(ctx, 'forgetDisk');
  const mountpoint = checkMountpoint(given);
  return await transaction(ctx.db.pool, 'forgetDisk', async (tx) => {
    // locked first and judged in a second statement, which sees what whoever had it locked before has put there
    await lockDisks(tx, sql`k.mountpoint = ${mountpoint}`);
    const [disk] = await tx.query<ForgottenDisk & Contents>(
      sql`SELECT k.id, k.mountpoint, k.size, k.used, k.reserved, c.copies, c.bytes AS "copyBytes",
            (SELECT count(*)::int FROM recall c WHERE c.disk_id = k.id) AS running,
            (SELECT count(*)::int FROM tape_file f WHERE f.changed_disk_id = k.id AND ${isChanged}) AS changed,
            ARRAY(SELECT DISTINCT f.path FROM left_behind l JOIN tape_file f ON f.id = l.file_id WHERE l.disk_id = k.id
              ORDER BY f.path LIMIT ${MOST_LEFT}) AS "leftBehind",
            EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) AS "isFailing"
          FROM restore_disk k CROSS JOIN LATERAL (
            SELECT count(*)::int AS copies, coalesce(sum(f.size), 0) AS bytes FROM tape_file f WHERE f.disk_id = k.id
          ) c WHERE k.mountpoint = ${mountpoint}`,
    );
    if (!disk) throw new NotFoundError(`there is no restore disk ${quote(mountpoint)}`);
    const { copies, copyBytes, running, changed, isFailing, ...row } = disk;
    refuseInUse(disk);
    await tx.query(sql`DELETE FROM restore_disk k WHERE k.id = ${row.id}`);
    await tx.query(sql`DELETE FROM suspension WHERE kind = 'DISK' AND name = ${mountpoint}`);
    await tx.query(note());
    return row;
  });
}

/** What stands on a disk, by the database. */
interface Contents {
  copies: number;
  copyBytes: bigint;
  running: number;
  changed: number;
  isFailing: boolean;
}

function refuseInUse(disk: ForgottenDisk & Contents): void {
  const name = `the restore disk ${quote(disk.mountpoint)}`;
  const { copies, copyBytes, running, changed, leftBehind, isFailing } = disk;
  if (copies > 0 || running > 0) {
    throw new InUseError(
      `${name} holds ${plural(copies, 'copy', 'copies')} of ${plural(copyBytes, 'byte')} and has ${plural(running, 'recall')} under way: drain it, and remove it once nothing is left there`,
    );
  }
  if (changed > 0) {
    throw new InUseError(
      `${name} has ${plural(changed, 'copy that was', 'copies that were')} changed by hand, and nothing else on disk stands for ${changed === 1 ? 'its file' : 'their files'}: take ${changed === 1 ? 'it' : 'them'} away, and have doctor --repair look`,
    );
  }
  if (leftBehind.length > 0 && !isFailing) {
    throw new InUseError(
      `${name} may have what ended recalls of ${plural(leftBehind.length, 'file')} have left there, such as ${quote(leftBehind[0] ?? '')}: engines look for it within a minute, and it can be removed then`,
    );
  }
}

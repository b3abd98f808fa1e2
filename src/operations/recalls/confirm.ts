/**
 * A drive's holder asks the database whether it still holds the drive. No clock of its own can tell: in a machine that was
 * paused they all stood still.
 */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { queryByKeys } from '../../database/planning.js';
import { sql } from '../../database/sql.js';
import type { CopyTraits } from '../catalogue/moves.js';
import { isHeldUnder, type Lease } from './drives.js';

/** @returns false when somebody else has, or had, the drive since */
export async function isHeld(ctx: Context, lease: Lease): Promise<boolean> {
  const rows = await queryByKeys(ctx.db.pool, sql`SELECT FROM drive d WHERE ${isHeldUnder(lease)}`);
  return rows.length === 1;
}

/** A copy that is whole, beside its place. */
export type ReadyCopy = Pick<CopyTraits, 'ino' | 'mtimeNs'> & { fileId: bigint };

/**
 * Notes what copies are known by that are about to be put in place, as far as the lease holds the drive and their recalls:
 * whoever takes over the drive afterwards knows them by that.
 * @returns the ids of the files whose copies may be put in place
 */
export async function noteReady(ctx: Context, lease: Lease, copies: readonly ReadyCopy[]): Promise<Set<bigint>> {
  const fileIds = copies.map((copy) => copy.fileId);
  const [inos, mtimes] = [copies.map((copy) => copy.ino), copies.map((copy) => copy.mtimeNs)];
  const rows = await queryByKeys<{ fileId: bigint }>(
    ctx.db.pool,
    sql`WITH held AS (
       SELECT c.file_id FROM recall c JOIN drive d ON d.id = c.drive_id AND d.epoch = c.epoch
       WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.state = 'RUNNING'
         AND ${isHeldUnder(lease)}
       ORDER BY c.file_id ${locking.recall})
     UPDATE recall c SET copy_ino = n.ino, copy_mtime_ns = n.mtime_ns
     FROM unnest(${fileIds}::bigint[], ${inos}::bigint[], ${mtimes}::bigint[]) AS n (file_id, ino, mtime_ns), held
     WHERE c.file_id = n.file_id AND held.file_id = n.file_id RETURNING c.file_id AS "fileId"`,
  );
  return new Set(rows.map((row) => row.fileId));
}

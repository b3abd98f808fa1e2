/** What the restore disks could take, for whoever asks others to bring it: nothing is reserved yet. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { roomByAllocation, roomOf } from './disks.js';
import { allDisks, type FoundDisk, findRoom, putAside, type SeenDisks, type Unplaced } from './reservations.js';

/**
 * Which of these would have a disk once all that is to come there has gone, and how much room there is on all disks now: bytes. Nothing is reserved.
 * What no disk has room for is put aside, as by `reserve`.
 */
export async function findPlaceable<R extends Unplaced>(
  ctx: Context,
  tx: Transaction,
  waiting: readonly R[],
  seen: SeenDisks,
): Promise<{ placeable: R[]; roomBytes: bigint }> {
  const disks = findRoom(await tx.query<FoundDisk>(sql`${allDisks(ctx)} ORDER BY k.id`), seen);
  const rooms = disks.flatMap((disk) => {
    if (disk.isElsewhere) return [roomByAllocation(disk)];
    return disk.problem === undefined ? [roomOf(disk)] : [];
  });
  const hasRoom = ({ size }: R) => rooms.some((room) => room >= size);
  const aside = waiting.filter((recall) => !hasRoom(recall));
  if (aside.length > 0) await putAside(tx, aside, disks);
  const roomBytes = rooms.reduce((sum, room) => sum + (room > 0n ? room : 0n), 0n);
  return { placeable: waiting.filter(hasRoom), roomBytes };
}

/**
 * Checks the counters in the tables of quotas, disks and requests. Each counter must equal the number or total size of
 * the rows that it counts. A transaction that changes counted rows also changes the counter. A repair locks the
 * counter's row before it counts the rows. Other transactions therefore wait until the repair ends, and then change the
 * repaired counter.
 */
import { lockDisks, lockQuotas, lockRequests } from '../../db/locks.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { isLive } from '../conditions.js';
import { notifyRoom } from '../disks/disks.js';
import { unknownPathsOfQuota } from '../quotas/charges.js';
import { advanceRequests, dueState, recountRequests, requestFileCounts } from '../requests/progress.js';
import type { RepairableKind } from './findings.js';

const counted = {
  quota: { row: raw('q'), object: sql`'user ' || q."user"`, lock: lockQuotas },
  restore_disk: { row: raw('k'), object: sql`k.mountpoint`, lock: lockDisks },
};

function counterKind(
  kind: string,
  table: keyof typeof counted,
  { column, definition, words: [expected, found] }: { column: string; definition: Sql; words: [string, string] },
): RepairableKind {
  const { row, object, lock } = counted[table];
  const [of, counter] = [raw(table), raw(column)];
  return {
    kind,
    find: (after, limit) => sql`SELECT ${row}.id::bigint AS key, ${object} AS object,
        c.value || ${` ${expected}`} AS expected, ${row}.${counter} || ${` ${found}`} AS found
      FROM ${of} ${row} CROSS JOIN LATERAL (SELECT ${definition} AS value) c
      WHERE ${row}.id > ${after} AND ${row}.${counter} <> c.value ORDER BY ${row}.id LIMIT ${limit}`,
    repair: async (ctx, keys) =>
      await transaction(ctx.db.pool, 'repairCounter', async (tx) => {
        const isOne = sql`${row}.id = ANY(${keys}::int[])`;
        await lock(tx, isOne);
        await tx.query(sql`UPDATE ${of} ${row} SET ${counter} = ${definition} WHERE ${isOne}`);
        await notifyRoom(tx);
      }),
  };
}

const quotaUsed = counterKind('quota-used', 'quota', {
  column: 'used',
  definition: sql`(SELECT coalesce(sum(h.size), 0) FROM live_request_file h WHERE h.quota_id = q.id)`,
  words: ['bytes in requests', 'bytes used'],
});

const quotaCounts = counterKind('quota-counts', 'quota', {
  column: 'unresolved_paths',
  definition: unknownPathsOfQuota,
  words: ['unresolved paths', 'counted'],
});

const diskUsed = counterKind('disk-used', 'restore_disk', {
  column: 'used',
  definition: sql`(SELECT coalesce(sum(f.size), 0) FROM tape_file f WHERE f.disk_id = k.id)`,
  words: ['bytes of recorded copies', 'bytes used'],
});

const diskReserved = counterKind('disk-reserved', 'restore_disk', {
  column: 'reserved',
  definition: sql`(SELECT coalesce(sum(c.size), 0) FROM recall c WHERE c.disk_id = k.id AND c.state = 'RUNNING')`,
  words: ['bytes of running recalls', 'bytes reserved'],
});

const figures = sql`'%s files, %s on disk, %s failed, %s bytes, %s bytes on disk'`;

const requestCounts: RepairableKind = {
  kind: 'request-counts',
  find: (after, limit) => sql`SELECT r.id::bigint AS key, 'request ' || r.id AS object,
      format(${figures}, c.files, c.on_disk, c.failed, c.bytes, c.bytes_on_disk) AS expected,
      format(${figures}, r.files_total, r.files_on_disk, r.files_failed, r.bytes_total, r.bytes_on_disk) AS found
    FROM request r CROSS JOIN LATERAL (
      SELECT ${requestFileCounts} FROM request_file h WHERE h.request_id = r.id AND h.state <> 'RELEASED'
    ) c
    WHERE r.id > ${after} AND (c.files, c.on_disk, c.failed, c.bytes, c.bytes_on_disk)
      <> (r.files_total, r.files_on_disk, r.files_failed, r.bytes_total, r.bytes_on_disk)
    ORDER BY r.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairCounts', async (tx) => {
      const ids = await lockRequests(tx, sql`r.id = ANY(${keys}::int[])`);
      await recountRequests(tx, ids, ctx.now());
      await advanceRequests(ctx, tx, ids);
    }),
};

const requestState: RepairableKind = {
  kind: 'request-state',
  find: (after, limit) => sql`SELECT r.id::bigint AS key, 'request ' || r.id AS object, ${dueState} AS expected,
      r.state::text AS found
    FROM request r WHERE r.id > ${after} AND ${isLive} AND r.state::text <> ${dueState} ORDER BY r.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairState', async (tx) => {
      const ids = await lockRequests(tx, sql`r.id = ANY(${keys}::int[])`);
      await advanceRequests(ctx, tx, ids);
    }),
};

/**
 * Kinds of findings about counters, in the order in which they are repaired. If a repair reads another counter, that
 * counter's repair comes earlier in the list.
 */
export const counterKinds: readonly RepairableKind[] = [
  diskUsed,
  diskReserved,
  requestCounts,
  requestState,
  quotaUsed,
  quotaCounts,
];

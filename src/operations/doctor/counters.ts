/**
 * Compares counters of quotas, disks and requests with the counted rows. Each transaction that changes the rows changes
 * the counter. A repair locks the counter and counts in a second statement, so uncommitted changes wait for the lock
 * and are added afterwards.
 */
import { lockDisks, lockQuotas, lockRequests } from '../../database/locks.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { isLive } from '../conditions.js';
import { ringRoom } from '../disks/disks.js';
import { unknownPathsOfQuota } from '../quotas/charges.js';
import { advanceRequests, dueState, holdCounts, recountRequests } from '../requests/progress.js';
import type { FaultKind } from './findings.js';

const charged = sql`(SELECT coalesce(sum(h.size), 0) FROM live_hold h WHERE h.quota_id = q.id)`;

const quotaUsed: FaultKind = {
  kind: 'quota-used',
  find: (after, limit) => sql`SELECT q.id::bigint AS key, 'user ' || q."user" AS thing,
      c.bytes || ' bytes held' AS expected,
      q.used || ' bytes used' AS found
    FROM quota q CROSS JOIN LATERAL (SELECT ${charged} AS bytes) c
    WHERE q.id > ${after} AND q.used <> c.bytes ORDER BY q.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairUsed', async (tx) => {
      const isOne = sql`q.id = ANY(${keys}::int[])`;
      await lockQuotas(tx, isOne);
      await tx.query(sql`UPDATE quota q SET used = ${charged} WHERE ${isOne} AND q.used <> ${charged}`);
    }),
};

const quotaCounts: FaultKind = {
  kind: 'quota-counts',
  find: (after, limit) => sql`SELECT q.id::bigint AS key, 'user ' || q."user" AS thing,
      c.paths || ' awaited paths' AS expected, q.awaited_paths || ' counted' AS found
    FROM quota q CROSS JOIN LATERAL (SELECT ${unknownPathsOfQuota} AS paths) c
    WHERE q.id > ${after} AND c.paths <> q.awaited_paths ORDER BY q.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairQuotaCounts', async (tx) => {
      const isOne = sql`q.id = ANY(${keys}::int[])`;
      await lockQuotas(tx, isOne);
      await tx.query(sql`UPDATE quota q SET awaited_paths = ${unknownPathsOfQuota} WHERE ${isOne}`);
    }),
};

function diskCounter(column: 'used' | 'reserved', definition: Sql, words: string): FaultKind {
  const counter = raw(`k.${column}`);
  return {
    kind: `disk-${column}`,
    find: (after, limit) => sql`SELECT k.id::bigint AS key, k.mountpoint AS thing,
        c.bytes || ${` bytes ${words}`} AS expected, ${counter} || ${` bytes ${column}`} AS found
      FROM restore_disk k CROSS JOIN LATERAL (SELECT ${definition} AS bytes) c
      WHERE k.id > ${after} AND ${counter} <> c.bytes ORDER BY k.id LIMIT ${limit}`,
    repair: async (ctx, keys) =>
      await transaction(ctx.db.pool, 'repairDisk', async (tx) => {
        const isOne = sql`k.id = ANY(${keys}::int[])`;
        await lockDisks(tx, isOne);
        await tx.query(
          sql`UPDATE restore_disk k SET ${raw(column)} = ${definition} WHERE ${isOne} AND ${counter} <> ${definition}`,
        );
        await ringRoom(tx);
      }),
  };
}

const diskUsed = diskCounter(
  'used',
  sql`(SELECT coalesce(sum(f.size), 0) FROM tape_file f WHERE f.disk_id = k.id)`,
  'of noted copies',
);

const diskReserved = diskCounter(
  'reserved',
  sql`(SELECT coalesce(sum(c.size), 0) FROM recall c WHERE c.disk_id = k.id AND c.state = 'RUNNING')`,
  'of running recalls',
);

const figures = sql`'%s files, %s on disk, %s failed, %s bytes, %s bytes on disk'`;

const requestCounts: FaultKind = {
  kind: 'request-counts',
  find: (after, limit) => sql`SELECT r.id::bigint AS key, 'request ' || r.id AS thing,
      format(${figures}, c.files, c.on_disk, c.failed, c.bytes, c.bytes_on_disk) AS expected,
      format(${figures}, r.files_total, r.files_on_disk, r.files_failed, r.bytes_total, r.bytes_on_disk) AS found
    FROM request r CROSS JOIN LATERAL (
      SELECT ${holdCounts} FROM hold h WHERE h.request_id = r.id AND h.state <> 'RELEASED'
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

const requestState: FaultKind = {
  kind: 'request-state',
  find: (after, limit) => sql`SELECT r.id::bigint AS key, 'request ' || r.id AS thing, ${dueState} AS expected,
      r.state::text AS found
    FROM request r WHERE r.id > ${after} AND ${isLive} AND r.state::text <> ${dueState} ORDER BY r.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairState', async (tx) => {
      const ids = await lockRequests(tx, sql`r.id = ANY(${keys}::int[])`);
      await advanceRequests(ctx, tx, ids);
    }),
};

/** Ordered so that no repair depends on a counter that is still wrong. */
export const counterFaults: readonly FaultKind[] = [
  diskUsed,
  diskReserved,
  requestCounts,
  requestState,
  quotaUsed,
  quotaCounts,
];

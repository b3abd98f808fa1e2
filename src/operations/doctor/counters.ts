/**
 * Counters against their definitions: what quotas are charged, what disks account for, what requests count.
 *
 * Whoever changes what a counter counts changes the counter in the same transaction. So a counter is locked first and
 * reckoned anew in a second statement: what is not committed by then waits for the lock, and adds its part afterwards.
 */
import { transaction } from '../../database/transaction.js';
import { IS_LIVE } from '../conditions.js';
import { wakeWaiting } from '../disks/removals.js';
import { advanceRequests, recountRequests } from '../requests/holds.js';
import type { Check } from './findings.js';

const CHARGED = `(SELECT coalesce(sum(h.size), 0)::bigint FROM live_hold h WHERE h.quota_id = q.id)`;

const quotaUsed: Check = {
  kind: 'quota-used',
  sql: `SELECT q.id::bigint AS key, 'user ' || q."user" AS thing, c.bytes || ' bytes held' AS expected,
      q.used || ' bytes used' AS found
    FROM quota q CROSS JOIN LATERAL (SELECT ${CHARGED} AS bytes) c
    WHERE q.id > $1 AND q.used <> c.bytes ORDER BY q.id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      await tx.query('SELECT FROM quota WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE', [keys]);
      await tx.query(`UPDATE quota q SET used = ${CHARGED} WHERE q.id = ANY($1::int[]) AND q.used <> ${CHARGED}`, [
        keys,
      ]);
    }),
};

/** A counter of a restore disk, in bytes. */
function diskCounter(column: 'used' | 'reserved', definition: string, words: string): Check {
  return {
    kind: `disk-${column}`,
    sql: `SELECT d.id::bigint AS key, d.mountpoint AS thing, c.bytes || ' bytes ${words}' AS expected,
        d.${column} || ' bytes ${column}' AS found
      FROM restore_disk d CROSS JOIN LATERAL (SELECT ${definition} AS bytes) c
      WHERE d.id > $1 AND d.${column} <> c.bytes ORDER BY d.id LIMIT $2`,
    repair: async (ctx, keys) =>
      await transaction(ctx.db.pool, async (tx) => {
        await tx.query('SELECT FROM restore_disk WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE', [keys]);
        await tx.query(
          `UPDATE restore_disk d SET ${column} = ${definition} WHERE d.id = ANY($1::int[]) AND d.${column} <> ${definition}`,
          [keys],
        );
        await wakeWaiting(tx);
      }),
  };
}

const diskUsed = diskCounter(
  'used',
  '(SELECT coalesce(sum(f.size), 0)::bigint FROM tape_file f WHERE f.disk_id = d.id)',
  'of noted copies',
);

const diskReserved = diskCounter(
  'reserved',
  `(SELECT coalesce(sum(c.size), 0)::bigint FROM recall c WHERE c.disk_id = d.id AND c.state = 'RUNNING')`,
  'of running recalls',
);

const FIGURES = `'%s files, %s on disk, %s failed, %s bytes, %s bytes on disk'`;

const requestCounts: Check = {
  kind: 'request-counts',
  sql: `SELECT r.id::bigint AS key, 'request ' || r.id AS thing,
      format(${FIGURES}, c.files, c.on_disk, c.failed, c.bytes, c.bytes_on_disk) AS expected,
      format(${FIGURES}, r.files_total, r.files_on_disk, r.files_failed, r.bytes_total, r.bytes_on_disk) AS found
    FROM request r CROSS JOIN LATERAL (
      SELECT count(*) AS files, count(*) FILTER (WHERE h.state = 'ON_DISK') AS on_disk,
        count(*) FILTER (WHERE h.state = 'FAILED') AS failed, coalesce(sum(h.size), 0) AS bytes,
        coalesce(sum(h.size) FILTER (WHERE h.state = 'ON_DISK'), 0) AS bytes_on_disk
      FROM hold h WHERE h.request_id = r.id AND h.state <> 'RELEASED'
    ) c
    WHERE r.id > $1 AND (c.files, c.on_disk, c.failed, c.bytes, c.bytes_on_disk)
      <> (r.files_total, r.files_on_disk, r.files_failed, r.bytes_total, r.bytes_on_disk)
    ORDER BY r.id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      const ids = keys.map(Number);
      await tx.query('SELECT FROM request WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE', [ids]);
      await recountRequests(tx, ids, ctx.now());
      await advanceRequests(ctx, tx, ids);
    }),
};

const DUE_STATE = `CASE
  WHEN r.files_on_disk + r.files_failed < r.files_total
    THEN CASE WHEN r.tapestore_request_start IS NULL THEN 'QUEUED' ELSE 'RESTORING' END
  WHEN r.files_failed > 0 THEN 'PARTIAL' ELSE 'COMPLETED' END`;

const requestState: Check = {
  kind: 'request-state',
  sql: `SELECT r.id::bigint AS key, 'request ' || r.id AS thing, ${DUE_STATE} AS expected, r.state::text AS found
    FROM request r WHERE r.id > $1 AND ${IS_LIVE} AND r.state::text <> ${DUE_STATE} ORDER BY r.id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      const ids = keys.map(Number);
      await tx.query('SELECT FROM request WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE', [ids]);
      await advanceRequests(ctx, tx, ids);
    }),
};

/** In an order in which no repair trips over a counter that is still wrong. */
export const counterChecks: readonly Check[] = [diskUsed, diskReserved, requestCounts, requestState, quotaUsed];

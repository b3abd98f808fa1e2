/** The queue against what it serves: holds, recalls, drives and stages must agree. */
import { type Transaction, transaction } from '../../database/transaction.js';
import { moveFiles, onDiskStages } from '../../stages.js';
import { IS_ORPHAN, returnOrphans } from '../disks/removals.js';
import { freeReserved } from '../disks/reservations.js';
import { lockFiles, lockRequestsOf, settleRequests } from '../requests/holds.js';
import type { Check } from './findings.js';

const ON_DISK = `(${onDiskStages.map((stage) => `'${stage}'`).join(', ')})`;

/** No engine holds the drive in the epoch in which the recall began. `c` is the recall, `d` its drive. */
const IS_LOST = `(c.disk_id IS NULL OR d.id IS NULL OR d.epoch IS DISTINCT FROM c.epoch OR d.lease_until IS NULL)`;
const IS_OVERDUE = `d.lease_until < timezone('utc', clock_timestamp())`;

/** Its repair begins with the engine's own: what left its lease to run out is taken over (engine/drive/drive.ts). */
export const recallLost: Check = {
  kind: 'recall-lost',
  sql: `SELECT c.file_id AS key, f.path AS thing, 'a drive that runs the recall in epoch ' || coalesce(c.epoch::text, 'none') AS expected,
      CASE WHEN d.id IS NULL THEN 'no drive' WHEN d.epoch IS DISTINCT FROM c.epoch THEN d.name || ' in epoch ' || d.epoch
        WHEN d.lease_until IS NULL THEN d.name || ', which nobody holds' WHEN c.disk_id IS NULL THEN d.name || ', without a disk'
        ELSE d.name || ', whose lease ran out at ' || to_char(d.lease_until, 'YYYY-MM-DD"T"HH24:MI:SS') END AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id LEFT JOIN drive d ON d.id = c.drive_id
    WHERE c.state = 'RUNNING' AND c.file_id > $1 AND (${IS_LOST} OR ${IS_OVERDUE}) ORDER BY c.file_id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      await lockRequestsOf(tx, keys);
      await lockFiles(tx, keys);
      const returned = await tx.query<{ fileId: bigint; size: bigint; diskId: number | null }>(
        `UPDATE recall c SET state = 'WAITING', drive_id = NULL, epoch = NULL, disk_id = NULL, started_at = NULL
         FROM recall old LEFT JOIN drive d ON d.id = old.drive_id
         WHERE c.file_id = ANY($1::bigint[]) AND old.file_id = c.file_id AND c.state = 'RUNNING' AND ${IS_LOST}
         RETURNING c.file_id AS "fileId", c.size, old.disk_id AS "diskId"`,
        [keys],
      );
      const reserved = returned.flatMap(({ diskId, ...recall }) => (diskId === null ? [] : [{ ...recall, diskId }]));
      await freeReserved(tx, reserved, new Set());
      const fileIds = returned.map((recall) => recall.fileId);
      await moveFiles(tx, fileIds, { from: 'RESTORING', to: 'ONTAPE' });
      await dropUnheld(tx, fileIds);
      await tx.query(`SELECT pg_notify('tapegate', 'recall')`);
    }),
};

/** Drops waiting recalls of files that nobody holds. */
async function dropUnheld(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  // locked first and judged in a second statement, which sees the holds of whoever had them locked before
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM recall WHERE file_id = ANY($1::bigint[]) AND state = 'WAITING' ORDER BY file_id FOR UPDATE) locked`,
    [fileIds],
  );
  await tx.query(
    `DELETE FROM recall c WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING'
       AND NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id)`,
    [fileIds],
  );
}

const recallUnheld: Check = {
  kind: 'recall-without-hold',
  sql: `SELECT c.file_id AS key, f.path AS thing, 'a live hold that its recall is for' AS expected,
      'none, and a recall made at ' || to_char(c.created_at, 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'WAITING' AND c.file_id > $1 AND NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id)
    ORDER BY c.file_id LIMIT $2`,
  repair: async (ctx, keys) => await transaction(ctx.db.pool, async (tx) => await dropUnheld(tx, keys)),
};

const fileOrphaned: Check = {
  kind: 'restoring-without-recall',
  sql: `SELECT f.id AS key, f.path AS thing, 'a recall that runs, the file being RESTORING' AS expected,
      coalesce((SELECT 'one that is ' || c.state FROM recall c WHERE c.file_id = f.id), 'none') AS found
    FROM tape_file f WHERE f.id > $1 AND ${IS_ORPHAN} ORDER BY f.id LIMIT $2`,
  repair: async (ctx) => {
    while ((await returnOrphans(ctx)) > 0);
  },
};

const recallAstray: Check = {
  kind: 'recall-astray',
  sql: `SELECT c.file_id AS key, f.path AS thing, 'RESTORING, since its recall runs' AS expected, f.stage::text AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'RUNNING' AND c.file_id > $1 AND f.stage = 'ONTAPE' ORDER BY c.file_id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      await lockRequestsOf(tx, keys);
      await lockFiles(tx, keys);
      const running = await tx.query<{ fileId: bigint }>(
        `SELECT file_id AS "fileId" FROM recall WHERE file_id = ANY($1::bigint[]) AND state = 'RUNNING'`,
        [keys],
      );
      const move = { from: 'ONTAPE', to: 'RESTORING' } as const;
      await moveFiles(
        tx,
        running.map((recall) => recall.fileId),
        move,
      );
    }),
};

const REQUESTS = `'request' || CASE WHEN count(*) > 1 THEN 's ' ELSE ' ' END
  || string_agg(h.request_id::text, ', ' ORDER BY h.request_id)`;

const holdAhead: Check = {
  kind: 'hold-ahead',
  sql: `SELECT f.id AS key, f.path AS thing, 'on disk, as the holds of ' || ${REQUESTS} || ' say' AS expected,
      f.stage::text AS found
    FROM live_hold h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > $1 AND h.state = 'ON_DISK' AND f.stage NOT IN ${ON_DISK}
    GROUP BY f.id ORDER BY f.id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      await lockRequestsOf(tx, keys);
      await lockFiles(tx, keys);
      const requestIds = await lockRequestsOf(tx, keys);
      const ahead = await tx.query<{ id: bigint }>(
        `SELECT id FROM tape_file WHERE id = ANY($1::bigint[]) AND stage NOT IN ${ON_DISK}`,
        [keys],
      );
      const fileIds = ahead.map((file) => file.id);
      await waitAgain(tx, requestIds, fileIds);
      await settleRequests(ctx, tx, requestIds);
    }),
};

/** Holds that were satisfied wait again. The requests are locked, and settled afterwards. */
export async function waitAgain(tx: Transaction, requestIds: readonly number[], fileIds: readonly bigint[]) {
  await tx.query(
    `UPDATE hold SET state = 'WAITING'
     WHERE request_id = ANY($1::int[]) AND file_id = ANY($2::bigint[]) AND state = 'ON_DISK'`,
    [requestIds, fileIds],
  );
}

/** Comes first: the repairs of others settle whole requests, which would mend it without a word. */
export const holdUnserved: Check = {
  kind: 'hold-without-recall',
  sql: `SELECT f.id AS key, f.path AS thing, 'a recall, since ' || ${REQUESTS} || ' wait' AS expected,
      'none, and the file is ' || f.stage AS found
    FROM live_hold h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > $1 AND h.state = 'WAITING' AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = h.file_id)
    GROUP BY f.id ORDER BY f.id LIMIT $2`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, async (tx) => {
      await settleRequests(ctx, tx, await lockRequestsOf(tx, keys));
    }),
};

/** What is mended by one is looked at by the next ones. */
export const queueChecks: readonly Check[] = [fileOrphaned, recallAstray, holdAhead, recallUnheld];

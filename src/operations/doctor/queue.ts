/** The queue against what it serves: holds, recalls, drives and stages must agree. */
import { lockFiles, lockRecalls } from '../../database/locks.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { onDiskStages } from '../../stages.js';
import { moveFiles } from '../catalogue/moves.js';
import { isMisplaced, placeOfFile, waitingAgain } from '../catalogue/versions.js';
import { isChanged, isOrphan, isWaiting, isWithoutCopy } from '../conditions.js';
import { noteLeftBehind } from '../disks/left-behind.js';
import { returnOrphans } from '../disks/removals.js';
import { freeReserved } from '../disks/reservations.js';
import { dropRecalls } from '../requests/ends.js';
import { lockHolders, lockRequestsOf, settleRequests, waitAgain } from '../requests/holds.js';
import type { FaultKind } from './findings.js';

const isOnDisk = sql`f.stage = ANY(${onDiskStages}::"Stage"[])`;

/** No engine holds the drive in the epoch in which the recall began. `c` is the recall, `d` its drive. */
const isLost = sql`(c.disk_id IS NULL OR d.id IS NULL OR d.epoch IS DISTINCT FROM c.epoch OR d.lease_until IS NULL)`;
const isOverdue = sql`d.lease_until < timezone('utc', clock_timestamp())`;

/** Its repair begins with the engine's own: what left its lease to run out is taken over (engine/drive/drive.ts). */
export const recallLost: FaultKind = {
  kind: 'recall-lost',
  find: (
    after,
    limit,
  ) => sql`SELECT c.file_id AS key, f.path AS thing, 'a drive that runs the recall in epoch ' || coalesce(c.epoch::text, 'none') AS expected,
      CASE WHEN d.id IS NULL THEN 'no drive' WHEN d.epoch IS DISTINCT FROM c.epoch THEN d.name || ' in epoch ' || d.epoch
        WHEN d.lease_until IS NULL THEN d.name || ', which nobody holds' WHEN c.disk_id IS NULL THEN d.name || ', without a disk'
        ELSE d.name || ', whose lease ran out at ' || to_char(d.lease_until, 'YYYY-MM-DD"T"HH24:MI:SS') END AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id LEFT JOIN drive d ON d.id = c.drive_id
    WHERE c.state = 'RUNNING' AND c.file_id > ${after} AND (${isLost} OR ${isOverdue}) ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairLost', async (tx) => {
      await lockHolders(tx, keys);
      // nobody looks at what these may have left
      await noteLeftBehind(tx, sql`c.file_id = ANY(${keys}::bigint[]) AND ${isLost}`);
      const returned = await tx.query<{ fileId: bigint; size: bigint; diskId: number | null }>(
        sql`UPDATE recall c SET ${waitingAgain}
            FROM recall old JOIN tape_file f ON f.id = old.file_id LEFT JOIN drive d ON d.id = old.drive_id
            WHERE c.file_id = ANY(${keys}::bigint[]) AND old.file_id = c.file_id AND c.state = 'RUNNING' AND ${isLost}
            RETURNING c.file_id AS "fileId", old.size, old.disk_id AS "diskId"`,
      );
      const fileIds = returned.map((recall) => recall.fileId);
      await moveFiles(ctx, tx, fileIds, { from: 'RESTORING', to: 'ONTAPE' });
      await dropRecalls(tx, { files: idsOf(fileIds), count: fileIds.length });
      const reserved = returned.flatMap(({ diskId, ...recall }) => (diskId === null ? [] : [{ ...recall, diskId }]));
      await freeReserved(tx, reserved, new Set());
      await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    }),
};

function idsOf(fileIds: readonly bigint[]): Sql {
  return sql`SELECT unnest(${fileIds}::bigint[])`;
}

const recallUnheld: FaultKind = {
  kind: 'recall-without-hold',
  find: (
    after,
    limit,
  ) => sql`SELECT c.file_id AS key, f.path AS thing, 'a live hold that its recall is for' AS expected,
      'none, and a recall made at ' || to_char(c.created_at, 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'WAITING' AND c.file_id > ${after} AND NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id)
    ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(
      ctx.db.pool,
      'repairUnheld',
      async (tx) => await dropRecalls(tx, { files: idsOf(keys), count: keys.length }),
    ),
};

const fileOrphaned: FaultKind = {
  kind: 'restoring-without-recall',
  find: (
    after,
    limit,
  ) => sql`SELECT f.id AS key, f.path AS thing, 'a recall that runs, the file being RESTORING' AS expected,
      coalesce((SELECT 'one that is ' || c.state FROM recall c WHERE c.file_id = f.id), 'none') AS found
    FROM tape_file f WHERE f.id > ${after} AND ${isOrphan} ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx) => {
    while ((await returnOrphans(ctx)) > 0);
  },
};

const recallAstray: FaultKind = {
  kind: 'recall-astray',
  find: (
    after,
    limit,
  ) => sql`SELECT c.file_id AS key, f.path AS thing, 'RESTORING, since its recall runs' AS expected, f.stage::text AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'RUNNING' AND c.file_id > ${after} AND f.stage = 'ONTAPE' ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairAstray', async (tx) => {
      await lockHolders(tx, keys);
      const running = await tx.query<{ fileId: bigint }>(
        sql`SELECT file_id AS "fileId" FROM recall WHERE file_id = ANY(${keys}::bigint[]) AND state = 'RUNNING'`,
      );
      const fileIds = running.map((recall) => recall.fileId);
      await moveFiles(ctx, tx, fileIds, { from: 'ONTAPE', to: 'RESTORING' });
    }),
};

/** A drive would mount the wrong volume for it, or read another file's bytes. */
const recallMisplaced: FaultKind = {
  kind: 'recall-misplaced',
  find: (
    after,
    limit,
  ) => sql`SELECT c.file_id AS key, f.path AS thing, ${tellPlace('f')} || ', as the file says' AS expected,
      ${tellPlace('c')} AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'WAITING' AND c.file_id > ${after} AND ${isMisplaced} ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairMisplaced', async (tx) => {
      await lockFiles(tx, keys);
      await lockRecalls(tx, sql`c.file_id = ANY(${keys}::bigint[])`);
      await tx.query(
        sql`UPDATE recall c SET ${placeOfFile} FROM tape_file f
            WHERE c.file_id = ANY(${keys}::bigint[]) AND ${isWaiting} AND f.id = c.file_id AND ${isMisplaced}`,
      );
      await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    }),
};

/** @param row a file or a recall */
function tellPlace(row: 'f' | 'c'): Sql {
  const alias = raw(row);
  return sql`format('volume %s, position %s, %s bytes',
    coalesce((SELECT v.name FROM volume v WHERE v.id = ${alias}.volume_id), 'unknown'),
    coalesce(${alias}.position::text, 'unknown'), ${alias}.size)`;
}

const requestNames = sql`'request' || CASE WHEN count(*) > 1 THEN 's ' ELSE ' ' END
  || string_agg(h.request_id::text, ', ' ORDER BY h.request_id)`;

const holdAhead: FaultKind = {
  kind: 'hold-ahead',
  find: (
    after,
    limit,
  ) => sql`SELECT f.id AS key, f.path AS thing, 'on disk, as the holds of ' || ${requestNames} || ' say' AS expected,
      f.stage::text AS found
    FROM live_hold h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.state = 'ON_DISK' AND NOT (${isOnDisk})
    GROUP BY f.id ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairAhead', async (tx) => {
      const requestIds = await lockHolders(tx, keys);
      const ahead = await tx.query<{ id: bigint }>(
        sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${keys}::bigint[]) AND NOT (${isOnDisk})`,
      );
      const fileIds = ahead.map((file) => file.id);
      await waitAgain(tx, requestIds, fileIds);
      await settleRequests(ctx, tx, requestIds);
    }),
};

/** An import by an older program has said so; nobody would ever look for its copy, or recall it. */
const restoredUncopied: FaultKind = {
  kind: 'restored-without-copy',
  find: (
    after,
    limit,
  ) => sql`SELECT f.id AS key, f.path AS thing, 'a noted copy, its file being RESTORED' AS expected, 'none' AS found
    FROM tape_file f WHERE ${isWithoutCopy} AND f.id > ${after} ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairUncopied', async (tx) => {
      const requestIds = await lockHolders(tx, keys);
      const uncopied = await tx.query<{ id: bigint }>(
        sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${keys}::bigint[]) AND ${isWithoutCopy}`,
      );
      const fileIds = uncopied.map((file) => file.id);
      const moved = await moveFiles(ctx, tx, fileIds, { from: 'RESTORED', to: 'ONTAPE' });
      await waitAgain(tx, requestIds, moved);
      await settleRequests(ctx, tx, requestIds);
    }),
};

/** A changed copy is looked at first, by an engine. Comes first: the repairs of others settle whole requests, which would mend it without a word. */
export const holdUnserved: FaultKind = {
  kind: 'hold-without-recall',
  find: (
    after,
    limit,
  ) => sql`SELECT f.id AS key, f.path AS thing, 'a recall, since ' || ${requestNames} || ' wait' AS expected,
      'none, and the file is ' || f.stage AS found
    FROM live_hold h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.state = 'WAITING' AND NOT ${isChanged}
      AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = h.file_id)
    GROUP BY f.id ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairUnserved', async (tx) => {
      await settleRequests(ctx, tx, await lockRequestsOf(tx, keys));
    }),
};

/** What is mended by one is looked at by the next ones. */
export const queueFaults: readonly FaultKind[] = [
  fileOrphaned,
  restoredUncopied,
  recallAstray,
  recallMisplaced,
  holdAhead,
  recallUnheld,
];

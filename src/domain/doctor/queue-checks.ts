/** Checks that the recall queue is consistent with request files, drives, stages, volumes and staging libraries. */

import { onDiskStages } from '../../core/stages.js';
import { lockFiles, locking, lockRecalls } from '../../db/locks.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { hasStalePosition, positionOfFile, requeueRecall } from '../catalogue/versions.js';
import { isChanged, isClaimed, isOrphan, isStagingWanted, isWaiting } from '../conditions.js';
import { returnOrphans } from '../disks/removals.js';
import { freeReserved } from '../disks/reservations.js';
import { recordStaleFiles } from '../disks/stale-files.js';
import { dropRecalls } from '../requests/ends.js';
import { lockRequestsAndFiles, lockRequestsOf, settleRequests, waitAgain } from '../requests/request-files.js';
import type { RepairableKind } from './findings.js';

const isOnDisk = sql`f.stage = ANY(${onDiskStages}::"Stage"[])`;

/**
 * SQL condition that is true if the recall `c` has no disk, or an engine released or claimed its drive `d` after the
 * recall began.
 */
const isLost = sql`(c.disk_id IS NULL OR d.id IS NULL OR d.epoch IS DISTINCT FROM c.epoch OR d.lease_until IS NULL)`;
const isOverdue = sql`(d.lease_until IS NOT NULL AND NOT ${isClaimed})`;

/**
 * Finds running recalls that do not have a disk, or whose drive is not leased by any engine. If the drive's lease has
 * expired, an engine must recover the drive before the repair (engine/drive/drive.ts).
 */
export const recallLost: RepairableKind = {
  kind: 'recall-lost',
  find: (after, limit) => sql`SELECT c.file_id AS key, f.path AS object,
      'a drive that runs the recall in epoch ' || coalesce(c.epoch::text, 'none') AS expected,
      CASE WHEN d.id IS NULL THEN 'no drive' WHEN d.epoch IS DISTINCT FROM c.epoch THEN d.name || ' in epoch ' || d.epoch
        WHEN d.lease_until IS NULL THEN d.name || ' without an engine' WHEN c.disk_id IS NULL THEN d.name || ', without a disk'
        ELSE d.name || ', whose lease expired at ' || to_char(d.lease_until, 'YYYY-MM-DD"T"HH24:MI:SS') END AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id LEFT JOIN drive d ON d.id = c.drive_id
    WHERE c.state = 'RUNNING' AND c.file_id > ${after} AND (${isLost} OR ${isOverdue}) ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairLost', async (tx) => {
      await lockRequestsAndFiles(tx, keys);
      await recordStaleFiles(tx, sql`c.file_id = ANY(${keys}::bigint[]) AND ${isLost}`);
      const returned = await tx.query<{ fileId: bigint; size: bigint; diskId: number | null }>(
        sql`UPDATE recall c SET ${requeueRecall}
            FROM recall old JOIN tape_file f ON f.id = old.file_id LEFT JOIN drive d ON d.id = old.drive_id
            WHERE c.file_id = ANY(${keys}::bigint[]) AND old.file_id = c.file_id AND c.state = 'RUNNING' AND ${isLost}
            RETURNING c.file_id AS "fileId", old.size, old.disk_id AS "diskId"`,
      );
      const fileIds = returned.map((recall) => recall.fileId);
      await moveFiles(ctx, tx, fileIds, { from: 'RESTORING', to: 'ONTAPE' });
      await dropRecalls(tx, idsOf(fileIds));
      const reserved = returned.flatMap(({ diskId, ...recall }) => (diskId === null ? [] : [{ ...recall, diskId }]));
      await freeReserved(tx, reserved, new Set());
      await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    }),
};

function idsOf(fileIds: readonly bigint[]): Sql {
  return sql`SELECT unnest(${fileIds}::bigint[])`;
}

const recallUnheld: RepairableKind = {
  kind: 'recall-without-request',
  find: (after, limit) => sql`SELECT c.file_id AS key, f.path AS object,
      'a live request that waits for the file' AS expected,
      'no such request, and a recall created at ' || to_char(c.created_at, 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'WAITING' AND c.file_id > ${after} AND NOT EXISTS (SELECT FROM live_request_file h WHERE h.file_id = c.file_id)
    ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairUnheld', async (tx) => await dropRecalls(tx, idsOf(keys))),
};

const fileOrphaned: RepairableKind = {
  kind: 'restoring-without-recall',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS object,
      'a running recall, since the file is RESTORING' AS expected,
      coalesce((SELECT 'a recall that is ' || c.state FROM recall c WHERE c.file_id = f.id), 'none') AS found
    FROM tape_file f WHERE f.id > ${after} AND ${isOrphan} ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx) => {
    while ((await returnOrphans(ctx)) > 0);
  },
};

const recallAstray: RepairableKind = {
  kind: 'recall-astray',
  find: (after, limit) => sql`SELECT c.file_id AS key, f.path AS object,
      'RESTORING, since its recall runs' AS expected, f.stage::text AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'RUNNING' AND c.file_id > ${after} AND f.stage = 'ONTAPE' ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairAstray', async (tx) => {
      await lockRequestsAndFiles(tx, keys);
      const running = await tx.query<{ fileId: bigint }>(
        sql`SELECT file_id AS "fileId" FROM recall WHERE file_id = ANY(${keys}::bigint[]) AND state = 'RUNNING'`,
      );
      const fileIds = running.map((recall) => recall.fileId);
      await moveFiles(ctx, tx, fileIds, { from: 'ONTAPE', to: 'RESTORING' });
    }),
};

const recallMisplaced: RepairableKind = {
  kind: 'recall-misplaced',
  find: (after, limit) => sql`SELECT c.file_id AS key, f.path AS object,
      ${describePosition('f')} || ', as in the catalogue' AS expected,
      ${describePosition('c')} AS found
    FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE c.state = 'WAITING' AND c.file_id > ${after} AND ${hasStalePosition} ORDER BY c.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairMisplaced', async (tx) => {
      await lockFiles(tx, sql`f.id = ANY(${keys}::bigint[])`);
      await lockRecalls(tx, sql`c.file_id = ANY(${keys}::bigint[])`);
      await tx.query(
        sql`UPDATE recall c SET ${positionOfFile} FROM tape_file f
            WHERE c.file_id = ANY(${keys}::bigint[]) AND ${isWaiting} AND f.id = c.file_id AND ${hasStalePosition}`,
      );
      await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    }),
};

function describePosition(row: 'f' | 'c'): Sql {
  const alias = raw(row);
  return sql`format('volume %s, position %s, %s bytes',
    coalesce((SELECT v.name FROM volume v WHERE v.id = ${alias}.volume_id), 'unknown'),
    coalesce(${alias}.position::text, 'unknown'), ${alias}.size)`;
}

const requestNames = sql`'request' || CASE WHEN count(*) > 1 THEN 's ' ELSE ' ' END
  || string_agg(h.request_id::text, ', ' ORDER BY h.request_id)`;

const requestFileAhead: RepairableKind = {
  kind: 'request-file-ahead',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS object,
      'on disk, as in ' || ${requestNames} AS expected,
      f.stage::text AS found
    FROM live_request_file h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.state = 'ON_DISK' AND NOT (${isOnDisk})
    GROUP BY f.id ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairAhead', async (tx) => {
      const requestIds = await lockRequestsAndFiles(tx, keys);
      const ahead = await tx.query<{ id: bigint }>(
        sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${keys}::bigint[]) AND NOT (${isOnDisk})`,
      );
      const fileIds = ahead.map((file) => file.id);
      await waitAgain(tx, requestIds, fileIds);
      await settleRequests(ctx, tx, requestIds);
    }),
};

/**
 * Finds waiting request files without a recall. This check runs before the other queue checks, because their repairs
 * also add missing recalls, without reporting a finding.
 */
export const requestFileUnserved: RepairableKind = {
  kind: 'request-file-without-recall',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS object,
      'a recall for ' || ${requestNames} AS expected,
      'no recall, and the file is ' || f.stage AS found
    FROM live_request_file h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.state = 'WAITING' AND NOT ${isChanged}
      AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = h.file_id)
    GROUP BY f.id ORDER BY f.id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairUnserved', async (tx) => {
      await settleRequests(ctx, tx, await lockRequestsOf(tx, keys));
    }),
};

export const queueKinds: readonly RepairableKind[] = [
  fileOrphaned,
  recallAstray,
  recallMisplaced,
  requestFileAhead,
  recallUnheld,
];

const PATIENCE_MINUTES = 15;
const longBefore = (now: Sql) => sql`${now} - make_interval(mins => ${PATIENCE_MINUTES})`;

const nothing = async () => {};

/**
 * Finds failing volumes, to show an operator why files wait. The repair does nothing, because the database is correct.
 */
const volumeFailing: RepairableKind = {
  kind: 'volume-failing',
  find: (after, limit, now) => sql`SELECT v.id::bigint AS key, 'volume ' || v.name AS object,
      'successful visits of drives, since files wait' AS expected,
      v.failures || ' failed visits since ' || to_char(v.failing_since, 'YYYY-MM-DD"T"HH24:MI:SS') || ': ' || v.problem AS found
    FROM volume v
    WHERE v.id > ${after} AND v.failing_since < ${longBefore(now)}
      AND EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'WAITING')
    ORDER BY v.id LIMIT ${limit}`,
  repair: nothing,
};

const isUsed = sql`EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id)`;

/**
 * Finds retired volumes that still have files, because the retirement was interrupted. The repair puts the volume back
 * into use, so that its remaining files keep their positions. An operator must then retire the volume again.
 */
const volumeRetired: RepairableKind = {
  kind: 'volume-retired',
  find: (after, limit, now) => sql`SELECT v.id::bigint AS key, 'volume ' || v.name AS object,
      'no file on it, since it was retired at ' || to_char(v.retired_at, 'YYYY-MM-DD"T"HH24:MI:SS') AS expected,
      w.files || CASE w.files WHEN 1 THEN ' file: ' ELSE ' files, such as ' END || w.path AS found
    FROM volume v CROSS JOIN LATERAL (
      SELECT count(*) AS files, min(f.path) AS path FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id
    ) w
    WHERE v.id > ${after} AND v.retired_at < ${longBefore(now)} AND w.files > 0 ORDER BY v.id LIMIT ${limit}`,
  repair: async (ctx, keys) => {
    await ctx.db.pool.query(
      sql`WITH back AS (
            UPDATE volume v SET retired_at = NULL, retired_reason = NULL WHERE v.id = ANY(${keys}::bigint[]) AND v.retired_at IS NOT NULL AND ${isUsed} RETURNING v.id
          ) SELECT pg_notify('tapegate', 'recall') FROM back LIMIT 1`,
    );
  },
};

export const volumeKinds: readonly RepairableKind[] = [volumeFailing, volumeRetired];

const UNHELD_MINUTES = 15;

const STUCK_HOURS = 24;

const object = sql`f.path || ' at library ' || b.name`;

const tables = sql`staging s JOIN tape_file f ON f.id = s.file_id JOIN library b ON b.id = s.library_id`;

const isUnheldLong = (now: Sql) => sql`(s.state IN ('ASKED', 'READY')
  AND s.since < ${now} - make_interval(mins => ${UNHELD_MINUTES}) AND NOT ${isStagingWanted}
  AND NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id)
  AND NOT EXISTS (SELECT FROM stager t WHERE t.library_id = s.library_id AND t.rest_until > ${now}))`;

const isStuck = (now: Sql) => sql`(s.state IN ('INTENDED', 'RELEASING')
  AND s.since < ${now} - make_interval(hours => ${STUCK_HOURS})
  AND NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id))`;

const stagingUnheld: RepairableKind = {
  kind: 'staging-without-recall',
  find: (after, limit, now) => sql`SELECT s.file_id AS key, ${object} AS object,
      'a recall that needs it' AS expected,
      'no such recall, and the file has been ' || s.state || ' since ' || to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM ${tables} WHERE s.file_id > ${after} AND ${isUnheldLong(now)} ORDER BY s.file_id LIMIT ${limit}`,
  repair: repairStaging((now) => sql`state = 'RELEASING', since = ${now}, due_at = ${now}`, isUnheldLong),
};

/**
 * Finds stage and release requests that the library has not accepted within a day. The repair makes the next attempt
 * due immediately.
 */
const stagingStuck: RepairableKind = {
  kind: 'staging-stuck',
  find: (after, limit, now) => sql`SELECT s.file_id AS key, ${object} AS object,
      CASE s.state WHEN 'INTENDED' THEN 'a library that accepts the request to stage it' ELSE 'a library that accepts the request to release it' END AS expected,
      'not accepted since ' || to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SS') || ', after ' || s.attempts || ' tries'
        || coalesce(': ' || (SELECT t.problem FROM stager t WHERE t.library_id = s.library_id), '') AS found
    FROM ${tables} WHERE s.file_id > ${after} AND ${isStuck(now)} ORDER BY s.file_id LIMIT ${limit}`,
  repair: repairStaging((now) => sql`attempts = 0, due_at = ${now}`, isStuck),
};

function repairStaging(changes: (now: Sql) => Sql, which: (now: Sql) => Sql): RepairableKind['repair'] {
  return async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairStaging', async (tx) => {
      const [now, ids] = [sql`${ctx.now()}::timestamp`, sql`${keys}::bigint[]`];
      await tx.query(
        sql`SELECT FROM staging g WHERE g.file_id = ANY(${ids}) ORDER BY g.file_id, g.library_id ${locking.staging}`,
      );
      await tx.query(sql`UPDATE staging s SET ${changes(now)} WHERE s.file_id = ANY(${ids}) AND ${which(now)}`);
    });
}

export const stagingKinds: readonly RepairableKind[] = [stagingUnheld, stagingStuck];

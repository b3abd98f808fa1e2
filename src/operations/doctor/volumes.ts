/** Volumes whose files wait although nothing that is known keeps drives from them, and retired ones that have files. */
import { type Sql, sql } from '../../database/sql.js';
import { isClaimed, isLeftAlone, isReadyBy, isServed } from '../conditions.js';
import type { FaultKind } from './findings.js';

/** So long nobody wonders. */
const PATIENCE_MINUTES = 15;
const longBefore = (now: Sql) => sql`${now} - make_interval(mins => ${PATIENCE_MINUTES})`;

const nothing = async () => {};

/** Mended by whoever mends what they say; nothing of the rows is wrong. */
const volumeFailing: FaultKind = {
  kind: 'volume-failing',
  find: (after, limit, now) => sql`SELECT v.id::bigint AS key, 'volume ' || v.name AS thing,
      'drives that can work on it, since files wait' AS expected,
      v.failures || ' visits since ' || to_char(v.failing_since, 'YYYY-MM-DD"T"HH24:MI:SS') || ' that have broken down: ' || v.problem AS found
    FROM volume v
    WHERE v.id > ${after} AND v.failing_since < ${longBefore(now)}
      AND EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'WAITING')
    ORDER BY v.id LIMIT ${limit}`,
  repair: nothing,
};

/** A drive of the library of the volume `v` that works, and has nothing in hand. Between two volumes it is one for a moment. */
const idleDrive = sql`SELECT d.name FROM drive d
  WHERE d.library_id = v.library_id AND d.volume_id IS NULL AND ${isClaimed} AND NOT EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id)
    AND NOT EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id) AND NOT EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id)
  ORDER BY d.id LIMIT 1`;

/** While a drive is free, nothing that may be tried waits for long. */
const volumeUnvisited: FaultKind = {
  kind: 'volume-unvisited',
  isPassing: true,
  find: (after, limit, now) => sql`SELECT v.id::bigint AS key, 'volume ' || v.name AS thing,
      'a drive that turns to it, since files are ready from ' || to_char(w.since, 'YYYY-MM-DD"T"HH24:MI:SS') || ' on' AS expected,
      d.name || ', which has nothing to do' AS found
    FROM volume v CROSS JOIN LATERAL (
      SELECT min(greatest(c.created_at, c.not_before)) AS since FROM recall c
      WHERE c.volume_id = v.id AND ${isReadyBy(now)}
        AND EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id AND ${isServed})
    ) w CROSS JOIN LATERAL (${idleDrive}) d
    WHERE v.id > ${after} AND w.since < ${longBefore(now)} AND NOT ${isLeftAlone(now)}
      AND NOT EXISTS (SELECT FROM library b WHERE b.id = v.library_id AND b.contract = 'STAGING')
      AND NOT EXISTS (SELECT FROM drive o WHERE o.volume_id = v.id)
      AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
    ORDER BY v.id LIMIT ${limit}`,
  repair: nothing,
};

const isUsed = sql`EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id)`;

/**
 * A program from before may have imported a file that is there, and who retires a volume may have been broken off. It is used again rather than
 * any place forgotten, which nobody could bring back: whoever meant it retires it once more. What is being retired is left alone for a while.
 */
const volumeRetired: FaultKind = {
  kind: 'volume-retired',
  find: (after, limit, now) => sql`SELECT v.id::bigint AS key, 'volume ' || v.name AS thing,
      'no file on it, since it was retired at ' || to_char(v.retired_at, 'YYYY-MM-DD"T"HH24:MI:SS') AS expected,
      w.files || CASE w.files WHEN 1 THEN ' file: ' ELSE ' files, such as ' END || w.path AS found
    FROM volume v CROSS JOIN LATERAL (
      SELECT count(*) AS files, min(f.path) AS path FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id
    ) w
    WHERE v.id > ${after} AND v.retired_at < ${longBefore(now)} AND w.files > 0 ORDER BY v.id LIMIT ${limit}`,
  repair: async (ctx, keys) => {
    await ctx.db.pool.query(
      sql`WITH back AS (
            UPDATE volume v SET retired_at = NULL, retired_why = NULL WHERE v.id = ANY(${keys}::bigint[]) AND v.retired_at IS NOT NULL AND ${isUsed} RETURNING v.id
          ) SELECT pg_notify('tapegate', 'recall') FROM back LIMIT 1`,
    );
  },
};

export const volumeFaults: readonly FaultKind[] = [volumeFailing, volumeUnvisited, volumeRetired];

/** What staging libraries were asked for, against who waits for it: nothing is left there that nobody holds, and nobody waits in vain. */
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { isStagingWanted } from '../conditions.js';
import type { FaultKind } from './findings.js';

/** Whoever asks the library turns to each of its files far more often. */
const UNHELD_MINUTES = 15;

/** A library may be away for a night. */
const STUCK_HOURS = 24;

/** Where files are asked for by no path of a volume, but by the library's own name. */
const thing = sql`f.path || ' at library ' || coalesce(b.name, 'the first')`;

const tables = sql`staging s JOIN tape_file f ON f.id = s.file_id JOIN library b ON b.id = s.library_id`;

const isUnheldLong = (
  now: Sql,
) => sql`(s.state IN ('ASKED', 'READY') AND s.since < ${now} - make_interval(mins => ${UNHELD_MINUTES}) AND NOT ${isStagingWanted}
  AND NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id)
  AND NOT EXISTS (SELECT FROM stager t WHERE t.library_id = s.library_id AND t.rest_until > ${now}))`;

/** Nobody has turned to it although its time has come, and nothing that is known keeps anybody from it. */
const isStuck = (
  now: Sql,
) => sql`(s.state IN ('INTENDED', 'RELEASING') AND s.since < ${now} - make_interval(hours => ${STUCK_HOURS})
  AND NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id))`;

const stagingUnheld: FaultKind = {
  kind: 'staging-without-recall',
  find: (
    after,
    limit,
    now,
  ) => sql`SELECT s.file_id AS key, ${thing} AS thing, 'a recall that it was asked for' AS expected,
      'none, and it is ' || s.state || ' there since ' || to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM ${tables} WHERE s.file_id > ${after} AND ${isUnheldLong(now)} ORDER BY s.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairStaging', async (tx) => {
      await tx.query(lockOf(keys));
      await tx.query(
        sql`UPDATE staging s SET state = 'RELEASING', since = ${ctx.now()}, due_at = ${ctx.now()}
            WHERE s.file_id = ANY(${keys}::bigint[]) AND ${isUnheldLong(sql`${ctx.now()}::timestamp`)}`,
      );
    }),
};

/** Its time comes at once; what the library says then is in the log of the engine that asks. */
const stagingStuck: FaultKind = {
  kind: 'staging-stuck',
  find: (after, limit, now) => sql`SELECT s.file_id AS key, ${thing} AS thing,
      CASE s.state WHEN 'INTENDED' THEN 'that the library was asked for it' ELSE 'that the library was told to let it go' END AS expected,
      'not so since ' || to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SS') || ', after ' || s.attempts || ' tries'
        || coalesce(': ' || (SELECT t.problem FROM stager t WHERE t.library_id = s.library_id), '') AS found
    FROM ${tables} WHERE s.file_id > ${after} AND ${isStuck(now)} ORDER BY s.file_id LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairStaging', async (tx) => {
      await tx.query(lockOf(keys));
      await tx.query(
        sql`UPDATE staging s SET attempts = 0, due_at = ${ctx.now()} WHERE s.file_id = ANY(${keys}::bigint[]) AND ${isStuck(sql`${ctx.now()}::timestamp`)}`,
      );
    }),
};

function lockOf(keys: readonly bigint[]): Sql {
  return sql`SELECT FROM staging g WHERE g.file_id = ANY(${keys}::bigint[]) ORDER BY g.file_id, g.library_id ${locking.staging}`;
}

export const stagingFaults: readonly FaultKind[] = [stagingUnheld, stagingStuck];

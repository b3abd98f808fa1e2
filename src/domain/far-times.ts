/**
 * Corrects leases and retry times that are too far in the future, because the clock was set back after they were
 * written. Engines make these corrections when they start, and when the database server's clock is plausible again
 * after a jump.
 */

import { raw, type Sql, sql } from '../db/sql.js';
import { databaseNow, isRunning } from './conditions.js';
import type { Context } from './context.js';
import type { RepairableKind } from './doctor/findings.js';

interface Times {
  kind: string;
  table: Sql;
  key: Sql;
  object: Sql;
  /**
   * Columns that contain times. For each column, `most` is the longest plausible interval from now until a time in the
   * column.
   */
  columns: readonly [name: string, most: string][];
  which?: Sql;
  isLease?: boolean;
}

/**
 * Longest plausible intervals from now until a retry, in SQL. Tapegate retries after at most an hour, or at most a day
 * for webhooks and staged files.
 */
const [RETRY, LONG_RETRY] = ['2 hours', '2 days'];

const all: readonly Times[] = [
  {
    ...{ kind: 'drive-far-ahead', table: sql`drive t`, key: sql`t.id`, isLease: true },
    ...{ object: sql`'drive ' || t.name`, columns: [['lease_until', '']] },
  },
  {
    ...{ kind: 'stager-far-ahead', table: sql`stager t`, key: sql`t.library_id`, isLease: true },
    ...{ object: sql`'library ' || t.library_id`, columns: [['lease_until', '']] },
  },
  {
    ...{
      kind: 'library-far-ahead',
      table: sql`stager t`,
      key: sql`t.library_id`,
      object: sql`'library ' || t.library_id`,
    },
    columns: [
      ['rest_until', RETRY],
      ['read_rest_until', RETRY],
    ],
  },
  {
    ...{ kind: 'volume-far-ahead', table: sql`volume t`, key: sql`t.id`, object: sql`'volume ' || t.name` },
    columns: [['retry_at', RETRY]],
  },
  {
    ...{ kind: 'disk-far-ahead', table: sql`restore_disk t`, key: sql`t.id`, object: sql`t.mountpoint` },
    columns: [
      ['retry_at', RETRY],
      ['full_until', RETRY],
    ],
  },
  {
    ...{
      kind: 'suspension-far-ahead',
      table: sql`suspension t`,
      key: sql`abs(hashtext(t.kind::text || t.name)::bigint)`,
    },
    ...{ object: sql`lower(t.kind::text) || ' ' || t.name`, columns: [['retry_at', RETRY]] },
  },
  {
    ...{ kind: 'recall-far-ahead', table: sql`recall t`, key: sql`t.file_id`, which: sql`t.not_before <> 'infinity'` },
    ...{ object: sql`'recall of file ' || t.file_id`, columns: [['not_before', RETRY]] },
  },
  {
    ...{ kind: 'verification-far-ahead', table: sql`verification t`, key: sql`t.file_id` },
    ...{ object: sql`'check of file ' || t.file_id`, columns: [['not_before', RETRY]] },
  },
  {
    ...{ kind: 'removal-far-ahead', table: sql`removal t`, key: sql`t.file_id` },
    ...{ object: sql`'removal of file ' || t.file_id`, columns: [['claimed_until', RETRY]] },
  },
  {
    ...{ kind: 'link-far-ahead', table: sql`archive_link t`, key: sql`t.file_id` },
    ...{ object: sql`'link of file ' || t.file_id`, columns: [['check_at', RETRY]] },
  },
  {
    ...{ kind: 'staging-far-ahead', table: sql`staging t`, key: sql`t.file_id` },
    ...{ object: sql`'file ' || t.file_id || ' at library ' || t.library_id`, columns: [['due_at', LONG_RETRY]] },
  },
  {
    ...{ kind: 'mail-far-ahead', table: sql`notification t`, key: sql`t.id`, which: sql`t.state = 'PENDING'` },
    ...{ object: sql`'email ' || t.id`, columns: [['next_try_at', RETRY]] },
  },
  {
    ...{ kind: 'webhook-far-ahead', table: sql`webhook t`, key: sql`t.id` },
    ...{ object: sql`'webhook ' || t.id`, columns: [['next_try_at', LONG_RETRY]] },
  },
  {
    ...{ kind: 'message-far-ahead', table: sql`webhook_message t`, key: sql`t.id`, which: sql`t.state = 'PENDING'` },
    ...{ object: sql`'webhook message ' || t.id`, columns: [['next_try_at', LONG_RETRY]] },
  },
];

function isFar({ columns, which = sql`true`, isLease = false }: Times, now: Sql): Sql {
  const each = columns.map(([name, most]) => {
    const time = sql`t.${raw(name)}`;
    return isLease
      ? sql`(${time} > ${databaseNow} AND NOT ${isRunning(time)})`
      : sql`${time} > ${now} + ${most}::interval`;
  });
  const any = each.reduce((a, b) => sql`${a} OR ${b}`);
  return sql`(${which} AND (${any}))`;
}

function endFar(times: Times, now: Sql, keys: Sql): Sql {
  const to = times.isLease ? databaseNow : now;
  const changes = times.columns
    .map(([name]) => sql`${raw(name)} = least(${raw(name)}, ${to})`)
    .reduce((a, b) => sql`${a}, ${b}`);
  return sql`UPDATE ${times.table} SET ${changes} WHERE ${isFar(times, now)} AND ${keys}`;
}

export const farTimeKinds: readonly RepairableKind[] = all.map((times) => ({
  kind: times.kind,
  find: (after, limit, now) => sql`SELECT ${times.key}::bigint AS key, ${times.object} AS object,
      'a plausible time, which is now ' || to_char(${now}, 'YYYY-MM-DD"T"HH24:MI:SS') AS expected,
      to_char(greatest(${times.columns.map(([name]) => sql`t.${raw(name)}`).reduce((a, b) => sql`${a}, ${b}`)}), 'YYYY-MM-DD"T"HH24:MI:SS') AS found
    FROM ${times.table} WHERE ${times.key} > ${after} AND ${isFar(times, now)} ORDER BY 1 LIMIT ${limit}`,
  repair: async (ctx, keys) => {
    await ctx.db.pool.query(endFar(times, nowOf(ctx), sql`${times.key} = ANY(${keys}::bigint[])`));
  },
}));

/** Sets leases and retry times that are too far in the future to the present time. Repeating a call is safe. */
export async function endFarTimes(ctx: Context): Promise<void> {
  let ended = 0;
  for (const times of all) ended += (await ctx.db.pool.query(endFar(times, nowOf(ctx), sql`true`))).rowCount ?? 0;
  if (ended === 0) return;
  ctx.log.warn(
    { times: ended },
    'the clock was set back: ended the leases and retry times that were far in the future',
  );
  await ctx.db.pool.query(sql`SELECT pg_notify('tapegate', 'recall')`);
}

const nowOf = (ctx: Context): Sql => sql`${ctx.now()}::timestamp`;

/** Running gateways and engines. Each process writes a heartbeat, timed by the database's clock. */

import { sql } from '../../db/sql.js';
import { isRunning, databaseNow as now } from '../conditions.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';

type ProcessKind = 'GATEWAY' | 'ENGINE';

interface OwnProcess {
  id: string;
  kind: ProcessKind;
  host: string;
  pid: number;
  version: string;
}

export interface RunningProcess extends OwnProcess {
  startedAt: string;
  seenAt: string;
  isAlive: boolean;
  /**
   * Seconds since a notification about events that the process has not read yet; 0 if the process has read all events.
   */
  lagSeconds: number;
}

export const BEAT_MS = 10_000;
/** Seconds without a heartbeat after which a process counts as dead. */
const SILENT_SECONDS = 45;
const FORGOTTEN_SECONDS = 24 * 3600;
const MOST = 1000;

export const isSeen = isRunning(sql`p.seen_at + make_interval(secs => ${SILENT_SECONDS})`);

/**
 * SQL condition that is true if a process is dead, and a newer process has replaced it. A new process replaces one dead
 * process of the same kind on the same host.
 */
const isReplaced = sql`(NOT ${isSeen} AND (
  SELECT count(*) FILTER (WHERE o.started_at > p.seen_at AND o.id <> p.id) >= count(*) FILTER (WHERE o.seen_at >= p.seen_at AND NOT ${isRunning(sql`o.seen_at + make_interval(secs => ${SILENT_SECONDS})`)})
  FROM running_process o WHERE o.host = p.host AND o.kind = p.kind))`;

export async function recordProcess(ctx: Context, { id, kind, host, pid, version }: OwnProcess): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH gone AS (DELETE FROM running_process WHERE seen_at < ${now} - make_interval(secs => ${FORGOTTEN_SECONDS}))
        INSERT INTO running_process (id, kind, host, pid, version, started_at, seen_at, lag_seconds)
        VALUES (${id}::uuid, ${kind}, ${host}, ${pid}, ${version}, ${now}, ${now}, ${ctx.events.lagSeconds})
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lag_seconds = excluded.lag_seconds`,
  );
}

export async function deleteProcess(ctx: Context, id: string): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM running_process WHERE id = ${id}::uuid`);
}

/**
 * Lists running processes. Also lists processes that died in the last day if no other process has replaced them.
 * Returns at most 1,000 processes, ordered by host.
 */
export async function listProcesses(ctx: Context): Promise<RunningProcess[]> {
  allow(ctx, 'listProcesses');
  return await ctx.db.rows<RunningProcess>(
    sql`SELECT p.id::text AS id, p.kind, p.host, p.pid, p.version, p.started_at AS "startedAt", p.seen_at AS "seenAt",
          ${isSeen} AS "isAlive", p.lag_seconds AS "lagSeconds"
        FROM running_process p WHERE NOT ${isReplaced} ORDER BY p.host, p.kind, p.started_at, p.id LIMIT ${MOST}`,
  );
}

/** Returns a description of each live process, such as `engine 42 of host`. */
export async function findRunning(ctx: Context): Promise<string[]> {
  return (await listProcesses(ctx))
    .filter((each) => each.isAlive)
    .map((each) => `${each.kind.toLowerCase()} ${each.pid} of ${each.host}`);
}

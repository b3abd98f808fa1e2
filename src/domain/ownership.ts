/**
 * The identity of this database. Each restore disk and library contains an owner record with the identity
 * (restore-area/ownership.ts). A database counts as a copy if its location has changed to another cluster or another
 * directory. A database also counts as a copy if an owner record contains a stamp that the database never recorded. An
 * engine records each stamp in the database before it writes the stamp to an owner record.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { readBoot } from '../db/clock.js';
import { type Sql, sql } from '../db/sql.js';
import { transaction } from '../db/transaction.js';
import { auditRow } from './audit/audit.js';
import { databaseNow } from './conditions.js';
import type { Context } from './context.js';
import { allow } from './policy.js';

export const boot = readBoot();

export interface DatabaseLocation {
  system: string | null;
  database: string;
  /**
   * OID of a table. The OID changes only if the database is dumped and loaded again. Undefined if an older version of
   * Tapegate recorded the location.
   */
  table?: string;
  /** Start time of the database server. The server of a copied database has another start time. */
  started: string;
  directory: string | null;
  inode: string | null;
  /** Boot id of the host, and device number of the data directory. */
  boot: string | null;
}

export interface SiteIdentity {
  identity: string;
  location: DatabaseLocation | null;
  /** Whether an engine is writing stamps. Stays true if the last engine did not shut down cleanly. */
  isStamping: boolean;
  /** Reason why no engine may work until a takeover; null if the database is not fenced. */
  fenced: string | null;
  problem: string | null;
  /** Directories that belong to another Tapegate installation, according to the engines' checks. */
  foreign: { path: string; problem: string; isDisk: boolean }[];
  started: string;
  database: string;
  table: string;
  disks: { id: number; mountpoint: string; isFailing: boolean }[];
  hasDirectories: boolean;
}

/**
 * Age in seconds after which Tapegate ignores the record of a foreign directory. Engines renew the records of foreign
 * directories every few seconds (CHECK_MS in restore-area/ownership.ts).
 */
const FOREIGN_SECONDS = 60;

const isDisk = sql`EXISTS (SELECT FROM restore_disk k WHERE k.mountpoint = o.path)`;

/**
 * Returns the SQL condition that is true if the directory `o` belongs to another Tapegate. Ignores three kinds of
 * directories: directories that the site no longer uses, restore disks that only former hosts saw, and library
 * directories of other hosts.
 */
const isForeign =
  (): Sql => sql`CASE WHEN ${isDisk} THEN o.host = ${hostname()} OR o.seen_at > ${databaseNow} - make_interval(secs => ${FOREIGN_SECONDS})
  ELSE o.host = ${hostname()} AND o.path LIKE '%/library' END`;

export async function readIdentity(ctx: Context): Promise<SiteIdentity> {
  const [row] = await ctx.db.rows<SiteIdentity>(
    sql`SELECT identity::text AS identity, location, is_stamping AS "isStamping", fenced, problem,
          (SELECT coalesce(json_agg(json_build_object('path', o.path, 'problem', o.problem, 'isDisk', ${isDisk}) ORDER BY o.path), '[]')
           FROM foreign_directory o WHERE ${isForeign()}) AS foreign,
          extract(epoch FROM pg_postmaster_start_time())::text AS started,
          (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database,
          'site_identity'::regclass::oid::text AS "table",
          EXISTS (SELECT FROM owner_stamp) AS "hasDirectories",
          (SELECT coalesce(json_agg(json_build_object('id', k.id, 'mountpoint', k.mountpoint,
             'isFailing', EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id)) ORDER BY k.id), '[]') FROM restore_disk k) AS disks
        FROM site_identity`,
  );
  if (!row) throw new Error('the database has no identity: table site_identity is empty');
  return row;
}

/** Returns the PostgreSQL cluster's identifier. Returns null if the database role may not read the identifier. */
export async function readSystem(ctx: Context): Promise<string | null> {
  const rows = await ctx.db
    .rows<{ system: string }>(sql`SELECT system_identifier::text AS system FROM pg_control_system()`)
    .catch((error: { code?: string }) => {
      if (error.code === '42501') return [];
      throw error;
    });
  return rows[0]?.system ?? null;
}

/** Returns the last recorded reason why the database is fenced; null if it is not fenced. */
export async function readFence(ctx: Context): Promise<string | null> {
  allow(ctx, 'readFence');
  const [row] = await ctx.db.rows<{ reason: string | null }>(
    sql`SELECT coalesce(fenced, problem, (SELECT min(o.problem) FROM foreign_directory o WHERE ${isForeign()})) AS reason FROM site_identity`,
  );
  return row?.reason ?? null;
}

/** Records the database's location. Clears `isStamping`, which an engine sets again with its next stamp. */
export async function acceptLocation(ctx: Context, location: DatabaseLocation): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE site_identity SET location = ${JSON.stringify(location)}::jsonb, is_stamping = false`,
  );
}

export async function recordProblem(ctx: Context, problem: string | null): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE site_identity SET problem = ${problem} WHERE problem IS DISTINCT FROM ${problem}::text`,
  );
}

export async function endStamping(ctx: Context): Promise<void> {
  await ctx.db.pool.query(sql`UPDATE site_identity SET is_stamping = false`);
}

/**
 * Stamp in an owner record: the epoch of the process that wrote the stamp, and the number of stamps that the process
 * has written so far.
 */
export interface Stamp {
  epoch: string;
  number: number;
}

/** Records a stamp. An engine calls this function before it writes the stamp to an owner record. */
export async function recordStamp(ctx: Context, { epoch, number }: Stamp): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH stamping AS (UPDATE site_identity SET is_stamping = true WHERE NOT is_stamping)
        INSERT INTO owner_stamp (epoch, number) VALUES (${epoch}::uuid, ${number})
        ON CONFLICT (epoch) DO UPDATE SET number = excluded.number`,
  );
}

/**
 * Returns whether this database recorded the stamp. A copy of a database does not contain the stamps that the original
 * database recorded after the copy was made.
 */
export async function isRecorded(ctx: Context, { epoch, number }: Stamp): Promise<boolean> {
  const rows = await ctx.db.rows(sql`SELECT FROM owner_stamp WHERE epoch = ${epoch}::uuid AND number >= ${number}`);
  return rows.length > 0;
}

/**
 * Records whether a directory of this host belongs to another Tapegate.
 * @param problem null if the directory belongs to this Tapegate or does not exist
 */
export async function recordForeignDirectories(ctx: Context, path: string, problem: string | null): Promise<void> {
  await ctx.db.pool.query(
    problem === null
      ? sql`DELETE FROM foreign_directory o WHERE o.path = ${path} AND (o.host = ${hostname()} OR ${isDisk})`
      : sql`INSERT INTO foreign_directory (path, host, problem, seen_at) VALUES (${path}, ${hostname()}, ${problem}, ${databaseNow})
            ON CONFLICT (path, host) DO UPDATE SET problem = excluded.problem, seen_at = excluded.seen_at`,
  );
}

/**
 * Returns the statement that fences a restored database until a takeover. `asOf` is the time of the backup in RFC 3339
 * format.
 */
export function fenceRestored(asOf: string): Sql {
  return sql`UPDATE site_identity SET identity = ${randomUUID()}::uuid, database = ${randomUUID()}::uuid, location = NULL,
      is_stamping = false, problem = NULL, fenced = ${`the database was restored from a backup of ${asOf}`}`;
}

/**
 * Begins a takeover. No engine works until `endTakeover` is called.
 * @param isNew whether the database gets a new identity
 */
export async function beginTakeover(ctx: Context, isNew: boolean): Promise<string> {
  return await transaction(ctx.db.pool, 'beginTakeover', async (tx) => {
    const [row] = await tx.query<{ identity: string }>(
      sql`UPDATE site_identity SET identity = CASE WHEN ${isNew} THEN ${randomUUID()}::uuid ELSE identity END,
            fenced = coalesce(fenced, 'a takeover has not ended') RETURNING identity::text AS identity`,
    );
    await tx.query(auditRow(ctx.now(), ctx.caller, { operation: 'takeover', kind: 'NONE', object: '' }, 'BEGUN'));
    return row?.identity ?? '';
  });
}

export async function endTakeover(ctx: Context, location: DatabaseLocation, taken: readonly string[]): Promise<void> {
  await transaction(ctx.db.pool, 'endTakeover', async (tx) => {
    await tx.query(
      sql`UPDATE site_identity SET fenced = NULL, problem = NULL, location = ${JSON.stringify(location)}::jsonb, is_stamping = false`,
    );
    // delete the records of foreign directories; engines record each directory again that is still foreign
    await tx.query(sql`DELETE FROM foreign_directory`);
    const action = { operation: 'takeover', kind: 'NONE', object: '', given: { directories: taken } } as const;
    await tx.query(auditRow(ctx.now(), ctx.caller, action));
  });
}

export async function countWaiting(ctx: Context): Promise<{ emails: number; messages: number }> {
  const [row] = await ctx.db.rows<{ emails: number; messages: number }>(
    sql`SELECT (SELECT count(*)::int FROM notification WHERE state = 'PENDING') AS emails,
          (SELECT count(*)::int FROM webhook_message WHERE state = 'PENDING') AS messages`,
  );
  return row ?? { emails: 0, messages: 0 };
}

/**
 * What operators take out of service: volumes, drives, users, back ends and restore disks. HELD stops what runs, DRAINING
 * lets it end; nothing new begins in either. A volume that fails again and again is held by the engine.
 */
import type { Context } from '../context.js';
import { InvalidInputError, NotFoundError, quote } from '../errors.js';
import { SuspensionKind, type SuspensionMode } from '../generated/prisma/enums.js';
import { checkText } from './checks.js';

export interface Suspension {
  kind: SuspensionKind;
  name: string;
  mode: SuspensionMode;
  /** For people. */
  reason: string;
  since: string;
}

/** How each kind of thing is found by its name; back ends are not in the database. */
const TABLES: Record<SuspensionKind, string | undefined> = {
  VOLUME: 'SELECT FROM volume WHERE name = $1',
  DRIVE: 'SELECT FROM drive WHERE name = $1',
  USER: 'SELECT FROM quota WHERE "user" = $1',
  DISK: 'SELECT FROM restore_disk WHERE mountpoint = $1',
  BACKEND: undefined,
};

/** Takes something out of service; a second time changes mode and reason. @throws NotFoundError, InvalidInputError */
export async function suspend(ctx: Context, input: Omit<Suspension, 'since'>): Promise<Suspension> {
  const name = checkText('name', input.name);
  const reason = checkText('reason', input.reason);
  await checkExists(ctx, input.kind, name);
  const { rows } = await ctx.db.pool.query<Suspension>(
    `INSERT INTO suspension (kind, name, mode, reason, since) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (kind, name) DO UPDATE SET mode = excluded.mode, reason = excluded.reason
     RETURNING kind, name, mode, reason, since`,
    [input.kind, name, input.mode, reason, ctx.now()],
  );
  return rows[0] as Suspension;
}

async function checkExists(ctx: Context, kind: SuspensionKind, name: string): Promise<void> {
  if (!Object.hasOwn(SuspensionKind, kind)) {
    throw new InvalidInputError('kind', `must be one of ${Object.keys(SuspensionKind).join(', ')}, not ${quote(kind)}`);
  }
  const query = TABLES[kind];
  const isThere = query ? (await ctx.db.pool.query(query, [name])).rowCount !== 0 : name === ctx.config.tapeBackend;
  if (!isThere) throw new NotFoundError(`there is no ${kind.toLowerCase()} ${quote(name)}`);
}

/** Puts something back into service. @returns false when it was in service */
export async function resume(ctx: Context, input: { kind: SuspensionKind; name: string }): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query('DELETE FROM suspension WHERE kind = $1 AND name = $2', [
    input.kind,
    input.name,
  ]);
  return rowCount === 1;
}

export async function listSuspensions(ctx: Context): Promise<Suspension[]> {
  const { rows } = await ctx.db.pool.query<Suspension>(
    'SELECT kind, name, mode, reason, since FROM suspension ORDER BY kind, name',
  );
  return rows;
}

/** May the drive begin something? Not while it or its back end is suspended, in either mode. */
export async function isSuspended(ctx: Context, driveName: string): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    `SELECT FROM suspension WHERE (kind = 'DRIVE' AND name = $1) OR (kind = 'BACKEND' AND name = $2) LIMIT 1`,
    [driveName, ctx.config.tapeBackend],
  );
  return rowCount !== 0;
}

/**
 * What operators take out of service: volumes, drives, users, back ends and restore disks. HELD stops what runs, DRAINING
 * lets it end; nothing new begins in either. A volume that fails again and again is held by the engine.
 */
import type { Context } from '../context.js';
import { InvalidInputError, NotFoundError, oneLine, quote } from '../errors.js';
import { SuspensionKind, type SuspensionMode } from '../generated/prisma/enums.js';
import { checkText } from './input.js';

export type { SuspensionMode };

export interface Suspension {
  kind: SuspensionKind;
  name: string;
  mode: SuspensionMode;
  /** For people. */
  reason: string;
  since: string;
}

export type SuspensionKey = Pick<Suspension, 'kind' | 'name'>;

/** How each kind of thing is found by its name; back ends are not in the database. */
const TABLES: Record<SuspensionKind, string | undefined> = {
  VOLUME: 'SELECT FROM volume WHERE name = $1',
  DRIVE: 'SELECT FROM drive WHERE name = $1',
  USER: 'SELECT FROM quota WHERE "user" = $1',
  DISK: 'SELECT FROM restore_disk WHERE mountpoint = $1',
  BACKEND: undefined,
};

const COLUMNS = 'kind, name, mode, reason, since';

/**
 * SQL: may recall `c` begin on the drive that is named `$2`, of the back end `$3`? Not while one of what it would use is
 * suspended, in either mode, or all who wait for it are.
 */
export const MAY_BEGIN = `NOT EXISTS (
    SELECT FROM suspension s WHERE (s.kind = 'DRIVE' AND s.name = $2) OR (s.kind = 'BACKEND' AND s.name = $3)
      OR (s.kind = 'VOLUME' AND s.name = (SELECT v.name FROM volume v WHERE v.id = c.volume_id)))
  AND (NOT EXISTS (SELECT FROM suspension s WHERE s.kind = 'USER') OR EXISTS (
    SELECT FROM live_hold h JOIN quota q ON q.id = h.quota_id WHERE h.file_id = c.file_id
      AND NOT EXISTS (SELECT FROM suspension s WHERE s.kind = 'USER' AND s.name = q."user")))`;

/** Takes something out of service; a second time changes mode and reason. @throws NotFoundError, InvalidInputError */
export async function suspend(ctx: Context, input: Omit<Suspension, 'since'>): Promise<Suspension> {
  const key = await checkKey(ctx, input);
  const reason = checkText('reason', input.reason);
  const { rows } = await ctx.db.pool.query<Suspension>(
    `INSERT INTO suspension (${COLUMNS}) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (kind, name) DO UPDATE SET mode = excluded.mode, reason = excluded.reason RETURNING ${COLUMNS}`,
    [key.kind, key.name, input.mode, reason, ctx.now()],
  );
  return rows[0] as Suspension;
}

async function checkKey(ctx: Context, { kind, name: given }: SuspensionKey): Promise<SuspensionKey> {
  const name = checkText('name', given);
  if (!Object.hasOwn(SuspensionKind, kind)) {
    throw new InvalidInputError('kind', `must be one of ${Object.keys(SuspensionKind).join(', ')}, not ${quote(kind)}`);
  }
  const query = TABLES[kind];
  const isThere = query ? (await ctx.db.pool.query(query, [name])).rowCount !== 0 : name === ctx.config.tapeBackend;
  if (!isThere) throw new NotFoundError(`there is no ${nameOf({ kind, name })}`);
  return { kind, name };
}

/** `volume "V00001"` */
function nameOf({ kind, name }: SuspensionKey): string {
  return `${kind.toLowerCase()} ${quote(name)}`;
}

const MAX_REASON = 1000;

/** A volume that fails is held by the engine. What an operator has taken out of service already stays as it is. */
export async function holdFailing(ctx: Context, volume: string, problem: string): Promise<void> {
  const reason = oneLine(problem, MAX_REASON);
  ctx.log.error({ volume }, `volume held: ${reason}`);
  await ctx.db.pool.query(
    `INSERT INTO suspension (${COLUMNS}) VALUES ('VOLUME', $1, 'HELD', $2, $3)
     ON CONFLICT (kind, name) DO NOTHING`,
    [volume, reason, ctx.now()],
  );
}

/**
 * Puts something back into service; what waits for it may begin at once.
 * @returns what has ended
 * @throws NotFoundError when there is no such thing, or it is in service; InvalidInputError
 */
export async function resume(ctx: Context, input: SuspensionKey): Promise<Suspension> {
  const name = checkText('name', input.name);
  // together with the pauses that it led to, since whoever resumes it has mended it; the trigger rings the engine
  const { rows } = await ctx.db.pool.query<Suspension>(
    `WITH ended AS (
       DELETE FROM suspension WHERE kind = $1 AND name = $2 RETURNING ${COLUMNS}
     ), woken AS (
       UPDATE recall SET not_before = NULL WHERE file_id IN (
         SELECT c.file_id FROM recall c JOIN ended e ON CASE e.kind
           WHEN 'VOLUME' THEN c.volume_id = (SELECT v.id FROM volume v WHERE v.name = e.name)
           WHEN 'BACKEND' THEN c.error_class IN ('TRANSIENT', 'MEDIA')
           WHEN 'DISK' THEN c.error_class = 'SPACE' ELSE false END
         WHERE c.state = 'WAITING' AND c.not_before IS NOT NULL FOR UPDATE OF c SKIP LOCKED)
     ) SELECT ${COLUMNS} FROM ended`,
    [input.kind, name],
  );
  if (rows[0]) return rows[0];
  const key = await checkKey(ctx, input);
  throw new NotFoundError(`${nameOf(key)} is neither held nor draining`);
}

export interface ListSuspensionsInput {
  /** Only what comes after it, or before it. */
  after?: SuspensionKey | undefined;
  before?: SuspensionKey | undefined;
  limit?: number;
  descending?: boolean;
}

/** All of them unless told, by kind and name. */
export async function listSuspensions(ctx: Context, input: ListSuspensionsInput = {}): Promise<Suspension[]> {
  const { after, before, limit = null, descending = false } = input;
  const order = descending ? 'DESC' : 'ASC';
  const { rows } = await ctx.db.pool.query<Suspension>(
    `SELECT ${COLUMNS} FROM suspension
     WHERE ($1::"SuspensionKind" IS NULL OR (kind, name) > ($1, $2)) AND ($3::"SuspensionKind" IS NULL OR (kind, name) < ($3, $4))
     ORDER BY kind ${order}, name ${order} LIMIT $5`,
    [after?.kind, after?.name, before?.kind, before?.name, limit],
  );
  return rows;
}

/** Those of things of one kind, by their names; what is in service is left out. */
export async function readSuspensionsOf(
  ctx: Context,
  kind: SuspensionKind,
  names: readonly string[],
): Promise<Map<string, Suspension>> {
  const { rows } = await ctx.db.pool.query<Suspension>(
    `SELECT ${COLUMNS} FROM suspension WHERE kind = $1 AND name = ANY($2::text[])`,
    [kind, names],
  );
  return new Map(rows.map((row) => [row.name, row]));
}

/** May the drive begin something? Not while it or its back end is suspended, in either mode. */
export async function isSuspended(ctx: Context, driveName: string): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    `SELECT FROM suspension WHERE (kind = 'DRIVE' AND name = $1) OR (kind = 'BACKEND' AND name = $2) LIMIT 1`,
    [driveName, ctx.config.tapeBackend],
  );
  return rowCount !== 0;
}

/**
 * What a move of a volume and its retirement have in common: files get other places on tape, in steps (`inSteps` in chosen-files.ts), and whoever
 * waits for them follows.
 */
import type { Context } from '../../context.js';
import { lockQuotas, lockRequests } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { InvalidInputError, quote } from '../../errors.js';
import { isChanged, isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { settleHolds } from '../requests/holds.js';
import { recountRequests } from '../requests/progress.js';
import { concernedBy, lockLeaving } from './chosen-files.js';
import { followChanges } from './import-holds.js';
import { isSamePlace } from './versions.js';

export interface KnownVolume {
  id: number;
  libraryId: number;
  medium: string;
  used: bigint;
  nextPosition: bigint;
  /** Null: it is in use. */
  retiredAt: string | null;
  retiredWhy: string | null;
}

/** Of the volume `v`. */
export const volumeColumns = sql`v.id, v.library_id AS "libraryId", v.medium, v.used, v.next_position AS "nextPosition",
  v.retired_at AS "retiredAt", v.retired_why AS "retiredWhy"`;

/** By which a step reads, or whoever looks before the first one. */
export type Ask = <Row extends object>(statement: Sql) => Promise<Row[]>;

/** Outside of a transaction. */
export const asking =
  (ctx: Context): Ask =>
  async <Row extends object>(statement: Sql) =>
    (await ctx.db.pool.query<Row>(statement)).rows;

/** The first or the second copy of the file `f` is on the volume. */
export const isOn = (volumeId: number): Sql => sql`(f.volume_id = ${volumeId} OR f.copy_volume_id = ${volumeId})`;

const MAX_NAME = 255;

/** The name of a volume, as an import takes it. @throws InvalidInputError */
export function checkVolumeName(field: string, value: string): string {
  const name = checkText(field, value);
  if (name.trim() === '' || name.length > MAX_NAME) {
    throw new InvalidInputError(field, `must be a name of 1 to ${MAX_NAME} characters, not ${quote(name)}`);
  }
  return name;
}

/**
 * Locks what a step changes: live requests that have to do with the files of `leaving`, their quotas, and these files, which are then in the
 * temporary table `known` as they are.
 * @returns the ids of the requests
 */
export async function lockMoving(tx: Transaction): Promise<number[]> {
  const requestIds = await lockRequests(tx, sql`${isLive} AND r.id IN (${concernedBy})`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockLeaving(tx);
  await tx.query(
    sql`CREATE TEMP TABLE known ON COMMIT DROP AS
        SELECT f.id, f.stage, f.size, f.checksum, f.volume_id, f.position, f.copy_volume_id, f.copy_position, f.disk_id,
          f.changed_disk_id FROM leaving l JOIN tape_file f ON f.id = l.id ORDER BY f.id`,
  );
  await tx.query(sql`ANALYZE known`);
  return requestIds;
}

/**
 * Recalls that wait follow their files to where these are said to be now, with their tries forgotten, and what was given up is tried again where
 * something else is to be read. What runs is judged at its end (versions.ts).
 */
export async function followPlaces(ctx: Context, tx: Transaction): Promise<void> {
  // what was wrong with a copy that nobody reads any more is of no interest
  await tx.query(
    sql`DELETE FROM verification w USING known k, tape_file f
        WHERE w.file_id = k.id AND f.id = k.id AND NOT ${isSamePlace('k', 'f')} AND NOT ${isChanged}`,
  );
  const changed = await followChanges(tx);
  if (changed.length > 0) await recountRequests(tx, changed, ctx.now());
  await settleHolds(
    ctx,
    tx,
    changed,
    sql`h.request_id = ANY(${changed}::int[]) AND h.file_id IN (SELECT id FROM known)`,
  );
  await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
}

/**
 * Withdrawn files are forgotten: their paths are free for other files, and nothing brings them back. A file that no request has ever held goes
 * altogether; of any other one what requests tell of it stays, under a name that no catalogue can have.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, quote } from '../../errors.js';
import { audited } from '../audit/audited.js';
import { isLive, isWithdrawn } from '../conditions.js';
import { allow } from '../policy.js';
import { type ChosenPaths, chosenFiles, inSteps, lockLeaving, whyNone } from './chosen-files.js';

/** What was done, or would be. */
export interface ForgottenFiles {
  files: number;
  /** Of all of them together. */
  bytes: bigint;
  /** Withdrawn ones that stay for now: something of them is on disk, or a live request waits for them or has them. */
  kept: number;
}

/** What is withdrawn, and not forgotten yet: the file `f`. */
export const isForgettable = sql`(${isWithdrawn} AND f.forgotten_at IS NULL)`;

/** Something of the file `f` is still to be dealt with. What has failed is told by its own words. */
const isInUse = sql`(f.stage IN ('RESTORING', 'RESTORED') OR f.disk_id IS NOT NULL OR f.changed_disk_id IS NOT NULL
  OR EXISTS (SELECT FROM recall c WHERE c.file_id = f.id) OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id)
  OR EXISTS (SELECT FROM left_behind l WHERE l.file_id = f.id) OR EXISTS (SELECT FROM archive_link a WHERE a.file_id = f.id)
  OR EXISTS (SELECT FROM hold h JOIN request r ON r.id = h.request_id WHERE h.file_id = f.id AND h.state IN ('WAITING', 'ON_DISK') AND ${isLive}))`;

/**
 * What is in use is passed over, and goes when the same is asked for again later.
 * @throws InvalidInputError; NotFoundError where none is withdrawn; InUseError where all are in use
 */
export async function forgetFiles(ctx: Context, input: ChosenPaths): Promise<ForgottenFiles> {
  const { path, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'forgetFiles', kind: 'CATALOGUE', object: path, given: { isDryRun } },
    async (note) => {
      allow(ctx, 'forgetFiles');
      const which = sql`${chosenFiles(path)} AND ${isForgettable}`;
      const chosen = await countForgettable(ctx, which);
      if (chosen.files + chosen.kept === 0) {
        throw await whyNone(ctx, { path, which: chosenFiles(path), done: 'not withdrawn' });
      }
      if (chosen.files === 0) throw await inUse(ctx, path, chosen.kept);
      if (isDryRun) return chosen;
      const told = await readTold(ctx, which);
      const done = await inSteps(
        ctx,
        { which: sql`${which} AND NOT ${isInUse}`, note: (step) => note({ given: { ...step } }) },
        (tx) => forgetStep(ctx, tx, told),
        (work) => transaction(ctx.db.pool, 'forgetFiles', work),
      );
      return { ...done, kept: chosen.kept };
    },
  );
}

async function countForgettable(ctx: Context, which: Sql): Promise<ForgottenFiles> {
  const { rows } = await ctx.db.pool.query<{ files: number; bytes: string; kept: number }>(
    sql`SELECT count(*) FILTER (WHERE NOT o.is_in_use)::int AS files, coalesce(sum(o.size) FILTER (WHERE NOT o.is_in_use), 0)::text AS bytes,
          count(*) FILTER (WHERE o.is_in_use)::int AS kept
        FROM (SELECT f.size, ${isInUse} AS is_in_use FROM tape_file f WHERE ${which}) o`,
  );
  const { files = 0, bytes = '0', kept = 0 } = rows[0] ?? {};
  return { files, bytes: BigInt(bytes), kept };
}

async function inUse(ctx: Context, path: string, kept: number): Promise<Error> {
  const { rows } = await ctx.db.pool.query<{ path: string; why: string }>(
    sql`SELECT f.path, coalesce(
            (SELECT 'request ' || min(h.request_id) || ' has it' FROM live_hold h WHERE h.file_id = f.id AND h.state IN ('WAITING', 'ON_DISK')),
            (SELECT 'its library is still to be told that nobody needs it' FROM staging s WHERE s.file_id = f.id LIMIT 1),
            (SELECT 'the link at its archive path is still looked after' FROM archive_link a WHERE a.file_id = f.id),
            'its copy is still to leave the disk') AS why
        FROM tape_file f WHERE ${chosenFiles(path)} AND ${isForgettable} AND ${isInUse} ORDER BY f.path LIMIT 1`,
  );
  const first = rows[0];
  if (!first) return new InUseError(`${quote(path)} is in use just now`);
  const others = kept > 1 ? `, and ${kept - 1} more ${kept === 2 ? 'is' : 'are'} in use` : '';
  return new InUseError(`${quote(first.path)} cannot be forgotten yet: ${first.why}${others}`);
}

interface Told {
  ids: ReadonlySet<bigint>;
  /** The oldest transaction that may have been under way then. What it or a later one has withdrawn was not looked for. */
  since: string;
}

/**
 * Of files that may be forgotten, those that requests tell of, ended ones in their compact form too, which are looked through once for all of
 * them. Nobody begins to hold a file that is withdrawn; rows of holds are looked for once more with the files locked, and here as well, from
 * the same snapshot: they may become bundles in between.
 */
async function readTold(ctx: Context, which: Sql): Promise<Told> {
  return await transaction(ctx.db.pool, 'readTold', async (tx) => {
    const [begun] = await tx.query<{ since: string }>(
      sql`SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text AS since`,
    );
    const rows = await tx.query<{ id: bigint }>(
      sql`WITH chosen AS MATERIALIZED (SELECT f.id FROM tape_file f WHERE ${which})
          SELECT DISTINCT u.id FROM hold_bundle b CROSS JOIN LATERAL unnest(b.file_ids) AS u (id) WHERE u.id IN (SELECT id FROM chosen)
          UNION SELECT c.id FROM chosen c WHERE EXISTS (SELECT FROM hold h WHERE h.file_id = c.id)`,
    );
    return { ids: new Set(rows.map(({ id }) => id)), since: begun?.since ?? '0' };
  });
}

async function forgetStep(ctx: Context, tx: Transaction, told: Told): Promise<void> {
  await lockLeaving(tx);
  // somebody may have turned to one before it was locked
  await tx.query(
    sql`DELETE FROM leaving l USING tape_file f WHERE f.id = l.id AND NOT (${isForgettable} AND NOT ${isInUse})`,
  );
  await tx.query(sql`DELETE FROM verification w USING leaving l WHERE w.file_id = l.id`);
  await tx.query(sql`DELETE FROM removal m USING leaving l WHERE m.file_id = l.id`);
  const rows = await tx.query<{ id: bigint; isTold: boolean }>(
    sql`SELECT l.id, age(f.xmin) <= age(${told.since}::xid) OR EXISTS (SELECT FROM hold h WHERE h.file_id = l.id)
          OR EXISTS (SELECT FROM bulk_file b WHERE b.file_id = l.id) AS "isTold" FROM leaving l JOIN tape_file f ON f.id = l.id`,
  );
  const stay = rows.filter(({ id, isTold }) => isTold || told.ids.has(id)).map(({ id }) => id);
  await tx.query(
    // whole, however long it is: people are to know it, and the rules of its folder go on holding (access/paths.ts)
    sql`UPDATE tape_file f SET forgotten_at = ${ctx.now()}::timestamp, path = '/.tapegate-forgotten/' || f.id || f.path,
          volume_id = NULL, "position" = NULL, copy_volume_id = NULL, copy_position = NULL, copy_error = NULL, tape_path = NULL
        WHERE f.id = ANY(${stay}::bigint[])`,
  );
  await tx.query(sql`DELETE FROM tape_file f USING leaving l WHERE f.id = l.id AND f.id <> ALL(${stay}::bigint[])`);
}

/** What `tapegate doctor` finds: a fault of one thing, with what was expected and what is there. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';

export interface Finding {
  /** Stable, for scripts: `quota-used`, `copy-missing`, … */
  kind: string;
  /** A path, a user, a request, a mount point. */
  thing: string;
  expected: string;
  found: string;
  isRepaired: boolean;
}

/** A fault of a row; `key` is the row's id, in the order of which faults are found. */
export interface Fault {
  key: bigint;
  thing: string;
  expected: string;
  found: string;
}

/** Faults of one kind: how rows are compared with what they should be, and mended. */
export interface FaultKind {
  kind: string;
  /** It may be found for a moment where nothing is wrong: only what is found again a while later is a fault. */
  isPassing?: true;
  /**
   * A query of the next faults after a key, in one statement, so that what runs meanwhile is seen before or after a step
   * and never in the middle of it.
   */
  find(after: bigint, limit: number): Sql;
  /** Judges again under the locks and mends what is still wrong. Calling twice is safe. */
  repair(ctx: Context, keys: readonly bigint[]): Promise<void>;
}

const PAGE = 500;

/** What may be found for a moment where nothing is wrong is looked for again after so long. */
export const PASSING_MS = 2000;

/** All faults of a kind, page by page, each mended (when asked for) before it is told. */
export async function* findFaults(
  ctx: Context,
  fault: FaultKind,
  options: { repair: boolean },
): AsyncGenerator<Finding> {
  const find = async (after: bigint) => (await ctx.db.pool.query<Fault>(fault.find(after, PAGE))).rows;
  const before = fault.isPassing && new Set((await find(-1n)).map(({ key }) => key));
  if (before?.size === 0) return;
  if (before) await sleep(PASSING_MS);
  for (let after = -1n; ; ) {
    const found = await find(after);
    const faults = before ? found.filter(({ key }) => before.has(key)) : found;
    const mends = options.repair && faults.length > 0;
    if (mends) {
      await fault.repair(
        ctx,
        faults.map((fault) => fault.key),
      );
    }
    const left = mends ? new Set((await find(after)).map((fault) => fault.key)) : undefined;
    for (const { key, thing, expected, found } of faults) {
      yield { kind: fault.kind, thing, expected, found, isRepaired: left !== undefined && !left.has(key) };
    }
    if (found.length < PAGE) return;
    after = found.at(-1)?.key ?? after;
  }
}

/** How much the checks look at, so that silence is not mistaken for health. */
export async function countLookedAt(ctx: Context): Promise<Record<string, bigint>> {
  const { rows } = await ctx.db.pool.query<Record<string, bigint>>(
    sql`SELECT (SELECT count(*) FROM quota) AS quotas, (SELECT count(*) FROM request) AS requests,
       (SELECT count(*) FROM hold) + (SELECT coalesce(sum(cardinality(file_ids)), 0)::bigint FROM hold_bundle) AS holds, (SELECT count(*) FROM recall) AS recalls,
       (SELECT count(*) FROM restore_disk) AS disks`,
  );
  return rows[0] ?? {};
}

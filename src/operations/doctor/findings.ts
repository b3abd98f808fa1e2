/** What `tapegate doctor` finds: a fault of one thing, with what was expected and what is there. */
import type { Context } from '../../context.js';

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

/** Compares rows with what they should be, and mends them. */
export interface Check {
  kind: string;
  /**
   * Finds the next faults, each time in one statement, so that what runs meanwhile is seen before or after a step and
   * never in the middle of it. `$1` is the last key, `$2` how many.
   */
  sql: string;
  /** Judges again under the locks and mends what is still wrong. Calling twice is safe. */
  repair(ctx: Context, keys: readonly bigint[]): Promise<void>;
}

const PAGE = 500;

/** All faults of a check, page by page, each mended (when asked for) before it is told. */
export async function* runCheck(ctx: Context, check: Check, options: { repair: boolean }): AsyncGenerator<Finding> {
  const find = async (after: bigint) => (await ctx.db.pool.query<Fault>(check.sql, [after, PAGE])).rows;
  for (let after = -1n; ; ) {
    const faults = await find(after);
    const mends = options.repair && faults.length > 0;
    if (mends) {
      await check.repair(
        ctx,
        faults.map((fault) => fault.key),
      );
    }
    const left = mends ? new Set((await find(after)).map((fault) => fault.key)) : undefined;
    for (const { key, thing, expected, found } of faults) {
      yield { kind: check.kind, thing, expected, found, isRepaired: left !== undefined && !left.has(key) };
    }
    if (faults.length < PAGE) return;
    after = faults.at(-1)?.key ?? after;
  }
}

/** How much the checks look at, so that silence is not mistaken for health. */
export async function countRows(ctx: Context): Promise<Record<string, bigint>> {
  const { rows } = await ctx.db.pool.query<Record<string, bigint>>(
    `SELECT (SELECT count(*) FROM quota) AS quotas, (SELECT count(*) FROM request) AS requests,
       (SELECT count(*) FROM hold) AS holds, (SELECT count(*) FROM recall) AS recalls,
       (SELECT count(*) FROM restore_disk) AS disks`,
  );
  return rows[0] ?? {};
}

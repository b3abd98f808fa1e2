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

/** Faults of one kind: how rows are compared with what they should be. */
export interface FoundKind {
  kind: string;
  /** It may be found for a moment where nothing is wrong: only what is found again a while later is a fault. */
  isPassing?: true;
  /**
   * A query of the next faults after a key, in one statement, so that what runs meanwhile is seen before or after a step
   * and never in the middle of it.
   * @param after a bigint
   * @param now a timestamp, by the clock that dates the rows
   */
  find(after: Sql, limit: number, now: Sql): Sql;
}

/** The same, and how they are mended. */
export interface FaultKind extends FoundKind {
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
  { repair }: { repair: boolean },
): AsyncGenerator<Finding> {
  const ask = async (statement: Sql) => (await ctx.db.pool.query<Fault>(statement)).rows;
  const mend = repair ? (keys: readonly bigint[]) => fault.repair(ctx, keys) : undefined;
  for (let after: bigint | undefined = -1n; after !== undefined; ) {
    const page: FaultPage = await findPage(fault, { after, limit: PAGE }, { ask, mend, now: ctx.now });
    for (const { key: _, ...finding } of page.findings) yield finding;
    after = page.next;
  }
}

export interface FaultPage {
  findings: (Finding & Pick<Fault, 'key'>)[];
  /** The key after which the next page begins; undefined when all of the kind was looked at. */
  next: bigint | undefined;
}

/** What is asked of the database, and what mends, where anything is to be mended. */
export interface FaultWays {
  ask(statement: Sql): Promise<Fault[]>;
  mend?: ((keys: readonly bigint[]) => Promise<void>) | undefined;
  now(): string;
}

/** The next faults of a kind. What passes by itself is looked for twice. */
export async function findPage(
  fault: FoundKind,
  { after, limit }: { after: bigint; limit: number },
  { ask, mend, now }: FaultWays,
): Promise<FaultPage> {
  const find = () => ask(fault.find(sql`${after}::bigint`, limit, sql`${now()}::timestamp`));
  let found = await find();
  let faults = found;
  if (fault.isPassing && found.length > 0) {
    const before = keysOf(found);
    await sleep(PASSING_MS);
    found = await find();
    faults = found.filter(({ key }) => before.has(key));
  }
  const isMended = mend !== undefined && faults.length > 0;
  if (isMended) await mend(faults.map(({ key }) => key));
  const left = isMended ? keysOf(await find()) : undefined;
  const findings = faults.map(({ key, thing, expected, found }) => {
    return { key, kind: fault.kind, thing, expected, found, isRepaired: left !== undefined && !left.has(key) };
  });
  return { findings, next: found.length < limit ? undefined : found.at(-1)?.key };
}

function keysOf(faults: readonly Fault[]): Set<bigint> {
  return new Set(faults.map(({ key }) => key));
}

/** How much the checks look at, so that silence is not mistaken for health. */
export const lookedAt = sql`SELECT (SELECT count(*) FROM quota) AS quotas, (SELECT count(*) FROM request) AS requests,
  (SELECT count(*) FROM hold) + (SELECT coalesce(sum(cardinality(file_ids)), 0)::bigint FROM hold_bundle) AS holds,
  (SELECT count(*) FROM recall) AS recalls, (SELECT count(*) FROM restore_disk) AS disks`;

/** How many of each. */
export type LookedAt = Record<'quotas' | 'requests' | 'holds' | 'recalls' | 'disks', bigint>;

export async function countLookedAt(ctx: Context): Promise<LookedAt | undefined> {
  const { rows } = await ctx.db.pool.query<LookedAt>(lookedAt);
  return rows[0];
}

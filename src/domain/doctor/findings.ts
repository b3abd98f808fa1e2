/** Findings of `tapegate doctor`, with the expected and the actual state. */

import { type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';

export interface Finding {
  kind: string;
  thing: string;
  expected: string;
  found: string;
  isRepaired: boolean;
}

/** `key` is the row's id. Faults are found in its order. */
export interface Fault {
  key: bigint;
  thing: string;
  expected: string;
  found: string;
}

export interface FoundKind {
  kind: string;
  /**
   * Selects the next faults in one statement, which sees no half-finished step. @param now of the clock that dates the
   * rows
   */
  find(after: Sql, limit: number, now: Sql): Sql;
}

export interface FaultKind extends FoundKind {
  /** Checks again under locks and repairs remaining faults. Calling it twice is safe. */
  repair(ctx: Context, keys: readonly bigint[]): Promise<void>;
}

const PAGE = 500;

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

interface FaultPage {
  findings: (Finding & Pick<Fault, 'key'>)[];
  /** Undefined if all of the kind was checked. */
  next: bigint | undefined;
}

interface FaultWays {
  ask(statement: Sql): Promise<Fault[]>;
  mend?: ((keys: readonly bigint[]) => Promise<void>) | undefined;
  now(): string;
}

export async function findPage(
  fault: FoundKind,
  { after, limit }: { after: bigint; limit: number },
  { ask, mend, now }: FaultWays,
): Promise<FaultPage> {
  const find = () => ask(fault.find(sql`${after}::bigint`, limit, sql`${now()}::timestamp`));
  const faults = await find();
  const isMended = mend !== undefined && faults.length > 0;
  if (isMended) await mend(faults.map(({ key }) => key));
  const left = isMended ? keysOf(await find()) : undefined;
  const findings = faults.map(({ key, thing, expected, found }) => {
    return { key, kind: fault.kind, thing, expected, found, isRepaired: left !== undefined && !left.has(key) };
  });
  return { findings, next: faults.length < limit ? undefined : faults.at(-1)?.key };
}

function keysOf(faults: readonly Fault[]): Set<bigint> {
  return new Set(faults.map(({ key }) => key));
}

/** Numbers of checked rows, so that an empty result is not mistaken for health. */
export const lookedAt = sql`SELECT (SELECT count(*) FROM quota) AS quotas, (SELECT count(*) FROM request) AS requests,
  (SELECT count(*) FROM request_file) AS "requestFiles", (SELECT count(*) FROM recall) AS recalls, (SELECT count(*) FROM restore_disk) AS disks`;

export type LookedAt = Record<'quotas' | 'requests' | 'requestFiles' | 'recalls' | 'disks', bigint>;

export async function countLookedAt(ctx: Context): Promise<LookedAt | undefined> {
  const rows = await ctx.db.rows<LookedAt>(lookedAt);
  return rows[0];
}

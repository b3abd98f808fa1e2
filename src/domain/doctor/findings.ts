/** Findings of `tapegate doctor`. A finding describes an inconsistency with the expected state and the actual state. */

import { type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';

export interface Finding {
  kind: string;
  object: string;
  expected: string;
  found: string;
  isRepaired: boolean;
}

/** A database row that a check reports as a finding. Findings are ordered by `key`, the row's id. */
export interface FoundRow {
  key: bigint;
  object: string;
  expected: string;
  found: string;
}

export interface FindingKind {
  kind: string;
  /**
   * Returns the query for the next database rows with a finding. The query must be a single statement, so that all its
   * rows come from one snapshot of the database.
   */
  find(after: Sql, limit: number, now: Sql): Sql;
}

export interface RepairableKind extends FindingKind {
  /** Locks and checks the rows again, and repairs the rows that still have the finding. Repeating a call is safe. */
  repair(ctx: Context, keys: readonly bigint[]): Promise<void>;
}

const PAGE = 500;

export async function* findRepairable(
  ctx: Context,
  kind: RepairableKind,
  { repair }: { repair: boolean },
): AsyncGenerator<Finding> {
  const ask = async (statement: Sql) => (await ctx.db.pool.query<FoundRow>(statement)).rows;
  const mend = repair ? (keys: readonly bigint[]) => kind.repair(ctx, keys) : undefined;
  for (let after: bigint | undefined = -1n; after !== undefined; ) {
    const page: KindPage = await findPage(kind, { after, limit: PAGE }, { ask, mend, now: ctx.now });
    for (const { key: _, ...finding } of page.findings) yield finding;
    after = page.next;
  }
}

interface KindPage {
  findings: (Finding & Pick<FoundRow, 'key'>)[];
  next: bigint | undefined;
}

interface FindingAccess {
  ask(statement: Sql): Promise<FoundRow[]>;
  mend?: ((keys: readonly bigint[]) => Promise<void>) | undefined;
  now(): string;
}

export async function findPage(
  kind: FindingKind,
  { after, limit }: { after: bigint; limit: number },
  { ask, mend, now }: FindingAccess,
): Promise<KindPage> {
  const find = () => ask(kind.find(sql`${after}::bigint`, limit, sql`${now()}::timestamp`));
  const rows = await find();
  const isMended = mend !== undefined && rows.length > 0;
  if (isMended) await mend(rows.map(({ key }) => key));
  const left = isMended ? keysOf(await find()) : undefined;
  const findings = rows.map(({ key, object, expected, found }) => {
    return { key, kind: kind.kind, object, expected, found, isRepaired: left !== undefined && !left.has(key) };
  });
  return { findings, next: rows.length < limit ? undefined : rows.at(-1)?.key };
}

function keysOf(rows: readonly FoundRow[]): Set<bigint> {
  return new Set(rows.map(({ key }) => key));
}

/**
 * SQL that counts the rows that the checks read. Users see from the counts whether `tapegate doctor` has checked an
 * empty database.
 */
export const examined = sql`SELECT (SELECT count(*) FROM quota) AS quotas, (SELECT count(*) FROM request) AS requests,
  (SELECT count(*) FROM request_file) AS "requestFiles", (SELECT count(*) FROM recall) AS recalls, (SELECT count(*) FROM restore_disk) AS disks`;

export type ExaminedRows = Record<'quotas' | 'requests' | 'requestFiles' | 'recalls' | 'disks', bigint>;

export async function countExamined(ctx: Context): Promise<ExaminedRows | undefined> {
  const rows = await ctx.db.rows<ExaminedRows>(examined);
  return rows[0];
}

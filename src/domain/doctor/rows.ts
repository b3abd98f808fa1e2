/**
 * Reads the findings that show in the database alone, for gateways, which may not access a disk: by page, with a time
 * limit. The repair of some needs a host with the restore disks.
 */
import { performance } from 'node:perf_hooks';
import { InvalidInputError, quote } from '../../core/errors.js';
import { askAtLength } from '../../db/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import { audited, auditedRun } from '../audit/audited.js';
import type { Context } from '../context.js';
import { readHostsOf } from '../disks/disks.js';
import { farTimeFaults } from '../far-times.js';
import { allow } from '../policy.js';
import { restoredUnheld } from './copies.js';
import { counterFaults } from './counters.js';
import {
  type Fault,
  type FaultKind,
  type Finding,
  type FoundKind,
  findPage,
  type LookedAt,
  lookedAt,
} from './findings.js';
import { holdUnserved, queueFaults, recallLost, stagingFaults, volumeFaults } from './queue.js';

/** In this order, since repairs change the findings of later kinds. */
export const rowFaults: readonly FaultKind[] = [
  ...counterFaults,
  holdUnserved,
  recallLost,
  ...queueFaults,
  ...volumeFaults,
  ...stagingFaults,
  ...farTimeFaults,
];

type AnyFault = FoundKind & Partial<Pick<FaultKind, 'repair'>>;
const allFaults: readonly AnyFault[] = [...rowFaults, restoredUnheld];

/** Their repair needs the restore disks; the first one only if its drive must be recovered. */
const hostFaults: readonly AnyFault[] = [recallLost, restoredUnheld];

export interface FindingPlace {
  kind: string;
  key: bigint;
}

export interface RowFinding extends Finding, FindingPlace {
  /** A host with the restore disks may repair it. */
  needsHost: boolean;
}

export interface FindingPage {
  findings: RowFinding[];
  next: FindingPlace | undefined;
}

interface PageInput {
  after?: FindingPlace | undefined;
  limit: number;
  /** Time after which the page ends, with at least one step. */
  ms?: number;
}

const PAGE_MS = 20_000;

/**
 * @param reader aborts when the caller no longer waits
 * @throws InvalidInputError
 */
export async function listFindings(ctx: Context, page: PageInput, reader?: AbortSignal): Promise<FindingPage> {
  allow(ctx, 'listFindings');
  return await walk(ctx, page, { repair: false, reader });
}

/** Lists findings and repairs each as far as the database is wrong. Calling it twice is safe. */
export async function repairFindings(ctx: Context, page: PageInput, reader?: AbortSignal): Promise<FindingPage> {
  const action = { operation: 'repairFindings', kind: 'NONE', object: '', given: { after: page.after } } as const;
  const describe = ({ findings }: FindingPage) => ({
    found: findings.length,
    repaired: findings.filter(({ isRepaired }) => isRepaired).length,
    kinds: [...new Set(findings.map(({ kind }) => kind))], // no names: these would outlive the removal of a user
  });
  return await audited(ctx, action, async () => {
    startOfWalk(page.after);
    return await auditedRun(ctx, action, () => walk(ctx, page, { repair: true, reader }), describe);
  });
}

interface Walk {
  repair: boolean;
  reader: AbortSignal | undefined;
}

async function walk(ctx: Context, { after, limit, ms = PAGE_MS }: PageInput, how: Walk): Promise<FindingPage> {
  const begun = performance.now();
  const findings: RowFinding[] = [];
  let [index, key] = startOfWalk(after);
  for (let fault = allFaults[index]; fault && findings.length < limit; fault = allFaults[index]) {
    const step = await examineKind(ctx, fault, { after: key, limit: limit - findings.length }, how);
    if (!step) break;
    findings.push(...step.findings);
    if (step.next === undefined) index++;
    key = step.next ?? -1n;
    if (performance.now() - begun >= ms) break;
  }
  const kind = allFaults[index]?.kind;
  return { findings, next: kind === undefined ? undefined : { kind, key } };
}

function startOfWalk(after: FindingPlace | undefined): [index: number, key: bigint] {
  if (!after) return [0, -1n];
  const index = allFaults.findIndex(({ kind }) => kind === after.kind);
  if (index < 0) throw new InvalidInputError('after', `must be a cursor of the findings, not ${quote(after.kind)}`);
  return [index, after.key];
}

/** @returns undefined if the reader has disconnected during a repair: earlier repairs are still audited */
async function examineKind(
  ctx: Context,
  fault: AnyFault,
  page: { after: bigint; limit: number },
  { repair, reader }: Walk,
): Promise<{ findings: RowFinding[]; next: bigint | undefined } | undefined> {
  const { repair: repairFault } = fault;
  const ask = (statement: Sql) => askAtLength<Fault>(ctx, statement, reader);
  const mend = repair && repairFault ? (keys: readonly bigint[]) => repairFault(ctx, keys) : undefined;
  try {
    const { findings, next } = await findPage(fault, page, { ask, mend, now: ctx.now });
    const isForHost = hostFaults.includes(fault);
    return { next, findings: findings.map((each) => ({ ...each, needsHost: isForHost && !each.isRepaired })) };
  } catch (error) {
    if (repair && reader?.aborted) return undefined;
    throw error;
  }
}

export async function readLookedAt(ctx: Context, reader?: AbortSignal): Promise<LookedAt> {
  allow(ctx, 'listFindings');
  const [row] = await askAtLength<LookedAt>(ctx, lookedAt, reader);
  if (!row) throw new Error('nothing was counted');
  return row;
}

const NAMED = 20;

/** Names unexamined restore disks and the host for their check; null if there are none. */
export async function describeUnchecked(ctx: Context): Promise<string | null> {
  allow(ctx, 'listFindings');
  const rows = await ctx.db.rows<{ id: number; mountpoint: string }>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k ORDER BY k.mountpoint LIMIT ${NAMED + 1}`,
  );
  if (rows.length === 0) return null;
  const named = rows.slice(0, NAMED);
  const hosts = await readHostsOf(
    ctx,
    named.map(({ id }) => id),
  );
  const disks = named.map(({ id, mountpoint }) => {
    const on = hosts.get(id) ?? [];
    return on.length === 0 ? mountpoint : `${mountpoint} (${on.join(', ')})`;
  });
  const more = rows.length > NAMED ? ', and more' : '';
  return `not checked here: ${disks.join(', ')}${more}; run "tapegate doctor" with DATABASE_URL on a host that mounts them`;
}

/**
 * Reads, in pages and with a time limit, the findings that can be detected from the database alone. Gateways use this
 * module, because they must not access disks.
 */
import { performance } from 'node:perf_hooks';
import { InvalidInputError, quote } from '../../core/errors.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import { audited, auditedRun } from '../audit/audited.js';
import type { Context } from '../context.js';
import { readHostsOf } from '../disks/disks.js';
import { farTimeKinds } from '../far-times.js';
import { allow } from '../policy.js';
import { counterKinds } from './counters.js';
import {
  type ExaminedRows,
  examined,
  type Finding,
  type FindingKind,
  type FoundRow,
  findPage,
  type RepairableKind,
} from './findings.js';
import { queueKinds, recallLost, requestFileUnserved, stagingKinds, volumeKinds } from './queue-checks.js';
import { restoredUnheld } from './recorded-copies.js';

/**
 * Kinds of findings in the order of their checks. Their order matters, because repairing a finding of one kind can
 * remove or add findings of later kinds.
 */
export const rowKinds: readonly RepairableKind[] = [
  ...counterKinds,
  requestFileUnserved,
  recallLost,
  ...queueKinds,
  ...volumeKinds,
  ...stagingKinds,
  ...farTimeKinds,
];

type AnyKind = FindingKind & Partial<Pick<RepairableKind, 'repair'>>;
const allKinds: readonly AnyKind[] = [...rowKinds, restoredUnheld];

/** Kinds of findings that can be repaired only on a host with the restore disks. */
const hostKinds: readonly AnyKind[] = [recallLost, restoredUnheld];

export interface FindingCursor {
  kind: string;
  key: bigint;
}

export interface RowFinding extends Finding, FindingCursor {
  needsHost: boolean;
}

export interface FindingPage {
  findings: RowFinding[];
  next: FindingCursor | undefined;
}

interface PageInput {
  after?: FindingCursor | undefined;
  limit: number;
  /**
   * Time limit for reading a page, in milliseconds. A call always checks at least one kind of finding, even if this
   * check exceeds the time limit.
   */
  ms?: number;
}

const PAGE_MS = 20_000;

/**
 * @throws InvalidInputError
 */
export async function listFindings(ctx: Context, page: PageInput, reader?: AbortSignal): Promise<FindingPage> {
  allow(ctx, 'listFindings');
  return await walk(ctx, page, { repair: false, reader });
}

export async function repairFindings(ctx: Context, page: PageInput, reader?: AbortSignal): Promise<FindingPage> {
  const action = { operation: 'repairFindings', kind: 'NONE', object: '', given: { after: page.after } } as const;
  const describe = ({ findings }: FindingPage) => ({
    found: findings.length,
    repaired: findings.filter(({ isRepaired }) => isRepaired).length,
    // omit users' names, because audit rows stay when a user is purged
    kinds: [...new Set(findings.map(({ kind }) => kind))],
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
  for (let kind = allKinds[index]; kind && findings.length < limit; kind = allKinds[index]) {
    const step = await examineKind(ctx, kind, { after: key, limit: limit - findings.length }, how);
    if (!step) break;
    findings.push(...step.findings);
    if (step.next === undefined) index++;
    key = step.next ?? -1n;
    if (performance.now() - begun >= ms) break;
  }
  const kind = allKinds[index]?.kind;
  return { findings, next: kind === undefined ? undefined : { kind, key } };
}

function startOfWalk(after: FindingCursor | undefined): [index: number, key: bigint] {
  if (!after) return [0, -1n];
  const index = allKinds.findIndex(({ kind }) => kind === after.kind);
  if (index < 0)
    throw new InvalidInputError(
      'after',
      `must be a cursor that the list of findings returned, not ${quote(after.kind)}`,
    );
  return [index, after.key];
}

/**
 * @returns undefined if the reader disconnected during a repair. The caller still audits the repairs that were
 * completed before the disconnection.
 */
async function examineKind(
  ctx: Context,
  kind: AnyKind,
  page: { after: bigint; limit: number },
  { repair, reader }: Walk,
): Promise<{ findings: RowFinding[]; next: bigint | undefined } | undefined> {
  const { repair: repairRows } = kind;
  const ask = (statement: Sql) => askAtLength<FoundRow>(ctx, statement, reader);
  const mend = repair && repairRows ? (keys: readonly bigint[]) => repairRows(ctx, keys) : undefined;
  try {
    const { findings, next } = await findPage(kind, page, { ask, mend, now: ctx.now });
    const isForHost = hostKinds.includes(kind);
    return { next, findings: findings.map((each) => ({ ...each, needsHost: isForHost && !each.isRepaired })) };
  } catch (error) {
    if (repair && reader?.aborted) return undefined;
    throw error;
  }
}

export async function readExamined(ctx: Context, reader?: AbortSignal): Promise<ExaminedRows> {
  allow(ctx, 'listFindings');
  const [row] = await askAtLength<ExaminedRows>(ctx, examined, reader);
  if (!row) throw new Error('nothing was counted');
  return row;
}

const NAMED = 20;

/**
 * Returns the mount points of the restore disks, and the hosts on which `tapegate doctor` can check them. Returns null
 * if there are no restore disks.
 */
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
  return `disks not checked on this host: ${disks.join(', ')}${more}; run "tapegate doctor", with DATABASE_URL set, on a host that mounts these disks`;
}

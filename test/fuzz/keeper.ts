/** Operator of a fuzz test, who resumes suspended objects and limits the number of live requests. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { removeQuotaMember } from '../../src/domain/access/members.js';
import { listPathRules, removePathRule } from '../../src/domain/access/path-rules.js';
import { setMedium } from '../../src/domain/catalogue/volumes.js';
import type { Context } from '../../src/domain/context.js';
import { listDisks } from '../../src/domain/disks/disks.js';
import { importRows } from '../../src/domain/import/import.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import type { MemberKind } from '../../src/generated/prisma/enums.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { resumeAll } from '../torture/operators.js';
import { rows, users } from './archive.js';
import type { Known } from './known.js';
import { tokens } from './values.js';

const EVERY_MS = 1000;
const MAX_LIVE = 150;
/** Number of newest requests whose ids inputs can use, because ids in GraphQL responses are not collected. */
const NAMED = 60;
/** Size of a restore disk, far larger than all files together. */
const DISK_BYTES = 10n ** 9n;

/** Repeats the operator's work until the signal aborts. Rejects if the server's database fails. */
export async function keepHouse(ctx: Context, known: Known, signal: AbortSignal): Promise<void> {
  let seen: ReadonlySet<string> = new Set();
  while (!signal.aborted) {
    await restoreService(ctx);
    await restoreTokens(ctx);
    seen = await removeRules(ctx, known, seen);
    const live = await readLive(ctx);
    for (const { id, user } of live.slice(0, NAMED)) known.name(id, user);
    for (const { id } of live.slice(MAX_LIVE)) await cancelRequest(ctx, id);
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {}); // ignore the abort
  }
}

/** Resumes everything and removes all rules, after the last input. */
export async function restoreAll(ctx: Context, known: Known): Promise<void> {
  await restoreService(ctx);
  await restoreSizes(ctx);
  await setMedium(ctx, { medium: 'linear' }); // the planner delays short queues of other media
  await removeRules(ctx, known, 'all');
}

async function restoreService(ctx: Context): Promise<void> {
  await resumeAll(ctx);
  await restoreQuotas(ctx);
  await restoreDisks(ctx);
  await ctx.db.pool.query('UPDATE volume SET retired_at = NULL, retired_reason = NULL WHERE retired_at IS NOT NULL');
}

/** Reads live requests, newest first. */
async function readLive({ db }: Context): Promise<{ id: number; user: string }[]> {
  const { rows: live } = await db.pool.query<{ id: number; user: string }>(
    `SELECT r.id, q."user" FROM request r JOIN quota q ON q.id = r.quota_id
     WHERE r.state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY r.id DESC`,
  );
  return live;
}

export async function restoreQuotas(ctx: Context): Promise<void> {
  const { rows: quotas } = await ctx.db.pool.query<{ user: string; size: bigint }>(
    'SELECT "user", size FROM quota WHERE removed_at IS NULL AND weight = 1',
  );
  const sizes = new Map(quotas.map(({ user, size }) => [user, size]));
  for (const { user, size } of users) {
    if (sizes.get(user) !== size) await setQuota(ctx, { user, size, email: 'someone@example.org', weight: 1 });
  }
}

export const mountpointsOf = ({ config }: Context): string[] =>
  ['restore-1', 'restore-2'].map((name) => path.join(config.dataDir, name));

export async function restoreDisks(ctx: Context): Promise<void> {
  const sizes = new Map((await listDisks(ctx)).map(({ mountpoint, size }) => [mountpoint, size]));
  for (const mountpoint of mountpointsOf(ctx)) {
    if (sizes.get(mountpoint) === DISK_BYTES) continue;
    const mark = !sizes.has(mountpoint);
    const { problem } = await addDisk(ctx, { mountpoint, size: DISK_BYTES, create: mark, mark });
    if (problem) throw new Error(problem);
  }
}

/** Reduces the size of files that an import made larger than all disks. Their recalls would wait for room forever. */
async function restoreSizes(ctx: Context): Promise<void> {
  const { rows: large } = await ctx.db.pool.query<{ path: string }>('SELECT path FROM tape_file WHERE size > $1', [
    DISK_BYTES,
  ]);
  if (large.length === 0) return;
  const known = new Map(rows.map((row) => [row.path, row]));
  const small = { size: 1n, spotName: null, volume: null, position: null, checksum: null };
  const restored = large.map(({ path: name }, index) => ({
    path: name,
    ...(known.get(name) ?? small),
    line: index + 1,
  }));
  await importRows(
    ctx,
    restored.map((row) => ({ ...row, stage: null, verified: undefined })),
  );
}

/** Restores revoked tokens, except the last one, which is revoked from the start. */
async function restoreTokens({ db }: Context): Promise<void> {
  await db.pool.query(
    `WITH good AS (UPDATE api_token SET revoked_at = NULL WHERE id < $1 AND revoked_at IS NOT NULL RETURNING id)
     SELECT pg_notify('tapegate', 'access') FROM good LIMIT 1`,
    [tokens.length],
  );
}

/**
 * Removes path rules and members whose keys are in `seen`.
 * @returns the keys of all other rules and members
 */
async function removeRules(
  ctx: Context,
  known: Known,
  seen: ReadonlySet<string> | 'all',
): Promise<ReadonlySet<string>> {
  const left = new Set<string>();
  const remove = async (key: string, work: () => Promise<unknown>) => {
    if (seen !== 'all' && !seen.has(key)) left.add(key);
    else await work().catch(() => {}); // an input has already removed the rule or member
  };
  const rules = await listPathRules(ctx);
  for (const rule of rules) await remove(JSON.stringify(rule), () => removePathRule(ctx, rule));
  if (rules.length > 0) for (const { id } of await readLive(ctx)) known.ruled.add(id);
  const { rows: members } = await ctx.db.pool.query<{ quota: string; kind: MemberKind; name: string }>(
    'SELECT q."user" AS quota, m.kind, m.name FROM quota_member m JOIN quota q ON q.id = m.quota_id',
  );
  for (const member of members) await remove(JSON.stringify(member), () => removeQuotaMember(ctx, member));
  return left;
}

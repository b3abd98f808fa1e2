/**
 * What an operator does during a fuzz: puts back into service what was taken out, takes back what keeps all inputs from getting
 * through, and bounds how many requests live.
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../src/context.js';
import { addDisk } from '../../src/engine/disk/setup.js';
import { NotFoundError } from '../../src/errors.js';
import type { MemberKind } from '../../src/generated/prisma/enums.js';
import { removeMember } from '../../src/operations/access/members.js';
import { listPathRules, removePathRule } from '../../src/operations/access/path-rules.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { setMedium } from '../../src/operations/catalogue/media.js';
import { reinstateFiles } from '../../src/operations/catalogue/withdrawals.js';
import { listDisks } from '../../src/operations/disks/disks.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { resumeAll } from '../torture/operators.js';
import { rows, users } from './archive.js';
import type { Known } from './known.js';
import { tokens } from './texts.js';

const EVERY_MS = 1000;
/** Lists have so many, and each import looks at the patterns of so many. */
const LIVE = 150;
/** Of those that GraphQL has made, too, inputs name the last. */
const NAMED = 60;
const EMAIL = 'someone@example.org';

/** Until the signal: a server that has gone ends it as well. */
export async function keepBounded(ctx: Context, known: Known, signal: AbortSignal): Promise<void> {
  let seen: ReadonlySet<string> = new Set();
  while (!signal.aborted) {
    await resumeAll(ctx);
    await restoreQuotas(ctx);
    await restoreTokens(ctx);
    await restoreDisks(ctx);
    await restoreVolumes(ctx);
    seen = await liftRules(ctx, known, seen);
    const rows = await readLive(ctx);
    for (const { id, user } of rows.slice(0, NAMED)) known.name(id, user);
    for (const { id } of rows.slice(LIVE)) await cancelRequest(ctx, id);
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {}); // woken by the end
  }
}

/** The last one first. */
async function readLive(ctx: Context): Promise<{ id: number; user: string }[]> {
  const { rows } = await ctx.db.pool.query<{ id: number; user: string }>(
    `SELECT r.id, q."user" FROM request r JOIN quota q ON q.id = r.quota_id
     WHERE r.state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY r.id DESC`,
  );
  return rows;
}

/** As they were at the start, and there. */
export async function restoreQuotas(ctx: Context): Promise<void> {
  const { rows } = await ctx.db.pool.query<{ user: string; size: bigint }>(
    'SELECT "user", size FROM quota WHERE removed_at IS NULL AND weight = 1',
  );
  const there = new Map(rows.map(({ user, size }) => [user, size]));
  for (const { user, size } of users) {
    if (there.get(user) !== size) await setQuota(ctx, { user, size, email: EMAIL, weight: 1 });
  }
}

export const mountpointsOf = ({ config }: Context): string[] =>
  ['restore-1', 'restore-2'].map((name) => path.join(config.dataDir, name));

/** Far more than all files take together. */
const DISK_BYTES = 10n ** 9n;

/** There, and with their allocation. */
export async function restoreDisks(ctx: Context): Promise<void> {
  const disks = new Map((await listDisks(ctx)).map(({ mountpoint, size }) => [mountpoint, size]));
  for (const mountpoint of mountpointsOf(ctx)) {
    if (disks.get(mountpoint) === DISK_BYTES) continue;
    const mark = !disks.has(mountpoint);
    const { problem } = await addDisk(ctx, { mountpoint, size: DISK_BYTES, create: mark, mark });
    if (problem) throw new Error(problem);
  }
}

/** What an import has made larger than any disk would wait for room until somebody puts its size right. */
export async function correctSizes(ctx: Context): Promise<void> {
  const { rows: large } = await ctx.db.pool.query<{ path: string }>('SELECT path FROM tape_file WHERE size > $1', [
    DISK_BYTES,
  ]);
  if (large.length === 0) return;
  const known = new Map(rows.map((row) => [row.path, row]));
  const unknown = { size: 1n, spotName: null, volume: null, position: null, checksum: null };
  const corrected = large.map(({ path }, index) => ({ path, ...(known.get(path) ?? unknown), line: index + 1 }));
  await importRows(
    ctx,
    corrected.map((row) => ({ ...row, stage: null, verified: undefined })),
  );
}

/** Small queues of volumes whose mounts cost time wait for more, longer than a round. */
export async function restoreMedia(ctx: Context): Promise<void> {
  await setMedium(ctx, { medium: 'linear' });
}

/** None is retired: nothing would be imported there, and nothing read. */
export async function restoreVolumes(ctx: Context): Promise<void> {
  await ctx.db.pool.query('UPDATE volume SET retired_at = NULL, retired_why = NULL WHERE retired_at IS NOT NULL');
}

/** All of a volume may have been withdrawn with it. */
export async function restoreWithdrawn(ctx: Context): Promise<void> {
  await reinstateFiles(ctx, { path: '/data/' }).catch((error: unknown) => {
    if (!(error instanceof NotFoundError)) throw error;
  });
}

/** All but the last one, which nobody has known since the start. */
async function restoreTokens(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    `WITH good AS (UPDATE api_token SET revoked_at = NULL WHERE id < $1 AND revoked_at IS NOT NULL RETURNING id)
     SELECT pg_notify('tapegate', 'access') FROM good LIMIT 1`,
    [tokens.length],
  );
}

/**
 * Who may what by rules and as a member holds from one look to the next one.
 * @param seen what was there at the last look; `all`: none of it is left
 * @returns what is left
 */
export async function liftRules(
  ctx: Context,
  known: Known,
  seen: ReadonlySet<string> | 'all',
): Promise<ReadonlySet<string>> {
  const left = new Set<string>();
  const lift = async (key: string, remove: () => Promise<unknown>) => {
    if (seen !== 'all' && !seen.has(key)) left.add(key);
    else await remove().catch(() => {}); // somebody else was first
  };
  const rules = await listPathRules(ctx);
  for (const rule of rules) await lift(JSON.stringify(rule), () => removePathRule(ctx, rule));
  if (rules.length > 0) for (const { id } of await readLive(ctx)) known.ruled.add(id);
  const { rows } = await ctx.db.pool.query<{ quota: string; kind: MemberKind; name: string }>(
    'SELECT q."user" AS quota, m.kind, m.name FROM quota_member m JOIN quota q ON q.id = m.quota_id',
  );
  for (const member of rows) await lift(JSON.stringify(member), () => removeMember(ctx, member));
  return left;
}

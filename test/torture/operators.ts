/** What operators do meanwhile: sizes change, and things are taken out of service and put back. */
import type { Context } from '../../src/context.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { listSuspensions, resume, type SuspensionKey } from '../../src/operations/suspensions.js';
import { graphql } from './gateway.js';
import type { Random } from './random.js';
import { EAST, type World } from './world.js';

const SUSPEND = 'mutation ($input: SuspendInput!) { result: suspend(input: $input) { __typename } }';
const RESUME = 'mutation ($input: ResumeInput!) { result: resume(input: $input) { __typename } }';
const VERIFY = 'mutation ($match: String!) { result: verifyAgain(match: $match) { __typename } }';

/** From too small for what it holds to larger than it is. */
export async function resizeDisk(world: World, random: Random): Promise<void> {
  const { mountpoint } = random.pick(world.disks);
  const part = random.integer(2, 100);
  await setDisk(world.ctx, { mountpoint, size: (world.totalBytes * BigInt(part)) / 100n });
}

export async function resizeQuota(world: World, random: Random): Promise<void> {
  const user = random.pick(world.users);
  const part = random.pick([5, 20, 100, 100, 1000]);
  await setQuota(world.ctx, { user, size: (world.totalBytes * BigInt(part)) / 100n });
}

export async function suspendOne(world: World, random: Random): Promise<void> {
  const things: SuspensionKey[] = [
    ...world.users.map((name) => ({ kind: 'USER' as const, name })),
    ...world.disks.map(({ mountpoint }) => ({ kind: 'DISK' as const, name: mountpoint })),
    ...[1, 2, 3, 4].map((n) => ({ kind: 'DRIVE' as const, name: `drive-${n}` })),
    ...[1, 2].map((n) => ({ kind: 'DRIVE' as const, name: `${EAST}-${n}` })),
    ...[1, 2, 3, 4].map((n) => ({ kind: 'VOLUME' as const, name: `TG000${n}` })),
    { kind: 'BACKEND', name: 'directory' },
    { kind: 'BACKEND', name: EAST },
    ...world.remotes.systems.map(({ name }) => ({ kind: 'BACKEND' as const, name })),
  ];
  const mode = random.pick(['HELD', 'DRAINING'] as const);
  await graphql(
    world,
    SUSPEND,
    { input: { ...random.pick(things), mode, reason: 'planned' } },
    world.callers.operator.secret,
  );
}

/** One thing, when there is one. */
export async function resumeOne(world: World, random: Random): Promise<void> {
  const suspended = await listSuspensions(world.ctx);
  if (suspended.length === 0) return;
  const { kind, name } = random.pick(suspended);
  await graphql(world, RESUME, { input: { kind, name } }, world.callers.operator.secret);
}

export async function verifyAgain(world: World, random: Random): Promise<void> {
  await graphql(world, VERIFY, { match: `/g00${random.integer(0, 9)}/` }, world.callers.operator.secret);
}

/** Also what the engines have taken out of service themselves. */
export async function resumeAll(ctx: Context): Promise<void> {
  for (const { kind, name } of await listSuspensions(ctx)) await resume(ctx, { kind, name });
}

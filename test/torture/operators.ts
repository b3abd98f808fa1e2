/** An operator who resizes disks and quotas, and suspends and resumes parts of Tapegate. */
import type { Context } from '../../src/domain/context.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { listSuspensions, resume } from '../../src/domain/health/suspensions.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { mutate } from './gateway.js';
import type { Random } from './random.js';
import { EAST, type World } from './world.js';

/** Changes the size of a disk. The new size is between too small for the disk's copies and larger than all files. */
export async function resizeRestoreDisk(world: World, random: Random): Promise<void> {
  const { mountpoint } = random.pick(world.disks);
  await setDisk(world.ctx, { mountpoint, size: (world.totalBytes * BigInt(random.integer(2, 100))) / 100n });
}

export async function resizeQuota(world: World, random: Random): Promise<void> {
  const user = random.pick(world.users);
  const percent = random.pick([5n, 20n, 100n, 100n, 1000n]);
  await setQuota(world.ctx, { user, size: (world.totalBytes * percent) / 100n });
}

export async function suspendOne(world: World, random: Random): Promise<void> {
  const names: [kind: string, names: readonly string[]][] = [
    ['USER', world.users],
    ['DISK', world.disks.map(({ mountpoint }) => mountpoint)],
    ['DRIVE', ['drive-1', 'drive-2', 'drive-3', 'drive-4', `${EAST}-1`, `${EAST}-2`]],
    ['VOLUME', ['TG0001', 'TG0002', 'TG0003', 'TG0004']],
    ['LIBRARY', ['directory', EAST, ...world.stagingSystems.systems.map(({ name }) => name)]],
  ];
  const [kind, name] = random.pick(names.flatMap(([kind, all]) => all.map((name) => [kind, name])));
  await mutate(world, 'suspend', { kind, name, mode: random.pick(['IMMEDIATE', 'DRAINING']), reason: 'planned' });
}

export async function resumeOne(world: World, random: Random): Promise<void> {
  const suspended = (await listSuspensions(world.ctx)).filter(({ kind }) => kind !== 'CLOCK');
  if (suspended.length === 0) return;
  const { kind, name } = random.pick(suspended);
  await mutate(world, 'resume', { kind, name });
}

/**
 * Resumes everything, including suspensions by engines.
 * @param isClockRight whether to resume the clock, too. Resuming the clock confirms the clock's present time.
 */
export async function resumeAll(ctx: Context, { isClockRight = true } = {}): Promise<void> {
  for (const { kind, name } of await listSuspensions(ctx)) {
    if (kind !== 'CLOCK' || isClockRight) await resume(ctx, { kind, name });
  }
}

export async function verifyFiles(world: World, random: Random): Promise<void> {
  await mutate(world, 'verifyFiles', { match: `/g00${random.integer(0, 9)}/` });
}

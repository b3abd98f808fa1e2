/** Looks at restore disks for people: what is really free on them, and what is wrong. Nothing is written to them. */
import type { Context } from '../../context.js';
import { describeFull } from '../../operations/disks/full.js';
import { type DiskMeasurement, listMeasurable, noteMeasurements } from '../../operations/disks/measurements.js';
import type { CallWatch } from '../calls.js';
import { BoundedCalls } from './bounded-calls.js';
import { describeUntrusted, findUntrustedMount, type Untrusted } from './exposure.js';
import { rootOf } from './marker.js';
import { type FileSystem, fullnessOf, readFileSystem } from './space.js';

const ANSWER_MS = 2000;

/**
 * @param group RESTORE_GROUP
 * @returns what is free, or what is wrong, also where the disk does not answer in time
 */
export async function lookAtDisk(
  bounded: BoundedCalls,
  disk: { id: number; mountpoint: string },
  group: number | undefined,
  read = async () => readFileSystem(await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint })),
): Promise<DiskMeasurement> {
  const seen: FileSystem[] = [];
  let untrusted: Untrusted | undefined;
  const problem = await bounded.run(ANSWER_MS, disk, async () => {
    seen.push(await read());
    untrusted = await findUntrustedMount(disk.mountpoint, { group });
  });
  const [system] = seen;
  if (problem !== undefined || !system) return { free: null, problem: problem ?? null };
  const full = fullnessOf(system);
  const text = full === undefined ? untrusted && describeUntrusted(untrusted) : describeFull(full);
  return { free: system.freeBytes, problem: text ?? null };
}

/**
 * What an engine does every so often: it looks at all disks and writes down what it saw, for those who may not touch them. A disk
 * that is held since it fails is left to whoever tries it again; one that hangs is held, as by any call of a pass.
 */
export function createDiskLook(
  ctx: Context,
  { calls, host, read = readFileSystem }: { calls: CallWatch; host: string; read: typeof readFileSystem | undefined },
): () => Promise<void> {
  const bounded = new BoundedCalls();
  return async () => {
    const disks = await listMeasurable(ctx);
    const look = async ({ id, mountpoint }: (typeof disks)[number]) => {
      const follow = () =>
        calls.follow({ kind: 'disk', mountpoint }, async () => read(await rootOf({ diskId: id, mountpoint })));
      return { diskId: id, ...(await lookAtDisk(bounded, { id, mountpoint }, ctx.config.restoreGroup, follow)) };
    };
    await noteMeasurements(ctx, host, await Promise.all(disks.map(look)));
  };
}

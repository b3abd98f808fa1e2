/**
 * The real free space of restore disks, which other programs may fill.
 *
 * It is measured before recalls are started, with nothing locked (operations/disks/reservations.ts). A measurement serves again only while the disks' rows are
 * unchanged, and for a second at most. A disk that does not answer in time is skipped, and not measured again before it has answered.
 */
import { stat, statfs } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import { type DiskMeasurement, listMeasurable, noteMeasurements } from '../../operations/disks/disks.js';
import type { DiskSpace, MeasuredDisk } from '../../operations/disks/reservations.js';
import { describeFull } from '../../operations/health/circuits.js';
import { BoundedCalls, type CallWatch } from '../calls.js';
import { describeUntrusted, findUntrusted, findUntrustedMount, type Untrusted } from './exposure.js';
import { AbsentError, rootOf } from './marker.js';

/** Bytes of a file system: what it has, and what is free for ordinary users. */
export interface FileSystem {
  /** The same for all that share it. */
  name: string;
  totalBytes: bigint;
  freeBytes: bigint;
  /** It takes no further file, whatever is free. */
  hasNoInodes?: boolean;
}

/** @throws Error when the figures cannot be had */
export async function readFileSystem(mountpoint: string): Promise<FileSystem> {
  const { bavail, blocks, bsize, files, ffree } = await statfs(mountpoint, { bigint: true });
  if (blocks === 0n) throw new Error('the file system does not tell its size');
  const { dev } = await stat(mountpoint, { bigint: true });
  const hasNoInodes = files > 0n && ffree === 0n; // without a limit there is no number of them either
  return { name: String(dev), totalBytes: blocks * bsize, freeBytes: bavail * bsize, hasNoInodes };
}

/** Why it takes no further file although bytes are free, for people. */
function fullnessOf({ hasNoInodes }: FileSystem): string | undefined {
  return hasNoInodes ? 'its file system has no inodes left' : undefined;
}

/** Kept free for what files take beyond their bytes (the rest of a block, folders): a hundredth, at most 1 GiB. */
export function marginOf({ totalBytes }: FileSystem): bigint {
  const hundredth = totalBytes / 100n;
  return hundredth < 2n ** 30n ? hundredth : 2n ** 30n;
}

/** What is known of a disk before it is looked at. */
type SeenDisk = Pick<MeasuredDisk, 'id' | 'mountpoint'>;

/** What is wrong with a disk, for people. `isAbsent`: it is not there on this host. */
export interface DiskProblem {
  text: string;
  isAbsent: boolean;
}

const FRESH_MS = 1000;
const ANSWER_MS = 2000;

/** One for all drives of an engine: they would ask the same disks. */
export class DiskGauge {
  private readonly read: typeof readFileSystem;
  private readonly host: string;
  private readonly group: number | undefined;
  private readonly known = new Map<number, { version: string; at: number; space: DiskSpace }>();
  private readonly calls = new BoundedCalls();
  /** Whoever asks while a disk is being asked waits for that answer, which is bounded: it is not silence. */
  private turn: Promise<unknown> = Promise.resolve();
  /** Told of a disk that cannot be measured; it must not wait. */
  onProblem: (mountpoint: string, problem: DiskProblem) => void = () => {};

  /** @param of.host as whose what is seen counts; `group`: TAPEGATE_RESTORE_GROUP */
  constructor(of: { read?: typeof readFileSystem | undefined; host?: string | undefined; group: number | undefined }) {
    this.read = of.read ?? readFileSystem;
    this.host = of.host ?? hostname();
    this.group = of.group;
  }

  /** Was a disk not there when it was looked at last? */
  get hasAbsent(): boolean {
    return [...this.known.values()].some(({ space }) => 'absentOn' in space && space.absentOn !== undefined);
  }

  /** Room by the ids of the disks; all disks are given, since some may share a file system. */
  async measure(disks: readonly MeasuredDisk[]): Promise<Map<number, DiskSpace>> {
    const measured = this.turn.then(() => this.measureAll(disks));
    this.turn = measured.catch(() => {});
    return await measured;
  }

  private async measureAll(disks: readonly MeasuredDisk[]): Promise<Map<number, DiskSpace>> {
    const version = disks.map((disk) => `${disk.id}:${disk.version}`).join();
    return new Map(
      await Promise.all(
        disks.map(async (disk) => [disk.id, await this.measureOne(disk, version)] as [number, DiskSpace]),
      ),
    );
  }

  private async measureOne(disk: MeasuredDisk, version: string): Promise<DiskSpace> {
    const known = this.known.get(disk.id);
    const isFresh = known !== undefined && performance.now() - known.at < FRESH_MS;
    // trouble stays trouble for a second, whatever happens to the rows
    if (isFresh && (known.version === version || 'problem' in known.space)) return known.space;
    const at = performance.now();
    let space: DiskSpace | undefined;
    let isAbsent = false;
    const problem = await this.calls.run(ANSWER_MS, disk, async () => {
      space = await this.look(disk).catch((error: unknown) => {
        isAbsent = error instanceof AbsentError;
        throw error;
      });
    });
    const absentOn = isAbsent ? this.host : undefined;
    const found: DiskSpace = problem === undefined && space ? space : { problem: problem ?? '', absentOn };
    if ('problem' in found) this.onProblem(disk.mountpoint, { text: found.problem, isAbsent });
    this.known.set(disk.id, { version, at, space: found });
    return found;
  }

  /** An operator has changed something: what is known of the disks is out of date. */
  forget(): void {
    this.known.clear();
  }

  /** @throws Error when the disk is not there or not trusted, or its figures cannot be had */
  async look(disk: SeenDisk): Promise<DiskSpace> {
    const root = await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint });
    const untrusted = await findUntrusted({ root }, this.group);
    if (untrusted) throw new Error(describeUntrusted(untrusted));
    const system = await this.read(root).catch((error: unknown) => {
      if (error instanceof AbsentError) throw error;
      throw new Error(`the free space of the restore disk ${disk.mountpoint} is unknown: ${messageOf(error)}`);
    });
    const room = system.freeBytes - marginOf(system);
    return { freeBytes: room > 0n ? room : 0n, fileSystem: system.name, full: fullnessOf(system) };
  }
}

/**
 * @param group TAPEGATE_RESTORE_GROUP
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

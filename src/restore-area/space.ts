/**
 * Measures the actual free space on restore disks. The database alone cannot show the free space, because other
 * programs also write to the disks.
 *
 * The engine measures free space before it starts recalls, without database locks (domain/disks/reservations.ts). A
 * measurement of a disk becomes invalid after one second, or earlier if the disk's row in the database changes.
 * Tapegate skips an unresponsive disk until the disk responds again.
 */
import { stat, statfs } from 'node:fs/promises';
import { hostname } from 'node:os';
import { messageOf } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { type DiskMeasurement, listMeasurable, recordMeasurements } from '../domain/disks/disks.js';
import type { DiskSpace, MeasuredDisk } from '../domain/disks/reservations.js';
import { describeFull } from '../domain/health/circuits.js';
import { BoundedCalls, type CallWatch } from './call-watch.js';
import { describeUntrusted, findUntrusted, findUntrustedMount, type Untrusted } from './exposure.js';
import { AbsentError, rootOf } from './marker.js';

/** Total bytes of a file system, and bytes that are free for unprivileged users. */
export interface FileSystem {
  /** Device number of the file system. Disks on the same file system have the same number. */
  name: string;
  totalBytes: bigint;
  freeBytes: bigint;
  hasNoInodes?: boolean;
}

const MOST_BYTES = 2n ** 63n - 1n;

/**
 * Converts a number of blocks to bytes. Limits the result to the largest number that the database can store, because a
 * file system without a size limit might report a larger number.
 */
export function bytesOfBlocks(blocks: bigint, blockSize: bigint): bigint {
  const bytes = BigInt.asUintN(64, blocks) * BigInt.asUintN(64, blockSize);
  return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

/** Reads the total and free bytes of a file system. @throws Error if the file system does not report its size */
export async function readFileSystem(mountpoint: string): Promise<FileSystem> {
  const { bavail, blocks, bsize, files, ffree } = await statfs(mountpoint, { bigint: true });
  if (blocks === 0n) throw new Error('the file system does not report its size');
  const { dev } = await stat(mountpoint, { bigint: true });
  const hasNoInodes = files > 0n && ffree === 0n; // 0 of 0 inodes means that the file system does not limit inodes
  return {
    name: String(dev),
    totalBytes: bytesOfBlocks(blocks, bsize),
    freeBytes: bytesOfBlocks(bavail, bsize),
    hasNoInodes,
  };
}

/**
 * Returns, as text for users, why a disk rejects new files despite free bytes. Returns undefined if the disk accepts
 * new files.
 */
function fullnessOf({ hasNoInodes }: FileSystem): string | undefined {
  return hasNoInodes ? 'its file system has no inodes left' : undefined;
}

/**
 * Returns the number of bytes to keep free for partly filled blocks and for directories: 1 % of the disk, at most 1
 * GiB.
 */
export function marginOf({ totalBytes }: FileSystem): bigint {
  const hundredth = totalBytes / 100n;
  return hundredth < 2n ** 30n ? hundredth : 2n ** 30n;
}

type SeenDisk = Pick<MeasuredDisk, 'id' | 'mountpoint'>;

/** A disk's problem, as text for users. `isAbsent` means that the disk is not on this host. */
export interface DiskProblem {
  text: string;
  isAbsent: boolean;
}

const FRESH_MS = 1000;
const ANSWER_MS = 2000;

/** Measures the free space on disks. */
export class DiskGauge {
  private readonly read: typeof readFileSystem;
  private readonly host: string;
  private readonly group: number | undefined;
  private readonly known = new Map<number, { version: string; at: number; space: DiskSpace }>();
  private readonly calls = new BoundedCalls();
  /** Promise that resolves when the latest measurement has ended, so that measurements run one after the other. */
  private queue: Promise<unknown> = Promise.resolve();
  /** Called if the measurement of a disk fails. The callback must not block. */
  onProblem: (mountpoint: string, problem: DiskProblem) => void = () => {};

  /** @param of.host name of this host in recorded measurements @param of.group value of TAPEGATE_RESTORE_GROUP */
  constructor(of: { read?: typeof readFileSystem | undefined; host?: string | undefined; group: number | undefined }) {
    this.read = of.read ?? readFileSystem;
    this.host = of.host ?? hostname();
    this.group = of.group;
  }

  get hasAbsent(): boolean {
    return [...this.known.values()].some(({ space }) => 'absentOn' in space && space.absentOn !== undefined);
  }

  /**
   * Returns the free space of each disk, keyed by disk id. The caller must pass all disks, because disks can share a
   * file system.
   */
  async measure(disks: readonly MeasuredDisk[]): Promise<Map<number, DiskSpace>> {
    const measured = this.queue.then(() => this.measureAll(disks));
    this.queue = measured.catch(() => {});
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
    // do not measure a disk again within a second after a problem, even if its row in the database has changed
    if (isFresh && (known.version === version || 'problem' in known.space)) return known.space;
    const at = performance.now();
    let space: DiskSpace | undefined;
    let isAbsent = false;
    const problem = await this.calls.run(ANSWER_MS, disk, async () => {
      space = await this.readSpace(disk).catch((error: unknown) => {
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

  /** Clears cached measurements. */
  clearCache(): void {
    this.known.clear();
  }

  /** @throws Error if the disk is unavailable or untrusted, or its free space cannot be read */
  async readSpace(disk: SeenDisk): Promise<DiskSpace> {
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
 * Measures the free space on a disk.
 * @param group value of TAPEGATE_RESTORE_GROUP
 * @returns the free space, or a problem such as an unresponsive disk
 */
export async function measureDisk(
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
 * Returns an engine's periodic job. The job measures all disks, and records the results for processes without access to
 * the disks. Skips failing disks, because `FailingDisks.retry` probes them. Suspends a disk that hangs.
 */
export function createMeasurement(
  ctx: Context,
  { calls, host, read = readFileSystem }: { calls: CallWatch; host: string; read: typeof readFileSystem | undefined },
): () => Promise<void> {
  const bounded = new BoundedCalls();
  return async () => {
    const disks = await listMeasurable(ctx);
    const measure = async ({ id, mountpoint }: (typeof disks)[number]) => {
      const follow = () =>
        calls.follow({ kind: 'disk', mountpoint }, async () => read(await rootOf({ diskId: id, mountpoint })));
      return { diskId: id, ...(await measureDisk(bounded, { id, mountpoint }, ctx.config.restoreGroup, follow)) };
    };
    await recordMeasurements(ctx, host, await Promise.all(disks.map(measure)));
  };
}

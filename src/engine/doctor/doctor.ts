/**
 * Compares the restore disks, the database and its counters with each other, and mends what can be mended. Safe while
 * engines and gateways run: each repair judges again under the locks that they take, and whatever is half-way is theirs.
 * Killed anywhere, it is run again.
 */
import { randomUUID } from 'node:crypto';
import type { Deed } from '../../audit.js';
import type { Context } from '../../context.js';
import { messageOf, TapeError } from '../../errors.js';
import { auditedRun } from '../../operations/audit/audited.js';
import { type DiskRow, listDisks } from '../../operations/disks/disks.js';
import { countLookedAt, type Finding, findFaults } from '../../operations/doctor/findings.js';
import { recallLost } from '../../operations/doctor/queue.js';
import { rowFaults } from '../../operations/doctor/rows.js';
import { describeUntrusted, findUntrustedMount } from '../disk/exposure.js';
import { FailingDisks } from '../disk/failures.js';
import { rootOf } from '../disk/marker.js';
import { takeOver } from '../drive/drive.js';
import { examineStanding } from './adoption.js';
import { examineCopies, examineLinks, examineUnheld } from './copies.js';
import type { DoctorOptions, Examination } from './examination.js';
import { examineFiles } from './files.js';

/** What one run of the doctor came to. */
export interface Report {
  /** How many of each were looked at. */
  lookedAt: Record<string, bigint | number>;
  found: number;
  repaired: number;
}

const LEASE_SECONDS = 15;

/** @param tell is given each finding as soon as it is known */
export async function examine(ctx: Context, options: DoctorOptions, tell: (finding: Finding) => void): Promise<Report> {
  if (!options.repair) return await examineDisks(ctx, options, tell);
  const { checksums, adopt } = options;
  const deed: Deed = { operation: 'repair', kind: 'NONE', object: '', given: { checksums, adopt } };
  const describe = ({ found, repaired }: Report) => ({ found, repaired });
  return await auditedRun(ctx, deed, () => examineDisks(ctx, options, tell), describe);
}

async function examineDisks(ctx: Context, options: DoctorOptions, tell: (finding: Finding) => void): Promise<Report> {
  const disks = await listDisks(ctx);
  const exam: Examination = {
    ...options,
    counts: { copies: 0, checksums: 0, notCompared: 0, files: 0, folders: 0, links: 0 },
    mountpoints: disks.map((disk) => disk.mountpoint),
    unavailable: new Set(),
  };
  const rows = await countLookedAt(ctx);
  let [found, repaired] = [0, 0];
  for await (const finding of examineAll(ctx, exam, disks)) {
    found++;
    if (finding.isRepaired) repaired++;
    tell(finding);
  }
  return { lookedAt: { ...rows, ...exam.counts }, found, repaired };
}

async function* examineAll(ctx: Context, exam: Examination, disks: readonly DiskRow[]): AsyncGenerator<Finding> {
  for (const disk of disks) {
    const away = await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint }).catch((error) => error);
    if (away instanceof Error) yield tellAway(exam, disk, away);
    else yield* examineMount(ctx, disk);
  }
  for (const fault of rowFaults) {
    yield* findFaults(ctx, fault === recallLost ? { ...fault, repair: repairLost } : fault, exam);
  }
  yield* examineCopies(ctx, exam);
  yield* examineStanding(ctx, exam);
  yield* examineLinks(ctx, exam);
  yield* examineUnheld(ctx, exam);
  for (const disk of disks) {
    if (exam.unavailable.has(disk.id)) continue;
    try {
      yield* examineFiles(ctx, exam, disk);
    } catch (error) {
      if (!(error instanceof TapeError)) throw error;
      yield tellAway(exam, disk, error); // it went away meanwhile
    }
  }
}

async function* examineMount(ctx: Context, { mountpoint }: DiskRow): AsyncGenerator<Finding> {
  const group = ctx.config.restoreGroup;
  const untrusted = await findUntrustedMount(mountpoint, { group }).catch(() => undefined); // it has just gone, and is told as that
  if (!untrusted) return;
  const [expected, found] = ['a path that only trusted users may write in', describeUntrusted(untrusted)];
  yield { kind: 'disk-open', thing: mountpoint, expected, found, isRepaired: false };
}

/** A disk that is away is a fault by itself; what should be on it is not judged. */
function tellAway(exam: Examination, disk: DiskRow, error: Error): Finding {
  exam.unavailable.add(disk.id);
  const found = messageOf(error);
  return { kind: 'disk-unavailable', thing: disk.mountpoint, expected: 'the disk', found, isRepaired: false };
}

/** What only needs a new holder of its drive is put in order as an engine does it; the rest goes back into the queue. */
async function repairLost(ctx: Context, keys: readonly bigint[]): Promise<void> {
  await recallLost.repair(ctx, keys);
  const never = new AbortController().signal;
  await takeOver(ctx, {
    engineId: randomUUID(),
    leaseSeconds: LEASE_SECONDS,
    held: new Set(),
    stop: never,
    abort: never,
    leave: never,
    onHang: () => {},
    disks: new FailingDisks(ctx),
  });
}

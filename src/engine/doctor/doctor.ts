/**
 * Compares the restore disks with the database, checks counters, and repairs differences. The doctor can run at the
 * same time as engines and gateways. Before each repair, the doctor locks the affected rows and checks the difference
 * again.
 */
import { randomUUID } from 'node:crypto';
import { messageOf, TapeError } from '../../core/errors.js';
import type { AuditedAction } from '../../domain/audit/audit.js';
import { auditedRun } from '../../domain/audit/audited.js';
import type { Context } from '../../domain/context.js';
import { type DiskRow, listDisks } from '../../domain/disks/disks.js';
import { countExamined, type Finding, findRepairable } from '../../domain/doctor/findings.js';
import { recallLost } from '../../domain/doctor/queue-checks.js';
import { rowKinds } from '../../domain/doctor/rows.js';
import { describeUntrusted, findUntrustedMount } from '../../restore-area/exposure.js';
import { FailingDisks } from '../../restore-area/failures.js';
import { rootOf } from '../../restore-area/marker.js';
import { confirmOwned, ownershipOf } from '../../restore-area/ownership.js';
import { takeOver } from '../drive/drive.js';
import { examineStanding } from './adoption.js';
import { examineCopies, examineLinks, examineUnheld } from './copy-checks.js';
import { examineFiles } from './disk-files.js';
import type { DoctorOptions, Examination } from './examination.js';

export interface Report {
  examined: Record<string, bigint | number>;
  found: number;
  repaired: number;
}

const LEASE_SECONDS = 15;

export async function examine(
  ctx: Context,
  options: DoctorOptions,
  onFinding: (finding: Finding) => void,
): Promise<Report> {
  if (!options.repair) return await examineDisks(ctx, options, onFinding);
  await ownershipOf(ctx).require();
  const { checksums, adopt } = options;
  const action: AuditedAction = { operation: 'doctor', kind: 'NONE', object: '', given: { checksums, adopt } };
  const describe = ({ found, repaired }: Report) => ({ found, repaired });
  return await auditedRun(ctx, action, () => examineDisks(ctx, options, onFinding), describe);
}

async function examineDisks(
  ctx: Context,
  options: DoctorOptions,
  onFinding: (finding: Finding) => void,
): Promise<Report> {
  const disks = await listDisks(ctx);
  const exam: Examination = {
    ...options,
    counts: { copies: 0, checksums: 0, notCompared: 0, files: 0, directories: 0, links: 0 },
    mountpoints: disks.map((disk) => disk.mountpoint),
    unavailable: new Set(),
  };
  const rows = await countExamined(ctx);
  let [found, repaired] = [0, 0];
  for await (const finding of examineAll(ctx, exam, disks)) {
    if (options.repair) await confirmOwned(ctx);
    found++;
    if (finding.isRepaired) repaired++;
    onFinding(finding);
  }
  return { examined: { ...rows, ...exam.counts }, found, repaired };
}

async function* examineAll(ctx: Context, exam: Examination, disks: readonly DiskRow[]): AsyncGenerator<Finding> {
  const ownership = ownershipOf(ctx);
  const fence = await ownership.check();
  if (fence !== undefined && !ownership.isWatching)
    yield { kind: 'fenced', object: 'this Tapegate', expected: 'no other Tapegate', found: fence, isRepaired: false };
  for (const disk of disks) {
    const absence = await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint }).catch((error) => error);
    if (absence instanceof Error) yield buildUnavailable(exam, disk, absence);
    else yield* examineMount(ctx, disk);
  }
  for (const check of rowKinds) {
    yield* findRepairable(ctx, check === recallLost ? { ...check, repair: repairLost } : check, exam);
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
      yield buildUnavailable(exam, disk, error);
    }
  }
}

async function* examineMount(ctx: Context, { mountpoint }: DiskRow): AsyncGenerator<Finding> {
  const group = ctx.config.restoreGroup;
  const untrusted = await findUntrustedMount(mountpoint, { group }).catch(() => undefined);
  if (!untrusted) return;
  const [expected, found] = ['a path that only trusted users can write to', describeUntrusted(untrusted)];
  yield { kind: 'disk-open', object: mountpoint, expected, found, isRepaired: false };
}

function buildUnavailable(exam: Examination, disk: DiskRow, error: Error): Finding {
  exam.unavailable.add(disk.id);
  const found = messageOf(error);
  return { kind: 'disk-unavailable', object: disk.mountpoint, expected: 'the disk', found, isRepaired: false };
}

/** Recovers the drives of dead engines, and requeues recalls that are marked RUNNING but have no drive. */
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

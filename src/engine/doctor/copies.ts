/** Compares recorded copies and links with the disk. Leaves pending links to the engine. */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, TapeError } from '../../core/errors.js';
import { timeFromMicros } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { findHeld, type NotedCopy, readCopies, readCopiesOf } from '../../domain/disks/copies.js';
import { returnMissing } from '../../domain/disks/missing.js';
import { type ChangedCopy, letGo, readChanged, settleChanged } from '../../domain/disks/removals.js';
import { restoredUnheld } from '../../domain/doctor/copies.js';
import { type Finding, findFaults } from '../../domain/doctor/findings.js';
import { markLinks, type NotedLink, readChanges, readLinks } from '../../domain/links/links.js';
import { pagesByFile } from '../../domain/page-keys.js';
import { isThere } from '../../restore-area/changed.js';
import { compareCopy, lookAt, readChecksum } from '../../restore-area/copy.js';
import { lookAtLink } from '../../restore-area/links/link.js';
import { LinkKeeper } from '../../restore-area/links/pass.js';
import { removeUnheld } from '../../restore-area/removal.js';
import type { Examination } from './examination.js';

/** Reports copies that are missing, changed, damaged or unreadable. An engine looks after those to be removed. */
export async function* examineCopies(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const copies of pagesByFile((page) => readCopies(ctx, page))) {
    const faults: CopyFault[] = [];
    for (const copy of copies) {
      const fault = await examineCopy(copy, exam);
      if (fault) faults.push(fault);
    }
    if (faults.length > 0) yield* tellCopies(ctx, exam, faults);
  }
  yield* examineChanged(ctx, exam);
}

interface CopyFault {
  kind: 'copy-missing' | 'copy-changed' | 'copy-damaged' | 'copy-unreadable';
  copy: NotedCopy;
  expected: string;
  found: string;
}

async function examineCopy(copy: NotedCopy, exam: Examination): Promise<CopyFault | null> {
  if (exam.unavailable.has(copy.diskId)) {
    exam.counts.notCompared++;
    return null;
  }
  exam.counts.copies++;
  const fault = (kind: CopyFault['kind'], expected: string, found: string) => ({ kind, copy, expected, found });
  const due = `${copy.size} bytes of ${recordedTimeOf(copy.mtimeNs)}`;
  try {
    if ((await compareCopy(copy)) === 'same') return exam.checksums ? await compareChecksum(copy, exam, fault) : null;
    const found = await findInPlace(copy);
    return found === undefined ? fault('copy-missing', due, 'nothing') : fault('copy-changed', due, found);
  } catch (error) {
    return fault('copy-unreadable', due, messageOf(error));
  }
}

async function compareChecksum(
  copy: NotedCopy,
  exam: Examination,
  fault: (kind: CopyFault['kind'], expected: string, found: string) => CopyFault,
): Promise<CopyFault | null> {
  const due = copy.checksum ?? copy.copyChecksum;
  if (due === null) return null;
  exam.counts.checksums++;
  const digest = await readChecksum(copy, due);
  if (digest === undefined) return null; // just removed
  return digest === due ? null : fault('copy-damaged', due, digest);
}

/** Describes what is in the place of a copy; undefined if there is nothing. */
async function findInPlace(copy: NotedCopy): Promise<string | undefined> {
  try {
    const stats = await lookAt(copy);
    if (!stats) return undefined;
    return stats.isFile() ? `${stats.size} bytes of ${timeOf(stats.mtimeNs)}` : 'no plain file';
  } catch (error) {
    if (error instanceof TapeError && error.errorClass === 'POLICY') return error.message;
    throw error;
  }
}

const SECOND = 1_000_000_000n;

/** The earliest time of ext4 and XFS. */
const EARLIEST = -(2n ** 31n) * SECOND;

/** The database has times modulo 2^64: until 2486, as those of ext4 and XFS are. */
function recordedTimeOf(ns: bigint | null): string {
  return ns === null ? 'unknown time' : timeOf(BigInt.asUintN(64, ns - EARLIEST) + EARLIEST);
}

/** With nanoseconds, which may be the only difference of a rewritten copy. Outside the years 1 to 9999, as `date -d` reads it. */
function timeOf(ns: bigint): string {
  const rest = ((ns % SECOND) + SECOND) % SECOND; // before 1970 as well
  const seconds = timeFromMicros((ns - rest) / 1000n) ?? `@${(ns - rest) / SECOND}`;
  return `${seconds}.${String(rest).padStart(9, '0')}`;
}

/** Skips copies that were removed or replaced during the check: their record has changed. */
async function* tellCopies(ctx: Context, exam: Examination, faults: readonly CopyFault[]): AsyncGenerator<Finding> {
  const ids = faults.map(({ copy }) => copy.fileId);
  const now = new Map((await readCopiesOf(ctx, ids)).map((copy) => [copy.fileId, copy]));
  const isSame = ({ copy }: CopyFault) => {
    const noted = now.get(copy.fileId);
    return noted?.stage === 'RESTORED' && noted.diskId === copy.diskId && noted.mtimeNs === copy.mtimeNs;
  };
  const real = faults.filter(isSame);
  const repaired = exam.repair ? await repairCopies(ctx, real) : new Set<bigint>();
  for (const { kind, copy, expected, found } of real) {
    yield { kind, thing: `${copy.mountpoint}${copy.path}`, expected, found, isRepaired: repaired.has(copy.fileId) };
  }
}

/**
 * Recalls missing copies again. Leaves changed copies alone; their files become UNVERIFIED if no request contains them.
 * @returns ids of repaired files; others may have changed since the check
 */
async function repairCopies(ctx: Context, faults: readonly CopyFault[]): Promise<Set<bigint>> {
  const copiesOf = (kind: string) => faults.filter((fault) => fault.kind === kind).map(({ copy }) => copy);
  const missing = await stillMissing(copiesOf('copy-missing'));
  const returned = await returnMissing(ctx, missing);
  const changed = copiesOf('copy-changed');
  const held = await findHeld(
    ctx,
    changed.map(({ fileId }) => fileId),
  );
  const unheld = changed.filter(({ fileId }) => !held.has(fileId));
  const left = await letGo(ctx, { unchanged: [], changed: unheld });
  return new Set([...returned, ...left]);
}

/** Checks again: a copy may be back, or its disk absent. */
async function stillMissing(copies: readonly NotedCopy[]): Promise<NotedCopy[]> {
  const states = await Promise.all(copies.map((copy) => compareCopy(copy).catch(() => 'unknown')));
  return copies.filter((_, n) => states[n] === 'missing');
}

/** Reports changed copies that were left alone and are now gone: their files are only on tape. */
async function* examineChanged(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: false, ...page }))) {
    const gone: ChangedCopy[] = [];
    for (const copy of copies.filter(({ diskId }) => !exam.unavailable.has(diskId))) {
      const [thing, expected] = [`${copy.mountpoint}${copy.path}`, CHANGED];
      try {
        if (!(await isThere(copy))) gone.push(copy);
      } catch (error) {
        yield { kind: 'copy-unreadable', thing, expected, found: messageOf(error), isRepaired: false };
      }
    }
    const ids = gone.map(({ fileId }) => fileId);
    const mended = new Set(exam.repair ? await settleChanged(ctx, { gone: ids }) : []);
    for (const { mountpoint, path: file, fileId } of gone) {
      const thing = `${mountpoint}${file}`;
      yield { kind: 'copy-missing', thing, expected: CHANGED, found: 'nothing', isRepaired: mended.has(fileId) };
    }
  }
}

const CHANGED = 'a copy that was changed by hand, its file being UNVERIFIED';

/** Releases restored files that no request contains, as at the end of a request. */
export async function* examineUnheld(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  const repair = async (_ctx: Context, keys: readonly bigint[]) => {
    const copies = await readCopiesOf(ctx, keys);
    const states = await Promise.all(copies.map((copy) => compareCopy(copy).catch(() => 'unknown'))); // the disk is absent
    const pick = (...wanted: string[]) => copies.filter((_, n) => wanted.includes(states[n] ?? ''));
    await letGo(ctx, { unchanged: pick('same', 'missing'), changed: pick('changed') });
    await removeUnheld(ctx, new AbortController().signal);
  };
  yield* findFaults(ctx, { ...restoredUnheld, repair }, { repair: exam.repair });
}

/** Reports links that cannot be made, then links that differ from their record. */
export async function* examineLinks(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const links of pagesByFile((page) => readLinks(ctx, page))) {
    exam.counts.links += links.length;
    const faults: LinkFault[] = [];
    for (const link of links) {
      const fault = await examineLink(link);
      if (fault) faults.push(fault);
    }
    const real = await keepNoted(ctx, faults);
    const mended = exam.repair && real.length > 0 ? await mend(ctx, real) : new Set<bigint>();
    for (const { link, kind, found } of real) {
      const isRepaired = mended.has(link.fileId);
      yield { kind, thing: link.at, expected: `a link to ${link.target}`, found, isRepaired };
    }
  }
}

interface LinkFault {
  link: NotedLink;
  kind: 'link-missing' | 'link-changed' | 'link-stuck';
  found: string;
}

async function examineLink(link: NotedLink): Promise<LinkFault | undefined> {
  try {
    const found = await lookAtLink(link.at);
    if (found?.target === link.target) return undefined;
    if (found) {
      const kind = link.problem === null ? 'link-changed' : 'link-stuck';
      return { link, kind, found: found.target === null ? 'no link' : `a link to ${found.target}` };
    }
    if (link.problem !== null) return { link, kind: 'link-stuck', found: link.problem };
    return { link, kind: 'link-missing', found: 'nothing' };
  } catch (error) {
    return { link, kind: 'link-stuck', found: messageOf(error) };
  }
}

/** Skips links that became pending or were settled since the check. */
async function keepNoted(ctx: Context, faults: readonly LinkFault[]): Promise<LinkFault[]> {
  const changes = await readChanges(
    ctx,
    faults.map(({ link }) => link.fileId),
  );
  return faults.filter(({ link }) => changes.get(link.fileId) === link.change);
}

/** An engine may be working on a link meanwhile. */
const PASSING_MS = 2000;

/** @returns ids of links that now match their record */
async function mend(ctx: Context, faults: readonly LinkFault[]): Promise<Set<bigint>> {
  const ids = faults.map(({ link }) => link.fileId);
  await markLinks(ctx, ids);
  await new LinkKeeper(ctx).settleAll(new AbortController().signal);
  const mended = await findRight(faults);
  if (mended.size === ids.length) return mended;
  await sleep(PASSING_MS);
  return await findRight(faults);
}

async function findRight(faults: readonly LinkFault[]): Promise<Set<bigint>> {
  const right = new Set<bigint>();
  for (const { link } of faults) {
    const found = await lookAtLink(link.at).catch(() => undefined);
    if (found?.target === link.target) right.add(link.fileId);
  }
  return right;
}

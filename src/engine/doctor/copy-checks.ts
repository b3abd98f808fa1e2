/** Compares recorded copies and links with the disk. Skips links that an engine still has to create or remove. */
import type { BigIntStats } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, TapeError } from '../../core/errors.js';
import { timeFromMicros } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { findHeld, type RecordedCopy, readCopies, readCopiesOf } from '../../domain/disks/disk-copies.js';
import { returnMissing } from '../../domain/disks/missing.js';
import { type ChangedCopy, readChanged, releaseCopies, settleChanged } from '../../domain/disks/removals.js';
import { adoptRenumbered, type Renumbered } from '../../domain/disks/renumbered.js';
import { type Finding, findRepairable } from '../../domain/doctor/findings.js';
import { restoredUnheld } from '../../domain/doctor/recorded-copies.js';
import { markLinks, type RecordedLink, readChanges, readLinks } from '../../domain/links/links.js';
import { pagesByFile } from '../../domain/page-keys.js';
import { isInPlace } from '../../restore-area/copies/changed.js';
import { compareCopy, matchesRecord, readChecksum, statCopy, storedStats } from '../../restore-area/copies/copy.js';
import { removeUnheld } from '../../restore-area/copies/removal.js';
import { LinkKeeper } from '../../restore-area/links/keeper.js';
import { lookAtLink } from '../../restore-area/links/link.js';
import type { Examination } from './examination.js';

/** Reports copies that are missing, changed, damaged or unreadable. Skips copies that an engine still has to remove. */
export async function* examineCopies(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const copies of pagesByFile((page) => readCopies(ctx, page))) {
    const findings: CopyFinding[] = [];
    for (const copy of copies) {
      const finding = await examineCopy(copy, exam);
      if (finding) findings.push(finding);
    }
    if (findings.length > 0) yield* reportCopies(ctx, exam, findings);
  }
  yield* examineChanged(ctx, exam);
}

interface CopyFinding {
  kind: 'copy-missing' | 'copy-changed' | 'copy-damaged' | 'copy-unreadable';
  copy: RecordedCopy;
  expected: string;
  found: string;
  /**
   * The copy's new inode. This property is set only if the inode has changed, but checksum, size and mtime match the
   * database.
   */
  renumbered?: Renumbered;
}

async function examineCopy(copy: RecordedCopy, exam: Examination): Promise<CopyFinding | null> {
  if (exam.unavailable.has(copy.diskId)) {
    exam.counts.notCompared++;
    return null;
  }
  exam.counts.copies++;
  const build = (kind: CopyFinding['kind'], expected: string, found: string) => ({ kind, copy, expected, found });
  const due = `${copy.size} bytes of ${recordedTimeOf(copy.mtimeNs)}`;
  try {
    if ((await compareCopy(copy)) === 'same') return exam.checksums ? await compareChecksum(copy, exam, build) : null;
    const found = await findInPlace(copy);
    if (found === undefined) return build('copy-missing', due, 'nothing');
    if (typeof found === 'string') return build('copy-changed', due, found);
    return { kind: 'copy-changed', copy, ...(await compareStats(copy, { stats: found, due }, exam)) };
  } catch (error) {
    return build('copy-unreadable', due, messageOf(error));
  }
}

async function compareChecksum(
  copy: RecordedCopy,
  exam: Examination,
  build: (kind: CopyFinding['kind'], expected: string, found: string) => CopyFinding,
): Promise<CopyFinding | null> {
  const due = copy.checksum ?? copy.copyChecksum;
  if (due === null) return null;
  exam.counts.checksums++;
  const digest = await readChecksum(copy, due);
  if (digest === undefined) return null;
  return digest === due ? null : build('copy-damaged', due, digest);
}

async function compareStats(
  copy: RecordedCopy,
  { stats, due }: { stats: BigIntStats; due: string },
  exam: Examination,
): Promise<Pick<CopyFinding, 'expected' | 'found' | 'renumbered'>> {
  const found = `${stats.size} bytes of ${timeOf(stats.mtimeNs)}`;
  const { ino, ctimeNs } = storedStats(stats);
  if (!matchesRecord({ ...copy, ino }, stats)) return { expected: due, found };
  if (copy.ino === ino) return { expected: due, found: `${found}, with different bytes` };
  const expected = `${due}, inode ${copy.ino}`;
  const { copyChecksum } = copy;
  if (!exam.checksums || copyChecksum === null) return { expected, found: `${found}, inode ${ino}` };
  exam.counts.checksums++;
  const isEqual = (await readChecksum(copy, copyChecksum)) === copyChecksum;
  if (!isEqual) return { expected, found: `${found}, inode ${ino}, with different bytes` };
  const { fileId, version } = copy;
  // equal Adler-32 checksums do not prove that the bytes are equal
  const renumbered = copyChecksum.startsWith('adler32:') ? {} : { renumbered: { fileId, version, ino, ctimeNs } };
  return { expected, found: `${found}, inode ${ino}, with the same checksum`, ...renumbered };
}

/**
 * Returns the stats of the regular file at a copy's path. If another entry is at the path, such as a directory or link,
 * returns a description of the entry. Returns undefined if nothing is at the path.
 */
async function findInPlace(copy: RecordedCopy): Promise<BigIntStats | string | undefined> {
  try {
    const stats = await statCopy(copy);
    return !stats || stats.isFile() ? stats : 'not a regular file';
  } catch (error) {
    if (error instanceof TapeError && error.errorClass === 'POLICY') return error.message;
    throw error;
  }
}

const SECOND = 1_000_000_000n;

/** The earliest timestamp that ext4 and XFS support. */
const EARLIEST = -(2n ** 31n) * SECOND;

/**
 * Formats an mtime from the database, which stores nanoseconds modulo 2^64. Times between the years 1901 and 2486 are
 * formatted correctly.
 */
function recordedTimeOf(ns: bigint | null): string {
  return ns === null ? 'unknown time' : timeOf(BigInt.asUintN(64, ns - EARLIEST) + EARLIEST);
}

/**
 * Formats a time with nanoseconds. A time outside the years 1 to 9999 is formatted as `@seconds`, a form that `date -d`
 * reads.
 */
function timeOf(ns: bigint): string {
  // apply the modulo twice, so that the remainder is not negative for times before 1970
  const rest = ((ns % SECOND) + SECOND) % SECOND;
  const seconds = timeFromMicros((ns - rest) / 1000n) ?? `@${(ns - rest) / SECOND}`;
  return `${seconds}.${String(rest).padStart(9, '0')}`;
}

async function* reportCopies(
  ctx: Context,
  exam: Examination,
  findings: readonly CopyFinding[],
): AsyncGenerator<Finding> {
  const ids = findings.map(({ copy }) => copy.fileId);
  const now = new Map((await readCopiesOf(ctx, ids)).map((copy) => [copy.fileId, copy]));
  const isUnchanged = ({ copy }: CopyFinding) => {
    const current = now.get(copy.fileId);
    return current?.stage === 'RESTORED' && current.diskId === copy.diskId && current.mtimeNs === copy.mtimeNs;
  };
  const confirmed = findings.filter(isUnchanged);
  const repaired = exam.repair ? await repairCopies(ctx, confirmed) : new Set<bigint>();
  for (const { kind, copy, expected, found } of confirmed) {
    yield { kind, object: `${copy.mountpoint}${copy.path}`, expected, found, isRepaired: repaired.has(copy.fileId) };
  }
}

/**
 * Repairs copies. Recalls a file again if its copy is missing. Records the new inodes of copies whose bytes are
 * unchanged. Marks a file UNVERIFIED if its copy has changed and no request contains the file.
 * @returns the ids of repaired files
 */
async function repairCopies(ctx: Context, findings: readonly CopyFinding[]): Promise<Set<bigint>> {
  const gone = findings.filter(({ kind }) => kind === 'copy-missing').map(({ copy }) => copy);
  const missing = await stillMissing(gone);
  const returned = await returnMissing(ctx, missing);
  const adopted: bigint[] = [];
  for (const { renumbered } of findings) {
    if (renumbered && (await adoptRenumbered(ctx, [renumbered])) === 1) adopted.push(renumbered.fileId);
  }
  const isOther = ({ kind, renumbered }: CopyFinding) => kind === 'copy-changed' && !renumbered;
  const changed = findings.filter(isOther).map(({ copy }) => copy);
  const held = await findHeld(
    ctx,
    changed.map(({ fileId }) => fileId),
  );
  const unheld = changed.filter(({ fileId }) => !held.has(fileId));
  const unverified = await releaseCopies(ctx, { unchanged: [], changed: unheld });
  return new Set([...returned, ...adopted, ...unverified]);
}

async function stillMissing(copies: readonly RecordedCopy[]): Promise<RecordedCopy[]> {
  const states = await Promise.all(copies.map((copy) => compareCopy(copy).catch(() => 'unknown')));
  return copies.filter((_, n) => states[n] === 'missing');
}

/**
 * Reports files whose copies were changed outside Tapegate and later removed. A file without a copy is now only on
 * tape.
 */
async function* examineChanged(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: false, ...page }))) {
    const gone: ChangedCopy[] = [];
    for (const copy of copies.filter(({ diskId }) => !exam.unavailable.has(diskId))) {
      const [object, expected] = [`${copy.mountpoint}${copy.path}`, CHANGED];
      try {
        if (!(await isInPlace(copy))) gone.push(copy);
      } catch (error) {
        yield { kind: 'copy-unreadable', object, expected, found: messageOf(error), isRepaired: false };
      }
    }
    const ids = gone.map(({ fileId }) => fileId);
    const repaired = new Set(exam.repair ? await settleChanged(ctx, { gone: ids }) : []);
    for (const { mountpoint, path: file, fileId } of gone) {
      const object = `${mountpoint}${file}`;
      yield { kind: 'copy-missing', object, expected: CHANGED, found: 'nothing', isRepaired: repaired.has(fileId) };
    }
  }
}

const CHANGED = 'the copy of an UNVERIFIED file that was changed outside Tapegate';

/** Reports restored files that no request contains, and releases them if `exam.repair` is set. */
export async function* examineUnheld(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  const repair = async (_ctx: Context, keys: readonly bigint[]) => {
    const copies = await readCopiesOf(ctx, keys);
    const states = await Promise.all(copies.map((copy) => compareCopy(copy).catch(() => 'unknown')));
    const pick = (...wanted: string[]) => copies.filter((_, n) => wanted.includes(states[n] ?? ''));
    await releaseCopies(ctx, { unchanged: pick('same', 'missing'), changed: pick('changed') });
    await removeUnheld(ctx, new AbortController().signal);
  };
  yield* findRepairable(ctx, { ...restoredUnheld, repair }, { repair: exam.repair });
}

/** Reports links that Tapegate cannot create, and links on disk that differ from the database. */
export async function* examineLinks(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const links of pagesByFile((page) => readLinks(ctx, page))) {
    exam.counts.links += links.length;
    const findings: LinkFinding[] = [];
    for (const link of links) {
      const finding = await examineLink(link);
      if (finding) findings.push(finding);
    }
    const confirmed = await keepUnchanged(ctx, findings);
    const repaired = exam.repair && confirmed.length > 0 ? await repairLinks(ctx, confirmed) : new Set<bigint>();
    for (const { link, kind, found } of confirmed) {
      const isRepaired = repaired.has(link.fileId);
      yield { kind, object: link.at, expected: `a link to ${link.target}`, found, isRepaired };
    }
  }
}

interface LinkFinding {
  link: RecordedLink;
  kind: 'link-missing' | 'link-changed' | 'link-stuck';
  found: string;
}

async function examineLink(link: RecordedLink): Promise<LinkFinding | undefined> {
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

async function keepUnchanged(ctx: Context, findings: readonly LinkFinding[]): Promise<LinkFinding[]> {
  const changes = await readChanges(
    ctx,
    findings.map(({ link }) => link.fileId),
  );
  return findings.filter(({ link }) => changes.get(link.fileId) === link.change);
}

/** Milliseconds to wait for an engine that might be working on the same link. */
const SETTLE_MS = 2000;

/**
 * Repairs links.
 * @returns the ids of files whose link now matches the database
 */
async function repairLinks(ctx: Context, findings: readonly LinkFinding[]): Promise<Set<bigint>> {
  const ids = findings.map(({ link }) => link.fileId);
  await markLinks(ctx, ids);
  await new LinkKeeper(ctx).settleAll(new AbortController().signal);
  const repaired = await findMatching(findings);
  if (repaired.size === ids.length) return repaired;
  await sleep(SETTLE_MS);
  return await findMatching(findings);
}

async function findMatching(findings: readonly LinkFinding[]): Promise<Set<bigint>> {
  const matching = new Set<bigint>();
  for (const { link } of findings) {
    const found = await lookAtLink(link.at).catch(() => undefined);
    if (found?.target === link.target) matching.add(link.fileId);
  }
  return matching;
}

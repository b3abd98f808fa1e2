/** Checks files: their copies on disk and on tape, their directories, and their links. */
import path from 'node:path';
import { sumOf } from './check-requests.js';
import type { Report } from './checker.js';
import type { Copy } from './disk-scan.js';
import { copyPathOf, type Facts, type FileFact, type Index, isLive, sha256Of } from './facts.js';

/** Names of partial files, see src/restore-area/restore-area.ts. */
const PARTIAL = /\/\.tapegate-[^/]*\.part$/;

const placeOf = ({ mountpoint, path: below }: { mountpoint: string; path: string }): string => mountpoint + below;

export function checkCopies(facts: Facts, index: Index, report: Report): void {
  const { changedPaths } = facts.observed;
  const copies = new Map(facts.copies.map((copy) => [placeOf(copy), copy]));
  const expected = new Set<string>();
  for (const file of facts.files) {
    const place = copyPathOf(file, index);
    if (file.stage === 'RESTORING') report('file-restoring', `file ${file.id} (${file.path}) is RESTORING`);
    if (file.stage === 'RESTORED') {
      const at = place ?? file.copyPath;
      expected.add(at);
      if (!changedPaths.has(at)) checkCopy(facts, file, at, copies.get(at), report);
    } else if (place !== undefined) {
      report('copy-recorded', `file ${file.id} is ${file.stage}, and a copy is recorded: ${place}`);
    }
  }
  for (const [place, copy] of copies) {
    if (PARTIAL.test(copy.path)) report('copy-partial', `a partial file remains: ${place}`);
    else if (!expected.has(place) && !changedPaths.has(place)) {
      const stage = index.filesByPath.get(copy.path)?.stage ?? 'not in the catalogue';
      report('copy-unknown', `a file is at ${place}, and the catalogue has no copy there: it is ${stage}`);
    }
  }
  for (const { fileId, diskId } of facts.stalePartials) {
    report('copy-unchecked', `stale partial files of a recall of file ${fileId} on disk ${diskId} were not looked for`);
  }
  checkHeld(facts, index, report);
  checkDoubted(facts, index, report);
  checkDisks(facts, report);
}

function checkCopy(facts: Facts, file: FileFact, place: string, copy: Copy | undefined, report: Report): void {
  const name = `file ${file.id} is RESTORED`;
  if (!copy) {
    report('copy-missing', `${name}, and nothing is at ${place}`);
    return;
  }
  if (copy.sha256 === null || copy.sha256 !== sha256Of(facts, file)) {
    report('copy-bytes', `${name}, and ${place} has ${copy.size} bytes that are not those of the archive`);
  }
  if (copy.mtimeNs !== file.diskMtimeNs) {
    report('copy-time', `${name}, and ${place} was modified at ${copy.mtimeNs}, not at ${file.diskMtimeNs}`);
  } else if (copy.ino !== file.diskIno) {
    report('copy-inode', `${name}, and ${place} has inode ${copy.ino}, not ${file.diskIno}`);
  }
}

function checkHeld(facts: Facts, { requestFilesOf, requests }: Index, report: Report): void {
  const held = new Set(
    [...requestFilesOf].flatMap(([id, contained]) =>
      isLive(requests.get(id)) ? contained.map(({ fileId }) => fileId) : [],
    ),
  );
  for (const { id, stage, path: name } of facts.files) {
    if (stage === 'RESTORED' && !held.has(id))
      report('file-unheld', `no live request contains file ${id}, which is RESTORED: ${name}`);
  }
}

/** Checks that a file became UNVERIFIED only if another program changed or created the file at its path on disk. */
function checkDoubted({ stageEvents, disks, observed }: Facts, index: Index, report: Report): void {
  for (const { number, fileId, fromStage, toStage } of stageEvents) {
    if (fromStage === 'ONDISK' || toStage !== 'UNVERIFIED') continue;
    const name = index.files.get(fileId)?.path;
    if (disks.some(({ mountpoint }) => observed.changedPaths.has(`${mountpoint}${name}`))) continue;
    report('file-doubted', `file ${fileId} became UNVERIFIED by event ${number}, and nobody changed ${name}`);
  }
}

function checkDisks({ disks, files, recalls }: Facts, report: Report): void {
  for (const { id, mountpoint, used, reserved } of disks) {
    const due = sumOf(
      files.filter((file) => file.diskId === id),
      ({ size }) => size,
    );
    if (used !== due) report('disk-used', `disk ${id} uses ${used} bytes, its copies have ${due}: ${mountpoint}`);
    const running = recalls.filter(({ state, diskId }) => state === 'RUNNING' && diskId === id);
    const needed = sumOf(running, ({ size }) => size);
    if (reserved !== needed)
      report('disk-reserved', `disk ${id} reserves ${reserved} bytes, its recalls need ${needed}`);
  }
}

/**
 * Checks the checksums that first restores have computed.
 * Also checks that each readable tape copy is confirmed, or that a reason is recorded.
 */
export function checkTapeCopies(facts: Facts, report: Report): void {
  const failures = new Map(facts.verifications.map((failure) => [failure.fileId, failure]));
  for (const file of facts.files) {
    const name = `file ${file.id} (${file.path})`;
    if (file.checksum === null && file.stage === 'RESTORED' && file.diskChecksum !== null) {
      report('checksum-missing', `${name} was restored with ${file.diskChecksum}, and has no checksum`);
    }
    const right = `sha256:${sha256Of(facts, file)}`;
    if (file.checksumTaken && file.checksum !== right) {
      report('checksum-wrong', `${name} got ${file.checksum} when it was restored; its bytes on tape have ${right}`);
    }
    const isConfirmed = file.verified !== null || file.stage !== 'UNVERIFIED';
    if (isConfirmed && facts.observed.miswritten.has(file.path)) {
      report('verify-wrong', `${name} has other bytes on tape than its checksum says, and is ${file.stage}`);
    }
    const isReadable = file.volumeId !== null && file.position !== null && file.checksum !== null;
    if (isConfirmed || !isReadable || file.withdrawnAt !== null) continue;
    const failure = failures.get(file.id);
    if (!failure) report('verify-missed', `${name} is not confirmed, and no reason is recorded`);
    else if (failure.notBefore !== null) report('verify-missed', `${name} has still to be retried: ${failure.error}`);
  }
  for (const { volume, path: name } of facts.filesOnRetired) {
    if (!facts.observed.openRetirements.has(volume))
      report('volume-left', `volume ${volume} is retired, and has ${name}`);
  }
}

/** Checks that no directory created by Tapegate is empty. */
export function checkDirectories(facts: Facts, index: Index, report: Report): void {
  const { changedPaths } = facts.observed;
  const removed = facts.files.map((file) => copyPathOf(file, index)).filter((place) => changedPaths.has(place ?? ''));
  const emptied = new Set(removed.map((place = '') => path.dirname(place)));
  for (const directory of facts.directories.filter(({ isEmpty, isLikeOwn }) => isEmpty && isLikeOwn)) {
    const place = placeOf(directory);
    if (!changedPaths.has(place) && !emptied.has(place)) report('directory-empty', `${place} is empty`);
  }
}

/**
 * Checks archive paths. Each restored file has a link to its copy, and no other file has a link to a copy.
 * Files of another user are unchanged.
 */
export function checkLinks(facts: Facts, index: Index, report: Report): void {
  const { root, losses } = facts.observed.archivePaths;
  for (const loss of losses) report('link-foreign', `${loss}, and only its owner may do that`);
  if (root === undefined) return;
  const isCopy = (target: string) => facts.disks.some(({ mountpoint }) => target.startsWith(`${mountpoint}/`));
  for (const file of facts.files) {
    const target = facts.links.get(file.path);
    const place = copyPathOf(file, index);
    if (file.stage === 'RESTORED' && place !== undefined) {
      if (target !== place)
        report('link-missing', `file ${file.id} is RESTORED at ${place}, and its link leads to ${target}`);
    } else if (file.stage !== 'UNVERIFIED' && target !== undefined && isCopy(target)) {
      report('link-left', `file ${file.id} is ${file.stage}, and the link at its archive path leads to ${target}`);
    }
  }
  for (const [name, target] of facts.links) {
    if (!index.filesByPath.has(name) && isCopy(target))
      report('link-left', `${name} is no file, and a link leads to ${target}`);
  }
}

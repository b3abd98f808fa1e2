/** Files, their copies in the restore areas, and the room that these take. */
import { sha256Of } from './check-checksums.js';
import { groupBy, type Index, isLive, sumOf } from './fact-index.js';
import type { Facts, FileFact } from './facts.js';
import type { Copy } from './restore-scan.js';
import type { Report } from './violations.js';

/** The names of partial files, src/engine/disk/restore-area.ts. */
const PARTIAL = /\/\.tapegate-[^/]*\.part$/;

export function checkCopies(facts: Facts, index: Index, report: Report): void {
  const copies = new Map(facts.copies.map((copy) => [placeOf(copy), copy]));
  const expected = new Set<string>();
  for (const file of facts.files) {
    const mountpoint = file.diskId === null ? undefined : index.mountpoints.get(file.diskId);
    if (file.stage === 'RESTORING') report('file-restoring', `file ${file.id} (${file.path}) is at RESTORING`);
    if (file.stage === 'RESTORED') {
      const place = `${mountpoint}${file.place}`;
      expected.add(place);
      if (!facts.outside.touched.has(place)) checkCopy(facts, file, place, copies.get(place), report);
    } else if (mountpoint !== undefined) {
      report('copy-left', `file ${file.id} is ${file.stage}, and a copy below ${mountpoint} is noted: ${file.place}`);
    }
  }
  for (const [place, copy] of copies) {
    if (facts.outside.strange.belongings.has(place)) continue;
    if (PARTIAL.test(copy.path)) report('copy-partial', `a partial file is left: ${place}`);
    else if (!expected.has(place) && !facts.outside.touched.has(place)) {
      const stage = index.filesByPath.get(copy.path)?.stage ?? 'not in the catalogue';
      report('copy-unknown', `a file stands at ${place}, and the catalogue has no copy there: it is ${stage}`);
    }
  }
  for (const { fileId, diskId } of facts.leftBehind) {
    report('copy-unseen', `what a recall of file ${fileId} left on disk ${diskId} was not looked at since`);
  }
  checkHeld(facts, index, report);
  checkDoubted(facts, index, report);
  checkDisks(facts, report);
}

export function placeOf(copy: { mountpoint: string; path: string }): string {
  return `${copy.mountpoint}${copy.path}`;
}

function checkCopy(facts: Facts, file: FileFact, place: string, copy: Copy | undefined, report: Report): void {
  const name = `file ${file.id} is RESTORED`;
  if (!copy) {
    report('copy-missing', `${name}, and nothing stands at ${place}`);
    return;
  }
  if (copy.sha256 === null || copy.sha256 !== sha256Of(facts, file)) {
    report('copy-bytes', `${name}, and ${place} has ${copy.size} bytes that are not those of the archive`);
  }
  if (copy.mtimeNs !== file.mtimeNs) {
    report('copy-time', `${name}, and ${place} was modified at ${copy.mtimeNs}, not at ${file.mtimeNs}`);
  } else if (copy.ino !== file.ino) {
    report('copy-inode', `${name}, and ${place} has inode ${copy.ino}, not ${file.ino}`);
  }
}

function checkHeld(facts: Facts, index: Index, report: Report): void {
  const held = new Set<bigint>();
  for (const [requestId, holds] of index.holdsOf) {
    if (isLive(index.requests.get(requestId))) for (const hold of holds) held.add(hold.fileId);
  }
  for (const file of facts.files) {
    if (file.stage === 'RESTORED' && !held.has(file.id)) {
      report('file-unheld', `file ${file.id} is RESTORED, and no live request holds it: ${file.path}`);
    }
  }
}

/** What was put into the restore area, or changed there, by hand has its file become UNVERIFIED, and nothing else. */
function checkDoubted(facts: Facts, index: Index, report: Report): void {
  for (const event of facts.stageEvents) {
    if (event.from === 'ONDISK' || event.to !== 'UNVERIFIED') continue;
    const path = index.files.get(event.fileId)?.path;
    if (facts.disks.some((disk) => facts.outside.touched.has(`${disk.mountpoint}${path}`))) continue;
    report('file-doubted', `file ${event.fileId} became UNVERIFIED by event ${event.id}, and nobody touched ${path}`);
  }
}

/** By the definitions in prisma/schema.prisma. */
function checkDisks(facts: Facts, report: Report): void {
  const filesOn = groupBy(facts.files, (file) => file.diskId);
  const running = facts.recalls.filter((recall) => recall.state === 'RUNNING');
  for (const disk of facts.disks) {
    const used = sumOf(filesOn.get(disk.id) ?? [], (file) => file.size);
    if (disk.used !== used) {
      report('disk-used', `disk ${disk.id} has ${disk.used} bytes in use, its copies have ${used}: ${disk.mountpoint}`);
    }
    const reserved = sumOf(
      running.filter((recall) => recall.diskId === disk.id),
      (recall) => recall.size,
    );
    if (disk.reserved !== reserved) {
      report('disk-reserved', `disk ${disk.id} has ${disk.reserved} bytes reserved, its recalls need ${reserved}`);
    }
  }
}

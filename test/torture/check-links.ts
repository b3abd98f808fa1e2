/** Links at archive paths: each restored file has one to its copy, no other file has, and what was somebody's stayed. */
import type { Index } from './fact-index.js';
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkLinks(facts: Facts, index: Index, report: Report): void {
  const { root, lost } = facts.outside.archivePaths;
  for (const loss of lost) report('link-stranger', `${loss}, and nobody but its owner may do that`);
  if (root === undefined) return;
  for (const folder of facts.halfMade) report('link-folder', `${folder} was being made, and is used as it is`);
  const isCopy = (target: string) => facts.disks.some(({ mountpoint }) => target.startsWith(`${mountpoint}/`));
  for (const file of facts.files) {
    const target = facts.links.get(file.path);
    const mountpoint = file.diskId === null ? undefined : index.mountpoints.get(file.diskId);
    if (file.stage === 'RESTORED' && mountpoint !== undefined) {
      const place = `${mountpoint}${file.place}`;
      if (target !== place)
        report('link-missing', `file ${file.id} is RESTORED at ${place}, and its link leads to ${target}`);
    } else if (file.stage !== 'UNVERIFIED' && target !== undefined && isCopy(target)) {
      report('link-left', `file ${file.id} is ${file.stage}, and a link at its archive path leads to ${target}`);
    }
  }
  for (const [path, target] of facts.links) {
    if (!index.filesByPath.has(path) && isCopy(target))
      report('link-left', `${path} is no file, and a link leads to ${target}`);
  }
}

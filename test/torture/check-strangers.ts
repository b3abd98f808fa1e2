/** Others: what another user of the host has stays his, nothing lands where it should not, and who shows a revoked token is nobody. */
import { type Index, isLive } from './fact-index.js';
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

/** What a call through an open folder says, which names nothing that anybody could find. */
const NAMELESS = /\/proc\/self\/fd\//;

export function checkStrangers(facts: Facts, index: Index, report: Report): void {
  const { strange, stuck, wrong, doubleClaims } = facts.outside;
  for (const loss of strange.losses) report('stranger-lost', `${loss}, and nobody but its owner may do that`);
  for (const place of strange.landed)
    report('stranger-outside', `${place} was put there, outside of all restore disks`);
  for (const file of facts.files) {
    const mountpoint = file.diskId === null ? undefined : index.mountpoints.get(file.diskId);
    const belonging = strange.belongings.get(`${mountpoint}${file.place}`);
    if (belonging === undefined || file.ino !== BigInt.asIntN(64, belonging.ino)) continue;
    report('stranger-taken', `file ${file.id} is ${file.stage}, and its copy is a ${belonging.kind} of somebody else`);
  }
  for (const { kind, text } of wrong) report(kind, text);
  for (const process of stuck) report('process-stuck', process);
  for (const claim of doubleClaims) report('drive-twice', claim);
  checkReasons(facts, index, report);
}

/** A rule of the site that keeps a file out is about something on a disk, and says of what. */
function checkReasons({ holds, disks, outside }: Facts, index: Index, report: Report): void {
  for (const { requestId, fileId, state, errorClass, error } of holds) {
    if (state !== 'FAILED' || error === null || !isLive(index.requests.get(requestId))) continue;
    const isPlanned = /planned|^withdrawn from/.test(error);
    const isNamed = disks.some(({ mountpoint }) => error.includes(mountpoint)) && !NAMELESS.test(error);
    const path = index.files.get(fileId)?.path;
    const isDisturbed = disks.some(({ mountpoint }) => outside.touched.has(`${mountpoint}${path}`));
    if (isPlanned || isNamed || (errorClass !== 'POLICY' && !(isDisturbed && NAMELESS.test(error)))) continue;
    report('hold-unnamed', `the hold of request ${requestId} on file ${fileId} has failed as ${errorClass}: ${error}`);
  }
}

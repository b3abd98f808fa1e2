/** Tape copies: what could be confirmed is or says why not, and nothing is confirmed that has other bytes. */
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkVerifications(facts: Facts, report: Report): void {
  const failures = new Map(facts.verifications.map((failure) => [failure.fileId, failure]));
  for (const file of facts.files) {
    const name = `file ${file.id} (${file.path})`;
    const isConfirmed = file.verified !== null || file.stage !== 'UNVERIFIED';
    if (isConfirmed && facts.outside.miswritten.has(file.path)) {
      report('verify-wrong', `${name} has other bytes on tape than its checksum says, and is ${file.stage}`);
    }
    if (isConfirmed || !file.isReadable) continue;
    const failure = failures.get(file.id);
    if (!failure) report('verify-missed', `${name} is not confirmed, and nothing says why`);
    else if (failure.isTriedAgain) report('verify-missed', `${name} is to be tried again: ${failure.error}`);
  }
}

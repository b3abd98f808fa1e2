/**
 * What must be true of a Tapegate that has settled, whatever happened before. Pure: facts in, violations out.
 *
 * Settled means that no fault goes on, that an engine runs, and that whatever was to be tried again has been.
 */
import { checkAudit } from './check-audit.js';
import { checkBulks } from './check-bulks.js';
import { checkChecksums } from './check-checksums.js';
import { checkCopies } from './check-copies.js';
import { checkEvents } from './check-events.js';
import { checkFolders } from './check-folders.js';
import { checkLinks } from './check-links.js';
import { checkMail } from './check-mail.js';
import { checkRequests } from './check-requests.js';
import { checkStaging } from './check-staging.js';
import { checkStrangers } from './check-strangers.js';
import { checkVerifications } from './check-verifications.js';
import { checkVolumes } from './check-volumes.js';
import { checkWatches } from './check-watches.js';
import { checkWebhooks } from './check-webhooks.js';
import { indexFacts } from './fact-index.js';
import type { Facts } from './facts.js';
import type { Report, Violation } from './violations.js';

export function check(facts: Facts): Violation[] {
  const violations: Violation[] = [];
  const report: Report = (kind, text) => violations.push({ kind, text });
  const index = indexFacts(facts);
  checkRequests(facts, index, report);
  checkBulks(facts, index, report);
  checkCopies(facts, index, report);
  checkFolders(facts, index, report);
  checkLinks(facts, index, report);
  checkStrangers(facts, index, report);
  checkMail(facts, index, report);
  checkWebhooks(facts, report);
  checkEvents(facts, index, report);
  checkWatches(facts, report);
  checkVerifications(facts, report);
  checkChecksums(facts, report);
  checkVolumes(facts, report);
  checkStaging(facts, report);
  checkAudit(facts, report);
  return violations;
}

/**
 * Staging libraries: when nobody waits for anything, nothing is staged there that their systems do not let go by themselves, and of what
 * they keep it is known until when.
 */
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkStaging(facts: Facts, report: Report): void {
  const noted = new Map(facts.staging.map((row) => [`${row.library} ${row.path}`, row]));
  for (const { library, path, state } of facts.staging) {
    if (state !== 'KEPT') report('staging-open', `${path} is ${state} at ${library}, and nobody waits for it`);
  }
  for (const { library, path, why, until } of facts.outside.staged) {
    const row = noted.get(`${library} ${path}`);
    if (row && row.state !== 'KEPT') continue; // told above
    if (!row) report('staging-left', `${path} is ${why} at ${library}, and nothing is noted of it`);
    else if (until === null)
      report('staging-left', `${path} is ${why} at ${library}, which is said to keep it by itself`);
    else if (!isSameTime(row.readyUntil, until)) {
      report('staging-kept', `${path} is kept at ${library} until ${until}, and noted is ${row.readyUntil}`);
    }
  }
}

/** @param stored in UTC, without a zone */
function isSameTime(stored: string | null, told: string): boolean {
  return stored !== null && Date.parse(`${stored}Z`) === Date.parse(told);
}

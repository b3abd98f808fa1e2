/** Staging libraries: when nobody waits for anything, nothing is staged there that their systems do not let go by themselves. */
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkStaging(facts: Facts, report: Report): void {
  const noted = new Set(facts.staging.map(({ library, path }) => `${library} ${path}`));
  for (const { library, path, state } of facts.staging) {
    if (state !== 'KEPT') report('staging-open', `${path} is ${state} at ${library}, and nobody waits for it`);
  }
  for (const { library, path, why } of facts.outside.staged) {
    if (!noted.has(`${library} ${path}`))
      report('staging-left', `${path} is ${why} at ${library}, and nothing is noted of it`);
  }
}

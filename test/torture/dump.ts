/** What was found wrong and all that was looked at, in a file: for whoever looks for the cause. */
import { writeFile } from 'node:fs/promises';
import type { Facts } from './facts.js';
import type { Violation } from './violations.js';

/** @param more what else may tell of the cause */
export async function dumpFacts(
  file: string,
  { facts, violations }: { facts: Facts; violations: readonly Violation[] },
  more: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const { outside, ...stored } = facts;
  const plain = {
    violations,
    ...more,
    ...stored,
    mails: outside.mails,
    told: outside.told,
    touched: [...outside.touched],
    revivals: [...outside.revivals],
    watches: outside.watches,
    versions: [...outside.versions],
    openRetirements: [...outside.openRetirements],
  };
  await writeFile(file, JSON.stringify(plain, null, 1));
}

/** The findings of the doctor. */
import { examine } from '../../src/engine/doctor/doctor.js';
import type { TestApp } from './app.js';

/** @param options.checksums also compares the bytes of copies */
export async function findFaults({ ctx }: TestApp, { checksums = false } = {}): Promise<string[]> {
  const faults: string[] = [];
  await examine(ctx, { repair: false, checksums, adopt: false }, ({ kind, thing }) => faults.push(`${kind}: ${thing}`));
  return faults;
}

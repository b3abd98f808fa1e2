/** What the doctor has to say of an app, in a few words for each fault. */
import { examine } from '../../src/engine/doctor/doctor.js';
import type { TestApp } from './app.js';

/** @param options.checksums compares the bytes of copies as well */
export async function findFaults({ ctx }: TestApp, { checksums = false } = {}): Promise<string[]> {
  const faults: string[] = [];
  await examine(ctx, { repair: false, checksums, adopt: false }, ({ kind, thing }) => faults.push(`${kind}: ${thing}`));
  return faults;
}

/** What the doctor has to say of an app, in a few words for each fault. */
import { examine } from '../../src/engine/doctor/doctor.js';
import type { TestApp } from './app.js';

interface ExaminationOptions {
  /** Compares the bytes of copies as well. */
  checksums?: boolean;
  repair?: boolean;
  adopt?: boolean;
}

/** @returns `<kind>: <thing>` for each finding, with ` (repaired)` at the end if it was */
export async function findFaults({ ctx }: TestApp, options: ExaminationOptions = {}): Promise<string[]> {
  const faults: string[] = [];
  await examine(ctx, { repair: false, checksums: false, adopt: false, ...options }, ({ kind, thing, isRepaired }) =>
    faults.push(`${kind}: ${thing}${isRepaired ? ' (repaired)' : ''}`),
  );
  return faults;
}

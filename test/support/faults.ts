/** Runs the doctor and returns its findings. */
import { examine } from '../../src/engine/doctor/doctor.js';
import type { TestApp } from './app.js';

interface ExaminationOptions {
  /** Whether the doctor also compares the bytes of copies. */
  checksums?: boolean;
  repair?: boolean;
  adopt?: boolean;
}

/** @returns `<kind>: <object>` for each finding, with ` (repaired)` at the end of repaired findings */
export async function findFaults({ ctx }: TestApp, options: ExaminationOptions = {}): Promise<string[]> {
  const faults: string[] = [];
  await examine(ctx, { repair: false, checksums: false, adopt: false, ...options }, ({ kind, object, isRepaired }) =>
    faults.push(`${kind}: ${object}${isRepaired ? ' (repaired)' : ''}`),
  );
  return faults;
}

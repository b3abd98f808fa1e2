/** The program's own judgement of what is left, which must agree with that of the checker. */
import { examine } from '../../src/engine/doctor/doctor.js';
import type { Violation } from './violations.js';
import type { World } from './world.js';

/** What was changed by hand, and what is somebody else's, is a finding, and no violation. */
export async function askDoctor(world: Pick<World, 'ctx' | 'touched'> & Partial<World>): Promise<Violation[]> {
  const violations: Violation[] = [];
  await examine(world.ctx, { repair: false, checksums: true }, ({ kind, thing, expected, found }) => {
    if (world.touched.has(thing) || world.stranger?.belongings.has(thing)) return;
    violations.push({ kind: 'doctor', text: `${kind}: ${thing}: expected ${expected}; found ${found}` });
  });
  return violations;
}

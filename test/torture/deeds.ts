/** Changes that the audit has to tell of. */
import { nameDeed } from './facts.js';
import type { World } from './world.js';

/** Before it is sent: the answer may be lost, and the change not. @param send gives whether it was confirmed */
export async function noteDeed(
  world: World,
  operation: string,
  id: number,
  send: () => Promise<boolean>,
): Promise<void> {
  const name = nameDeed(operation, id);
  const deed = world.asked.get(name) ?? { times: 0, confirmed: 0 };
  world.asked.set(name, deed);
  deed.times++;
  if (await send()) deed.confirmed++;
}

/** How long a mount and an unmount can take, by the limits of all their commands, one after the other. Pure. */
import type { LtfsSettings } from './settings.js';

/** Beside its limit: for a command that is told to end, and does not. */
const KILL_SECONDS = 20;

/** A mount at its worst: the drive is cleared and emptied, so is the one in which the cartridge is, and it is emptied again when nothing came of it. */
export function longestSeconds({ seconds }: Pick<LtfsSettings, 'seconds'>): { mount: number; unmount: number } {
  const changed = (step: 'status' | 'load' | 'unload') => seconds.lock + seconds[step] + KILL_SECONDS;
  const clear = 2 * (seconds.unmount + KILL_SECONDS);
  const unload = seconds.unload + changed('status') + changed('unload');
  const empty = clear + unload;
  const mount = seconds.lock + 3 * empty + 3 * changed('status') + changed('load') + seconds.mount + KILL_SECONDS;
  return { mount, unmount: empty };
}

/** Volumes that have left the archive. */
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkVolumes({ onRetired, outside }: Facts, report: Report): void {
  for (const { volume, path } of onRetired) {
    if (!outside.openRetirements.has(volume)) report('volume-left', `volume ${volume} is retired, and has ${path}`);
  }
}

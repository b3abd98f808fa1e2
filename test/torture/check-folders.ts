/** Folders of the restore areas: those that Tapegate has made are noted, are there, and are not left empty. */

import { placeOf } from './check-copies.js';
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkFolders({ folders, outside: { touched, strange } }: Facts, report: Report): void {
  for (const folder of folders) {
    const { noted, found } = folder;
    const place = placeOf(folder);
    if (touched.has(place) || isSites(place, strange.folders)) continue;
    if (noted && noted.ino === null) report('folder-note', `${place} is noted as being made`);
    else if (noted && noted.ino !== found?.ino) {
      report(
        'folder-note',
        `${place} is noted with inode ${noted.ino}, and ${found ? `has ${found.ino}` : 'is not there'}`,
      );
    } else if (found?.isAsMade && found.isEmpty)
      report('folder-left', `${place} is empty, and is ${noted ? '' : 'not '}noted`);
    else if (found?.isAsMade && !noted) report('folder-unnoted', `${place} was made, and is not noted`);
  }
}

/** It was there before, or is the stranger's. */
function isSites(place: string, sites: ReadonlyMap<string, unknown>): boolean {
  return sites.has(place);
}

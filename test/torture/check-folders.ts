/** Folders of the restore areas: those that Tapegate has made are noted, are there, and are not left empty. */

import path from 'node:path';
import { placeOf } from './check-copies.js';
import type { Index } from './fact-index.js';
import type { Facts } from './facts.js';
import type { Report } from './violations.js';

export function checkFolders(facts: Facts, index: Index, report: Report): void {
  const { touched, strange } = facts.outside;
  const emptied = findEmptied(facts, index);
  for (const folder of facts.folders) {
    const { noted, found } = folder;
    const place = placeOf(folder);
    if (touched.has(place) || isSites(place, strange.folders)) continue;
    if (noted && noted.ino === null) report('folder-note', `${place} is noted as being made`);
    else if (noted && noted.ino !== found?.ino) {
      report(
        'folder-note',
        `${place} is noted with inode ${noted.ino}, and ${found ? `has ${found.ino}` : 'is not there'}`,
      );
    } else if (found?.isAsMade && found.isEmpty && !emptied.has(place))
      report('folder-left', `${place} is empty, and is ${noted ? '' : 'not '}noted`);
    else if (found?.isAsMade && !noted) report('folder-unnoted', `${place} was made, and is not noted`);
  }
}

/** Folders of copies that are noted, and that somebody has taken away. */
function findEmptied({ files, outside: { touched } }: Facts, { mountpoints }: Index): Set<string> {
  const places = files
    .filter(({ diskId }) => diskId !== null)
    .map((file) => `${mountpoints.get(file.diskId as number)}${file.place}`);
  return new Set(places.filter((place) => touched.has(place)).map((place) => path.dirname(place)));
}

/** It was there before, or is the stranger's. */
function isSites(place: string, sites: ReadonlyMap<string, unknown>): boolean {
  return sites.has(place);
}

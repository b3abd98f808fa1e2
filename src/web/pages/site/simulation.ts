/** The choices of the view “What if”, which are stored in its address. */

import type { SimulatePlanInput } from '../../../generated/operations.js';
import { FlaskConical } from '../../parts/icons';
import type { MenuItem } from '../../parts/menu';

type Kind = 'DRIVE' | 'LIBRARY' | 'VOLUME';

export interface Choices {
  suspended: Readonly<Record<Kind, readonly string[]>>;
  /** Number of drives to add, by the name of the library. */
  added: ReadonlyMap<string, number>;
}

/** Name of each kind in the address. */
const parameters: Readonly<Record<Kind, string>> = { DRIVE: 'drive', LIBRARY: 'library', VOLUME: 'volume' };
const ADDED = 'add';

export const kinds = Object.keys(parameters) as Kind[];

/** Largest number of drives that the view adds to a library. */
export const MAX_ADDED = 50;

export function readChoices(search: URLSearchParams): Choices {
  const added = search.getAll(ADDED).flatMap((text) => {
    const [, library = '', number] = /^(.+):(\d{1,3})$/.exec(text) ?? [];
    return number === undefined ? [] : [[library, Math.min(Number(number), MAX_ADDED)] as const];
  });
  const namesOf = (kind: Kind) => [...new Set(search.getAll(parameters[kind]))];
  return {
    suspended: { DRIVE: namesOf('DRIVE'), LIBRARY: namesOf('LIBRARY'), VOLUME: namesOf('VOLUME') },
    added: new Map(added.filter(([, number]) => number > 0)),
  };
}

export function addressOf({ suspended, added }: Choices): string {
  const search = new URLSearchParams();
  for (const kind of kinds) for (const name of suspended[kind]) search.append(parameters[kind], name);
  for (const [library, number] of added) if (number > 0) search.append(ADDED, `${library}:${number}`);
  const text = search.toString();
  return `#/what-if${text && `?${text}`}`;
}

export function inputOf({ suspended, added }: Choices): SimulatePlanInput {
  return {
    suspend: kinds.flatMap((kind) => suspended[kind].map((name) => ({ kind, name }))),
    addDrives: [...added].map(([libraryName, driveCount]) => ({ libraryName, driveCount })),
  };
}

/** Returns the menu item that shows the plan without an object. */
export function simulateWithout(kind: Kind, name: string): MenuItem {
  return {
    text: 'What if it is suspended?',
    icon: FlaskConical,
    onSelect: () => {
      location.hash = addressOf({
        suspended: { DRIVE: [], LIBRARY: [], VOLUME: [], [kind]: [name] },
        added: new Map(),
      });
    },
  };
}

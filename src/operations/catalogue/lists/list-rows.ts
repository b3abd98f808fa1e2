/** What lists of other systems have in common: they have paths, sizes and times, and leave the rest to whoever imports them. */
import { quote } from '../../../errors.js';
import { RowError } from '../import-lines.js';
import { type CatalogueRow, checkRow, type Fields } from '../import-rows.js';

/** What a list does not say. */
export interface ListSettings {
  /** The volume of all files of the list. */
  volume: string;
  /** That it is in; where it is known, or in the first one unless given. */
  library?: string | undefined;
  spot?: string | undefined;
  /** Folder that is put before each path: `/archive`, or empty. */
  prefix: string;
  /** Folder that is taken from the beginning of each path first: `/hpss/archive`, or empty. */
  strip: string;
}

/** Of what is left out, how many there are of each kind: `folders`. */
export type Skipped = Map<string, number>;

/** One row of a list. */
export interface ListEntry {
  /** As the list has it; one that does not begin with a slash is from the folder in which the list was made. */
  path: string;
  fields: Omit<Fields, 'path' | 'volume' | 'stage' | 'spot_name'>;
}

/** Files of such lists are on tape: nobody says that they are on a disk here. */
const STAGE = 'T';

/** The row of the catalogue; what is wrong with it is told as of a row that was written for an import. */
export function makeEntryRow(
  line: number,
  { path, fields }: ListEntry,
  { volume, library, spot, prefix, strip }: ListSettings,
): CatalogueRow | RowError {
  const whole = path.startsWith('/') ? path : `/${path}`;
  if (!whole.startsWith(`${strip}/`)) return new RowError(line, `${quote(whole)} is not below ${quote(strip)}`);
  const spotName = spot === undefined ? {} : { spot_name: spot };
  const place = { path: prefix + whole.slice(strip.length), volume, ...(library === undefined ? {} : { library }) };
  return checkRow(line, { ...fields, ...spotName, ...place, stage: STAGE });
}

export function countSkipped(skipped: Skipped, kind: string): undefined {
  skipped.set(kind, (skipped.get(kind) ?? 0) + 1);
  return undefined;
}

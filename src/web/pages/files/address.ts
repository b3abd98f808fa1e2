/**
 * The state of the file browser, as the address stores it: `#/files/demo/ocean?q=*.nc&stage=ONTAPE`. Links of older
 * versions have the parameter `match`, a plain substring of the path.
 */
import { parseSize } from '../../../core/text/bytes.js';
import type { Stage, TapeFileOrderField } from '../../../generated/operations.js';
import type { Sort } from '../../parts/table';
import { linkTo, type Route } from '../../route';

export interface Filters {
  stages: readonly Stage[];
  /** Sizes as the user typed them, such as `10 MB`. */
  min: string;
  max: string;
  /** Dates, such as `2024-01-31`. */
  since: string;
  until: string;
}

export interface Place {
  /** Path of the folder without a trailing slash; empty for the root. */
  folder: string;
  query: string;
  /** Substring from a link of an older version; replaces `query`. */
  match: string;
  isEverywhere: boolean;
  filters: Filters;
  sort: Sort;
}

export const noFilters: Filters = { stages: [], min: '', max: '', since: '', until: '' };

const orders = ['PATH', 'SIZE', 'STAGE', 'MODIFIED', 'VOLUME'] as const satisfies readonly TapeFileOrderField[];
const stages = ['UNVERIFIED', 'ONDISK', 'ONTAPE', 'RESTORING', 'RESTORED'] as const satisfies readonly Stage[];

const byPath: Sort = { order: 'PATH', isDescending: false };

export function readPlace({ parts, search }: Route): Place {
  const get = (name: string) => search.get(name) ?? '';
  const chosen = get('stage').split(',');
  const order = orders.find((each) => each.toLowerCase() === get('sort')) ?? 'PATH';
  const folder = parts
    .slice(1)
    .map((part) => `/${part}`)
    .join('');
  return {
    folder,
    query: get('q'),
    match: get('q') ? '' : get('match'),
    isEverywhere: folder === '' || get('in') === 'all',
    filters: {
      stages: stages.filter((stage) => chosen.includes(stage)),
      min: get('min'),
      max: get('max'),
      since: get('since'),
      until: get('until'),
    },
    sort: { order, isDescending: get('direction') === 'desc' },
  };
}

export type AddressPart = [parts: string[], search: Record<string, string | undefined>];

/** Returns the address of a place, as arguments of `linkTo` and `chooseHere`. */
export function writePlace({ folder, query, match, isEverywhere, filters, sort }: Place, sel?: string): AddressPart {
  return [
    ['files', ...folder.split('/').filter(Boolean)],
    {
      q: query,
      match,
      in: isEverywhere && folder !== '' ? 'all' : undefined,
      stage: filters.stages.join(','),
      min: filters.min,
      max: filters.max,
      since: filters.since,
      until: filters.until,
      sort: sort.order === byPath.order ? undefined : sort.order.toLowerCase(),
      direction: sort.isDescending ? 'desc' : undefined,
      sel,
    },
  ];
}

/** Returns a link to a folder, which keeps the sort order. */
export const linkToFolder = (folder: string, { sort }: Pick<Place, 'sort'>): string =>
  linkTo(...writePlace({ folder, query: '', match: '', isEverywhere: false, filters: noFilters, sort }));

/** Returns the filters without sizes and dates that are not valid, which the fields show with an error. */
export function validOf({ stages, min, max, since, until }: Filters): Filters {
  const size = (text: string) => (readSize(text) === undefined ? '' : text);
  const date = (text: string) => (isDate(text) ? text : '');
  return { stages, min: size(min), max: size(max), since: date(since), until: date(until) };
}

export const isDate = (text: string): boolean =>
  /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(`${text}T00:00:00Z`));

const isFiltered = (filters: Filters): boolean => countFilters(filters) > 0;

/** Returns whether the view lists all matching files below the folder, instead of the folder's entries. */
export const isSearch = ({ query, match, filters }: Place): boolean =>
  query.trim() !== '' || match !== '' || isFiltered(filters);

export function countFilters(filters: Filters): number {
  const { stages, min, max, since, until } = validOf(filters);
  return Number(stages.length > 0) + Number(min !== '' || max !== '') + Number(since !== '' || until !== '');
}

/** Parses a size that the user typed. Accepts lower-case units. */
export function readSize(text: string): bigint | undefined {
  return parseSize(
    text
      .trim()
      .toUpperCase()
      .replace(/I(?=B?$)/, 'i'),
  );
}

/** Variables of the queries that list, count or measure the files of a search. */
export function searchOf({ folder, query, match, isEverywhere, filters }: Place) {
  const { min, max, since, until } = validOf(filters);
  const size = (text: string) => readSize(text)?.toString();
  return {
    match: match || undefined,
    search: query.trim() || undefined,
    directory: isEverywhere ? undefined : folder || undefined,
    stages: filters.stages.length > 0 ? [...filters.stages] : undefined,
    minSize: size(min) as bigint | undefined,
    maxSize: size(max) as bigint | undefined,
    modifiedSince: since || undefined,
    modifiedUntil: until === '' ? undefined : `${until}T23:59:59.999999Z`,
  };
}

/** Variables for the files directly in a folder. */
export const folderOf = ({ folder }: Place) => ({ parent: folder || '/' });

export const orderOf = ({ order, isDescending }: Sort) => ({
  field: order as TapeFileOrderField,
  direction: isDescending ? ('DESC' as const) : ('ASC' as const),
});

/**
 * Returns a plain substring that the paths of all files of the view contain, and that a request can use as its pattern;
 * empty if there is none.
 */
export function patternOf(place: Place): string {
  if (isFiltered(place.filters)) return '';
  if (!isSearch(place)) return place.folder === '' ? '' : `${place.folder}/`;
  const exact = place.match || /^"([^"]+)"?$/.exec(place.query.trim())?.[1];
  return place.isEverywhere && exact ? exact : '';
}

export const nameOfPath = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

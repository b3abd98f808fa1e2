/** The orders of the list of requests. The address stores an order such as `-size`; a `-` means descending. */
import type { RequestOrder, RequestOrderField } from '../../../generated/operations.js';
import type { Sort } from '../../parts/table';

const fields: Readonly<Record<string, RequestOrderField>> = {
  created: 'CREATED_AT',
  retention: 'RETENTION',
  size: 'BYTES',
  files: 'FILES',
  label: 'LABEL',
  state: 'STATE',
};

/** Orders that begin with the largest value when the user first chooses them. */
const DESCENDING: ReadonlySet<string> = new Set(['created', 'size', 'files']);

export const ORDERS: readonly (readonly [order: string, text: string])[] = [
  ['-created', 'Newest first'],
  ['created', 'Oldest first'],
  ['retention', 'Expires first'],
  ['-retention', 'Expires last'],
  ['-size', 'Largest first'],
  ['size', 'Smallest first'],
  ['-files', 'Most files first'],
  ['files', 'Fewest files first'],
  ['label', 'Label, A to Z'],
  ['-label', 'Label, Z to A'],
  ['state', 'Queued first'],
  ['-state', 'Ended first'],
];

const [[NEWEST] = ['']] = ORDERS;

/** Returns the order with this name. If the name is unknown, returns the default, the newest request first. */
export function readSort(name: string): Sort {
  const known = ORDERS.some(([order]) => order === name) ? name : NEWEST;
  return { order: known.replace('-', ''), isDescending: known.startsWith('-') };
}

export const formatSort = ({ order, isDescending }: Sort): string => `${isDescending ? '-' : ''}${order}`;

/** Returns the order after a click on a column's title. */
export function resort(before: Sort, { order, isDescending }: Sort): Sort {
  return { order, isDescending: order === before.order ? isDescending : DESCENDING.has(order) };
}

/** Returns the argument of the query; undefined for the newest request first, which the database finds fastest. */
export function orderByOf(sort: Sort): RequestOrder | undefined {
  const field = fields[sort.order];
  if (!field || formatSort(sort) === NEWEST) return undefined;
  return { field, direction: sort.isDescending ? 'DESC' : 'ASC' };
}

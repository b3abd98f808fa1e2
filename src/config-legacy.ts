/** What LEGACY opens to callers who show nothing. */
import { type AddressRanges, isRange, splitRanges } from './address-ranges.js';
import { quote } from './errors.js';

/** The endpoints of the REST contract. */
export const endpoints = [
  'GET /requests',
  'GET /requests/{id}',
  'GET /files',
  'GET /quota/{user}',
  'POST /requests',
  'PUT /requests/{id}',
] as const;
export type Endpoint = (typeof endpoints)[number];

/** An endpoint that is open to callers who show nothing; from anywhere unless `ranges` says from where. */
export interface LegacyRule {
  endpoint: Endpoint;
  ranges?: AddressRanges;
}

/** What is open where LEGACY says nothing. */
export const usualLegacy: readonly LegacyRule[] = findEndpoints('read').map((endpoint) => ({ endpoint }));

/**
 * `read, POST /requests from 192.0.2.0/24 192.0.2.7`; `none` closes all.
 * @param refuse is told of each entry that is wrong, with what could stand there
 */
export function parseLegacy(text: string, refuse: (fault: string) => void): LegacyRule[] {
  if (text.trim() === 'none') return [];
  return text.split(',').flatMap((entry) => {
    const read = readEntry(entry.trim());
    if (typeof read !== 'string') return read;
    refuse(`LEGACY must be none, or a list: ${read}`);
    return [];
  });
}

/** @returns what is wrong with it, where something is */
function readEntry(entry: string): LegacyRule[] | string {
  if (entry === '') return 'one of its entries is empty';
  const [what = '', from, ...others] = entry.split(/\s+from(?:\s+|$)/);
  const named = findEndpoints(what);
  if (what === 'none') return '"none" stands alone, where all is closed';
  if (named.length === 0) return `${quote(what)} is none of read, all, ${endpoints.join(', ')}`;
  if (from === undefined) return named.map((endpoint) => ({ endpoint }));
  if (others.length > 0) return `${quote(entry)} has "from" ${others.length + 1} times`;
  const ranges = splitRanges(from);
  const wrong = ranges.find((range) => !isRange(range));
  if (wrong !== undefined) {
    return `${quote(wrong)} in ${quote(entry)} is no address, and no range such as 192.0.2.0/24 or 2001:db8::/32`;
  }
  if (ranges.length === 0) return `${quote(entry)} names no address after "from"`;
  return named.map((endpoint) => ({ endpoint, ranges }));
}

function findEndpoints(what: string): readonly Endpoint[] {
  if (what === 'all') return endpoints;
  if (what === 'read') return endpoints.filter((endpoint) => endpoint.startsWith('GET '));
  return endpoints.filter((endpoint) => endpoint === what.replace(/\s+/, ' '));
}

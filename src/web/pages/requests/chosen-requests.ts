/** The selected requests. The address stores their ids, so that the selection survives paging, filters and a reload. */
import { useRef } from 'preact/hooks';
import { itemsBetween, type Selection } from '../../parts/selection';
import { replaceRoute } from '../../route';

export interface ChosenRequests extends Selection {
  /** Ids of the selected requests, in ascending order. */
  ids: readonly number[];
  choose(ids: Iterable<number>): void;
}

const NAME = 'selected';

export const readChosen = (search: URLSearchParams): string => search.get(NAME) ?? '';

/** Returns the ids in the address; ignores anything else that a user might have typed. */
function parseIds(text: string): number[] {
  const ids = text.split(',').flatMap((id) => (/^[1-9]\d{0,9}$/.test(id) ? Number(id) : []));
  return [...new Set(ids)].sort((a, b) => a - b);
}

/** Changes the ids in the address. The other filters and the page stay. */
function storeIds(ids: Iterable<number>): void {
  const [path, search] = location.hash.split('?', 2);
  const chosen = new URLSearchParams(search);
  const text = [...ids].sort((a, b) => a - b).join(',');
  if (text) chosen.set(NAME, text);
  else chosen.delete(NAME);
  const query = chosen.toString();
  replaceRoute(`${path}${query && `?${query}`}`);
}

/**
 * @param text ids from `readChosen`
 * @param rows the requests on the page, in order, with their names
 */
export function useChosenRequests(text: string, rows: readonly { requestId: number; name: string }[]): ChosenRequests {
  const last = useRef<string | undefined>(undefined);
  const ids = parseIds(text);
  const chosen = new Set(ids);
  const keys = rows.map(({ requestId }) => String(requestId));
  const isAll = keys.length > 0 && keys.every((key) => chosen.has(Number(key)));
  const toggle = (key: string, isRange: boolean) => {
    const from = isRange && last.current !== undefined ? keys.indexOf(last.current) : -1;
    const next = new Set(ids);
    if (from >= 0) for (const each of itemsBetween(keys, from, keys.indexOf(key))) next.add(Number(each));
    else if (!next.delete(Number(key))) next.add(Number(key));
    last.current = key;
    storeIds(next);
  };
  return {
    ids,
    choose: storeIds,
    has: (key) => chosen.has(Number(key)),
    toggle,
    isAll,
    allLabel: 'Select all requests on this page',
    nameOf: (key) => `request ${key}: ${rows.find(({ requestId }) => String(requestId) === key)?.name ?? ''}`,
    toggleAll: () => {
      const own = new Set(keys.map(Number));
      storeIds(isAll ? ids.filter((id) => !own.has(id)) : new Set([...ids, ...own]));
    },
  };
}

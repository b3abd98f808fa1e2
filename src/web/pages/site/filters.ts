/** Stores the filters and the sort order of a view in the address. */
import type { Sort } from '../../parts/table';
import { chooseHere, useRoute } from '../../route';

type Chosen<Name extends string> = Partial<Record<Name, string | undefined>>;

interface Filters<Name extends string> {
  values: Chosen<Name>;
  /** Changes some filters, keeps the others, and shows the first page of the list. */
  choose(changed: Chosen<Name>, how?: { isTyped: boolean }): void;
}

export function useFilters<Name extends string>(...names: Name[]): Filters<Name> {
  const { parts, search } = useRoute();
  const values = Object.fromEntries(names.map((name) => [name, search.get(name) ?? undefined])) as Chosen<Name>;
  return {
    values,
    choose: (changed, how) => chooseHere(parts, { ...values, ...changed } as Record<string, string | undefined>, how),
  };
}

type Orders<Row> = Readonly<Record<string, (row: Row) => string | number>>;

/** Sorts a list that the page has as a whole. In the address, a minus sign before the order means descending. */
export function useSort<Row>(orders: Orders<Row>) {
  const { values, choose } = useFilters('sort');
  const { sort: given = '' } = values;
  const isDescending = given.startsWith('-');
  const order = isDescending ? given.slice(1) : given;
  const keyOf = Object.hasOwn(orders, order) ? orders[order] : undefined;
  return {
    sort: keyOf && { order, isDescending },
    onSort: (sort: Sort) => choose({ sort: `${sort.isDescending ? '-' : ''}${sort.order}` }),
    sorted: (rows: readonly Row[]): readonly Row[] => {
      if (!keyOf) return rows;
      const factor = isDescending ? -1 : 1;
      return [...rows].sort((a, b) => factor * compare(keyOf(a), keyOf(b)));
    },
  };
}

function compare(a: string | number, b: string | number): number {
  return typeof a === 'string' ? a.localeCompare(String(b), undefined, { numeric: true }) : a - Number(b);
}

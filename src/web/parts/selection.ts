/** The selected rows of a table. */
import { useRef, useState } from 'preact/hooks';

export interface Selection {
  has(key: string): boolean;
  /** @param isRange whether to select all rows between the last selected row and this row */
  toggle(key: string, isRange: boolean): void;
  /** Selects or deselects all rows; undefined if the table has no check box for all rows. */
  toggleAll?: () => void;
  isAll?: boolean;
  allLabel?: string;
  /** Name of a row for screen readers. By default, its key. */
  nameOf?: (key: string) => string;
}

export interface RowSelection extends Selection {
  chosen: ReadonlySet<string>;
  /** Selects these rows, and deselects all others. */
  choose(keys: readonly string[]): void;
  clear(): void;
}

/**
 * Keeps a selection of the rows with these keys.
 * @param keys keys of the rows in the order in which the table shows them
 */
export function useRowSelection(keys: readonly string[]): RowSelection {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const last = useRef<string | undefined>(undefined);
  const isAll = keys.length > 0 && keys.every((key) => chosen.has(key));
  const toggle = (key: string, isRange: boolean) => {
    const from = isRange && last.current !== undefined ? keys.indexOf(last.current) : -1;
    const next = new Set(chosen);
    if (from >= 0) for (const each of itemsBetween(keys, from, keys.indexOf(key))) next.add(each);
    else if (!next.delete(key)) next.add(key);
    last.current = key;
    setChosen(next);
  };
  return {
    chosen,
    has: (key) => chosen.has(key),
    toggle,
    isAll,
    toggleAll: () => {
      const next = new Set(chosen);
      for (const key of keys) isAll ? next.delete(key) : next.add(key);
      setChosen(next);
    },
    choose: (all) => setChosen(new Set(all)),
    clear: () => setChosen(new Set()),
  };
}

/** Returns the items from one index to another index, in either direction, with both ends. */
export function itemsBetween<Item>(items: readonly Item[], from: number, to: number): readonly Item[] {
  return items.slice(Math.min(from, to), Math.max(from, to) + 1);
}

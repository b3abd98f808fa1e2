/** Connects the check boxes of the table with the selection. The check box of a folder selects all files below it. */
import { useMemo, useRef } from 'preact/hooks';
import { keysBetween, type Selection } from '../../parts/selection';
import { nameOfPath, type Place } from './address';
import type { FileRow, Rows } from './rows';
import type { FileSet } from './select-all';
import type { FileSelection, Selected } from './selection';

interface TableSelectionInput {
  place: Place;
  rows: Rows;
  selection: FileSelection | undefined;
  /** All files of the search or the folder. */
  matching: FileSet;
  start(sets: readonly FileSet[]): Promise<void>;
}

export function useTableSelection(input: TableSelectionInput): Selection | undefined {
  const { place, rows, selection, matching, start } = input;
  const last = useRef<string | undefined>(undefined);
  const byPath = useMemo(() => new Map(rows.rows.map((row) => [row.path, row])), [rows.rows]);
  const below = useMemo(() => countBelow(selection?.files, place.folder), [selection?.files, place.folder]);
  if (!selection) return undefined;
  const has = (key: string): boolean => {
    const row = byPath.get(key);
    return row?.kind === 'folder' ? isFolderSelected(row, below) : selection.files.has(key);
  };
  const select = (chosen: readonly FileRow[]) => {
    selection.add(chosen.flatMap((row) => (row.kind === 'file' ? [[row.path, Number(row.file.size)] as const] : [])));
    const folders = chosen.flatMap((row) => (row.kind === 'folder' ? setOfFolder(row) : []));
    if (folders.length > 0) start(folders);
  };
  const toggle = (key: string, isRange: boolean) => {
    const row = byPath.get(key);
    if (!row) return;
    const keys = isRange && last.current !== undefined && byPath.has(last.current) ? [...byPath.keys()] : undefined;
    const from = last.current;
    last.current = key;
    if (keys && from !== undefined) {
      const range = keysBetween(keys, keys.indexOf(from), keys.indexOf(key));
      return select(range.flatMap((each) => byPath.get(each) ?? []));
    }
    if (!has(key)) return select([row]);
    selection.remove(row.kind === 'file' ? [key] : pathsBelow(selection.files, key));
  };
  const isAll = rows.isWhole && rows.rows.length > 0 && rows.rows.every(({ path }) => has(path));
  return {
    has,
    toggle,
    nameOf: nameOfPath,
    isAll,
    allLabel: 'Select all files of the list',
    toggleAll: () => {
      if (!isAll) start([matching]);
      else
        selection.remove(
          rows.rows.flatMap(({ kind, path }) => (kind === 'file' ? [path] : pathsBelow(selection.files, path))),
        );
    },
  };
}

const setOfFolder = ({ path, entry }: FileRow & { kind: 'folder' }): FileSet => ({
  name: `the files in ${path}`,
  variables: { directory: path },
  count: entry.fileCount !== null && !entry.isEstimated ? entry.fileCount : undefined,
  pattern: `${path}/`,
});

/** Returns the number of selected files in each folder directly below a folder. */
function countBelow(files: Selected | undefined, folder: string): Map<string, number> {
  const counts = new Map<string, number>();
  const prefix = `${folder}/`;
  for (const path of files?.keys() ?? []) {
    if (!path.startsWith(prefix)) continue;
    const end = path.indexOf('/', prefix.length);
    if (end < 0) continue;
    const child = path.slice(0, end);
    counts.set(child, (counts.get(child) ?? 0) + 1);
  }
  return counts;
}

/** Returns whether all files of a folder are selected. If their number is an estimate, some selected files suffice. */
function isFolderSelected({ path, entry }: FileRow & { kind: 'folder' }, below: ReadonlyMap<string, number>): boolean {
  const selected = below.get(path) ?? 0;
  return selected > 0 && (entry.isEstimated || selected >= (entry.fileCount ?? 0));
}

const pathsBelow = (files: Selected, folder: string): string[] =>
  [...files.keys()].filter((path) => path.startsWith(`${folder}/`));

/** Connects the check boxes of the table with the selection. The check box of a folder selects all files below it. */
import { useMemo, useRef } from 'preact/hooks';
import { itemsBetween, type Selection } from '../../parts/selection';
import { nameOfPath, type Place } from './address';
import type { FileRow, Rows } from './rows';
import type { FileSet } from './select-all';
import type { FileSelection, Selected } from './selection';

type FolderRow = FileRow & { kind: 'folder' };

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
  const folders = useMemo(() => readFolders(rows.rows), [rows.rows]);
  const below = useMemo(() => countBelow(selection?.files, place.folder), [selection?.files, place.folder]);
  if (!selection) return undefined;
  const has = (key: string): boolean => {
    const folder = folders.get(key);
    return folder ? isFolderSelected(folder, below) : selection.files.has(key);
  };
  const select = (chosen: readonly FileRow[]) => {
    selection.add(chosen.flatMap((row) => (row.kind === 'file' ? [[row.path, Number(row.file.size)] as const] : [])));
    const sets = chosen.flatMap((row) => (row.kind === 'folder' ? setOfFolder(row) : []));
    if (sets.length > 0) start(sets);
  };
  const toggle = (key: string, isRange: boolean) => {
    const paths = rows.rows.map(({ path }) => path);
    const row = rows.rows[paths.indexOf(key)];
    if (!row) return;
    const from = isRange && last.current !== undefined ? paths.indexOf(last.current) : -1;
    last.current = key;
    if (from >= 0) return select(itemsBetween(rows.rows, from, paths.indexOf(key)));
    if (!has(key)) return select([row]);
    selection.remove(row.kind === 'file' ? [key] : pathsBelow(selection.files, key));
  };
  const isAll = rows.isWhole && rows.rows.length > 0 && rows.rows.every(({ path }) => has(path));
  return {
    has,
    toggle,
    nameOf: nameOfPath,
    isAll,
    allLabel: 'Select all files in the list',
    toggleAll: () => {
      if (!isAll) start([matching]);
      else
        selection.remove(
          rows.rows.flatMap(({ kind, path }) => (kind === 'file' ? [path] : pathsBelow(selection.files, path))),
        );
    },
  };
}

/** Returns the folders of a list by path. The folders come before the files. */
function readFolders(rows: readonly FileRow[]): Map<string, FolderRow> {
  const folders = new Map<string, FolderRow>();
  for (const row of rows) {
    if (row.kind === 'file') break;
    folders.set(row.path, row);
  }
  return folders;
}

const setOfFolder = ({ path, entry }: FolderRow): FileSet => ({
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
function isFolderSelected({ path, entry }: FolderRow, below: ReadonlyMap<string, number>): boolean {
  const selected = below.get(path) ?? 0;
  return selected > 0 && (entry.isEstimated || selected >= (entry.fileCount ?? 0));
}

const pathsBelow = (files: Selected, folder: string): string[] =>
  [...files.keys()].filter((path) => path.startsWith(`${folder}/`));

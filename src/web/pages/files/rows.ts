/** Loads the rows of the file browser page by page while the user scrolls. */
import type { AnyVariables, CombinedError } from '@urql/core';
import { useClient } from '@urql/preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import {
  type BrowsedFileFragment,
  BrowsedFilesDocument,
  SubdirectoriesDocument,
  type SubdirectoriesQuery,
  type TypedDocumentString,
} from '../../../generated/operations.js';
import { folderOf, isSearch, orderOf, type Place, searchOf } from './address';

type Directory = NonNullable<NonNullable<SubdirectoriesQuery['directory']>['entries']>['edges'][number]['node'];

export type FileRow =
  | { kind: 'folder'; path: string; entry: Directory }
  | { kind: 'file'; path: string; file: BrowsedFileFragment };

export interface Rows {
  rows: readonly FileRow[];
  /** Whether the first rows of the current place are loading. The rows of the previous place stay visible meanwhile. */
  isFirst: boolean;
  /** Whether all rows are loaded. */
  isWhole: boolean;
  error: CombinedError | undefined;
  /** Called with the index of the last rendered row. */
  reach(index: number): void;
  again(): void;
}

/** Number of files on the first page, and on later pages. */
const FIRST = 200;
const LATER = 500;
/** Number of folders on a page. The gateway counts the files in each of them. */
const FOLDERS = 200;
/** Number of loaded rows below the window at which the next page is requested. */
const AHEAD = 1500;

interface Page {
  rows: FileRow[];
  next: Step | undefined;
}

/** The next page to load: folders first, then files. */
interface Step {
  kind: 'folders' | 'files';
  after: string | null | undefined;
}

interface Loaded {
  key: string;
  rows: readonly FileRow[];
  next: Step | undefined;
  error: CombinedError | undefined;
}

type Query = <Data, Variables extends AnyVariables>(
  document: TypedDocumentString<Data, Variables>,
  variables: Variables,
) => Promise<Data>;

async function loadFolders(query: Query, place: Place, after: Step['after']): Promise<Page> {
  const data = await query(SubdirectoriesDocument, { path: place.folder || '/', first: FOLDERS, after });
  const entries = data.directory?.entries;
  const rows = (entries?.edges ?? []).map(({ node }) => ({ kind: 'folder' as const, path: node.path, entry: node }));
  const { hasNextPage = false, endCursor } = entries?.pageInfo ?? {};
  return { rows, next: hasNextPage ? { kind: 'folders', after: endCursor } : { kind: 'files', after: undefined } };
}

async function loadFiles(query: Query, place: Place, after: Step['after']): Promise<Page> {
  const chosen = isSearch(place) ? searchOf(place) : folderOf(place);
  const first = after == null ? FIRST : LATER;
  const data = await query(BrowsedFilesDocument, { ...chosen, orderBy: orderOf(place.sort), first, after });
  const rows = (data.list?.edges ?? []).map(({ node }) => ({ kind: 'file' as const, path: node.path, file: node }));
  const { hasNextPage = false, endCursor } = data.list?.pageInfo ?? {};
  return { rows, next: hasNextPage ? { kind: 'files', after: endCursor } : undefined };
}

/** Loads a page. At the start of a folder, loads its folders and files at the same time. */
async function loadStep(query: Query, place: Place, step: Step | undefined): Promise<Page> {
  if (step) return await (step.kind === 'folders' ? loadFolders : loadFiles)(query, place, step.after);
  if (isSearch(place)) return await loadFiles(query, place, undefined);
  const [folders, files] = await Promise.all([
    loadFolders(query, place, undefined),
    loadFiles(query, place, undefined),
  ]);
  if (folders.next?.kind === 'folders') return folders;
  return { rows: [...folders.rows, ...files.rows], next: files.next };
}

/** Returns the rows that the place has loaded so far, and loads more when the user scrolls. */
export function useRows(place: Place): Rows {
  const client = useClient();
  const [round, setRound] = useState(0);
  const key = JSON.stringify([place, round]);
  const [loaded, setLoaded] = useState<Loaded>({ key: '', rows: [], next: undefined, error: undefined });
  const state = useRef({ place, key, loaded, reached: 0, loading: '' });
  Object.assign(state.current, { place, key, loaded });
  const load = useCallback(async () => {
    const { place, key, loaded } = state.current;
    const before = loaded.key === key ? loaded : undefined;
    const task = `${key}${JSON.stringify(before?.next)}`;
    if (state.current.loading === task) return;
    state.current.loading = task;
    const query: Query = async (document, variables) => {
      const { data, error } = await client.query(document.toString(), variables, { requestPolicy: 'network-only' });
      if (error || !data) throw error;
      return data;
    };
    const settle = (result: Pick<Loaded, 'rows' | 'next' | 'error'>) => {
      if (state.current.key !== key) return;
      state.current.loading = '';
      setLoaded({ key, ...result });
    };
    try {
      const { rows, next } = await loadStep(query, place, before?.next);
      settle({ rows: before ? [...before.rows, ...rows] : rows, next, error: undefined });
    } catch (error) {
      settle({ rows: before?.rows ?? [], next: before?.next, error: error as CombinedError });
    }
  }, [client]);
  useEffect(() => {
    state.current.reached = 0;
    load();
  }, [key, load]);
  const loadAhead = useCallback(() => {
    const { key, loaded, reached } = state.current;
    if (loaded.key === key && loaded.next && !loaded.error && reached + AHEAD > loaded.rows.length) load();
  }, [load]);
  useEffect(loadAhead, [loaded, loadAhead]);
  const reach = useCallback(
    (index: number) => {
      state.current.reached = index;
      loadAhead();
    },
    [loadAhead],
  );
  const isFirst = loaded.key !== key;
  return {
    rows: loaded.rows,
    isFirst,
    isWhole: !isFirst && loaded.next === undefined,
    error: isFirst ? undefined : loaded.error,
    reach,
    again: () => setRound((before) => before + 1),
  };
}

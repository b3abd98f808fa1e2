/**
 * The selected files, which stay selected while the user browses. The tab's storage keeps them during a reload. While
 * the selection is small, the address contains it too, so that a link shows it to another user.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { linkTo, parseRoute, replaceRoute } from '../../route';
import { isSignedIn, readSignOutReason, watchSession } from '../../sign-in/session';
import { readLink, writeLink } from './selection-link';

/** Maximum number of selected files. A request for more files names a pattern. */
export const MAX_SELECTED = 100_000;

/** A selected file: its path and its size; undefined while the size is unknown. */
export type Selected = ReadonlyMap<string, number | undefined>;

/** Maximum number of files in the tab's storage, which takes about 5 MB. A larger selection ends with a reload. */
const MAX_STORED = 20_000;

interface Stored {
  user: string;
  files: Selected;
}

const KEY = 'tapegate.selection';

/** The selection of this tab, which survives that the view is removed. */
let current: Stored | undefined;

/** Selections that this tab has written to the address. Another one comes from a link. */
const written = new Set<string>();

// forget the selection when the user signs out, but not when a token has expired, because the same user may sign in again
watchSession(() => {
  if (isSignedIn() || readSignOutReason() !== undefined) return;
  current = undefined;
  sessionStorage.removeItem(KEY);
  const { parts, search } = parseRoute(location.hash);
  if (!search.has('sel')) return;
  search.delete('sel');
  replaceRoute(linkTo(parts, Object.fromEntries(search)));
});

function readStored(user: string): Selected {
  if (current?.user === user) return current.files;
  try {
    const { user: owner, files } = JSON.parse(sessionStorage.getItem(KEY) ?? '{}');
    return new Map(owner === user ? (files as [string, number | undefined][]) : []);
  } catch {
    return new Map();
  }
}

function store(user: string, files: Selected): void {
  current = { user, files };
  try {
    if (files.size === 0 || files.size > MAX_STORED) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify({ user, files: [...files] }));
  } catch {
    sessionStorage.removeItem(KEY); // the storage is full, so the selection ends with a reload
  }
}

export interface FileSelection {
  files: Selected;
  bytes: number;
  add(files: Iterable<readonly [path: string, size: number | undefined]>): void;
  remove(paths: Iterable<string>): void;
  clear(): void;
  /** Text for the address; undefined if the selection is empty or too large. */
  link: string | undefined;
}

/** @param linked the text in the address, if the address has one */
export function useFileSelection(user: string, linked: string | null): FileSelection {
  const [files, setFiles] = useState<Selected>(() => readStored(user));
  const latest = useRef(files);
  const change = useCallback(
    (edit: (next: Map<string, number | undefined>) => void) => {
      const next = new Map(latest.current);
      edit(next);
      latest.current = next;
      store(user, next);
      setFiles(next);
    },
    [user],
  );
  useEffect(() => {
    if (!linked || written.has(linked)) return;
    written.add(linked);
    const paths = readLink(linked);
    if (paths.length === latest.current.size && paths.every((path) => latest.current.has(path))) return;
    const known = latest.current;
    change((next) => {
      next.clear();
      for (const path of paths) next.set(path, known.get(path));
    });
  }, [linked, change]);
  const [link, bytes] = useSummary(files);
  if (link !== undefined) written.add(link);
  return {
    files,
    bytes,
    link,
    add: useCallback(
      (added) =>
        change((next) => {
          for (const [path, size] of added) if (next.size < MAX_SELECTED || next.has(path)) next.set(path, size);
        }),
      [change],
    ),
    remove: useCallback(
      (paths) =>
        change((next) => {
          for (const path of paths) next.delete(path);
        }),
      [change],
    ),
    clear: useCallback(() => change((next) => next.clear()), [change]),
  };
}

function useSummary(files: Selected): [link: string | undefined, bytes: number] {
  const known = useRef<{ files: Selected; link: string | undefined; bytes: number } | undefined>(undefined);
  if (known.current?.files !== files) {
    let bytes = 0;
    for (const size of files.values()) bytes += size ?? 0;
    known.current = { files, link: writeLink(files.keys(), files.size), bytes };
  }
  return [known.current.link, known.current.bytes];
}

/**
 * Divides a list into pages with cursors. Each page is a step in the browser's history, which stores the cursors of
 * earlier pages.
 */
import { useEffect, useState } from 'preact/hooks';

export interface Paging {
  /** Cursor before the first row of the page; undefined on the first page. */
  after: string | undefined;
  next(endCursor: string | null): void;
  back(): void;
  /** Shows the first page again. Called when the list's filters change. */
  restart(): void;
  isFirst: boolean;
}

const readCursors = (): string[] => history.state?.cursors ?? [];

/** Returns the state of a list's paging, and functions to change the state. */
export function usePaging(): Paging {
  const [cursors, setCursors] = useState(readCursors);
  useEffect(() => {
    const follow = () => setCursors(readCursors());
    addEventListener('popstate', follow);
    return () => removeEventListener('popstate', follow);
  }, []);
  return {
    after: cursors.at(-1),
    next: (endCursor) => {
      const next = [...cursors, endCursor ?? ''];
      history.pushState({ cursors: next }, '');
      setCursors(next);
    },
    back: () => history.back(),
    restart: () => {
      if (cursors.length > 0) history.replaceState(null, '');
      setCursors([]);
    },
    isFirst: cursors.length === 0,
  };
}

interface PagesProps {
  paging: Paging;
  info: { hasNextPage: boolean; endCursor: string | null } | undefined;
  names?: [back: string, on: string];
}

export function Pages({ paging, info, names: [back, on] = ['Previous page', 'Next page'] }: PagesProps) {
  if (paging.isFirst && !info?.hasNextPage) return null;
  return (
    <div class="pages">
      <button type="button" class="button" disabled={paging.isFirst} onClick={paging.back}>
        {back}
      </button>
      <button
        type="button"
        class="button"
        disabled={!info?.hasNextPage}
        onClick={() => paging.next(info?.endCursor ?? null)}
      >
        {on}
      </button>
    </div>
  );
}

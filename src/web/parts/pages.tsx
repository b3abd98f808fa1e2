/** Pages of a list by cursors. Each is a step in the browser's history, which keeps the cursors of the pages before it. */
import { useEffect, useState } from 'preact/hooks';

export interface Places {
  /** The cursor after which the page begins; undefined: the first one. */
  after: string | undefined;
  goOn(endCursor: string | null): void;
  goBack(): void;
  /** Of another list. */
  restart(): void;
  isFirst: boolean;
}

const readCursors = (): string[] => history.state?.cursors ?? [];

/** For one list of a view. */
export function usePlaces(): Places {
  const [cursors, setCursors] = useState(readCursors);
  useEffect(() => {
    const follow = () => setCursors(readCursors());
    addEventListener('popstate', follow);
    return () => removeEventListener('popstate', follow);
  }, []);
  return {
    after: cursors.at(-1),
    goOn: (endCursor) => {
      const next = [...cursors, endCursor ?? ''];
      history.pushState({ cursors: next }, '');
      setCursors(next);
    },
    goBack: () => history.back(),
    restart: () => {
      if (cursors.length > 0) history.replaceState(null, '');
      setCursors([]);
    },
    isFirst: cursors.length === 0,
  };
}

interface PagesProps {
  places: Places;
  info: { hasNextPage: boolean; endCursor: string | null } | undefined;
  names?: [back: string, on: string];
}

export function Pages({ places, info, names: [back, on] = ['Page before', 'Next page'] }: PagesProps) {
  if (places.isFirst && !info?.hasNextPage) return null;
  return (
    <div class="pages">
      <button type="button" disabled={places.isFirst} onClick={places.goBack}>
        {back}
      </button>
      <button type="button" disabled={!info?.hasNextPage} onClick={() => places.goOn(info?.endCursor ?? null)}>
        {on}
      </button>
    </div>
  );
}

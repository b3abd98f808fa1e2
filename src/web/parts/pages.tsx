/** Pages of a list by cursors: one goes on from the end of what is shown, and back the way one came. */
import { useState } from 'preact/hooks';

export interface Places {
  /** The cursor after which the page begins; undefined: the first one. */
  after: string | undefined;
  goOn(endCursor: string | null): void;
  goBack(): void;
  /** Of another list. */
  restart(): void;
  isFirst: boolean;
}

export function usePlaces(): Places {
  const [cursors, setCursors] = useState<string[]>([]);
  return {
    after: cursors.at(-1),
    goOn: (endCursor) => setCursors([...cursors, endCursor ?? '']),
    goBack: () => setCursors(cursors.slice(0, -1)),
    restart: () => setCursors([]),
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

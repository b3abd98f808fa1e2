/**
 * Divides a list into pages with cursors. The address has the cursors of the current page and of the pages before it,
 * so that a link shows the same page, and each page is a step in the browser's history.
 */
import { replaceRoute, useRoute } from '../route';
import { Button } from './button';

export interface Paging {
  /** Cursor before the first row of the page; undefined on the first page. */
  after: string | undefined;
  next(endCursor: string | null): void;
  back(): void;
  /** Shows the first page again. Called when the list's filters change. */
  restart(): void;
  isFirst: boolean;
}

const NAME = 'after';

/** Returns the address of the current view with other cursors. */
function addressWith(cursors: readonly string[]): string {
  const [path, search] = location.hash.split('?', 2);
  const chosen = new URLSearchParams(search);
  chosen.delete(NAME);
  for (const cursor of cursors) chosen.append(NAME, cursor);
  const text = chosen.toString();
  return `${path || '#/'}${text && `?${text}`}`;
}

/** Returns the state of a list's paging, and functions to change the state. */
export function usePaging(): Paging {
  const cursors = useRoute().search.getAll(NAME);
  return {
    after: cursors.at(-1),
    next: (endCursor) => {
      location.hash = addressWith([...cursors, endCursor ?? '']);
    },
    back: () => {
      location.hash = addressWith(cursors.slice(0, -1));
    },
    restart: () => {
      if (cursors.length > 0) replaceRoute(addressWith([]));
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
      <Button disabledReason={paging.isFirst ? 'This is the first page.' : undefined} onClick={paging.back}>
        {back}
      </Button>
      <Button
        disabledReason={info?.hasNextPage ? undefined : 'This is the last page.'}
        onClick={() => paging.next(info?.endCursor ?? null)}
      >
        {on}
      </Button>
    </div>
  );
}

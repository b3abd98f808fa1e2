/**
 * A table of many rows that renders only the rows in the window. The rows scroll with the page. Rows above and below
 * the window are empty space of the same height.
 */
import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { TableHead, type TableProps, TableRow } from './table';

interface VirtualTableProps<Row> extends TableProps<Row> {
  rows: readonly Row[];
  /** Called with the index of the last rendered row, so that the view can load more rows. */
  onReach?: (index: number) => void;
}

/** Rows to render above and below the window. */
const OVERSCAN = 20;

export function VirtualTable<Row>({ rows, onReach, ...props }: VirtualTableProps<Row>) {
  const { label, columns, keyOf, isStacked, selection, at = -1 } = props;
  const table = useRef<HTMLTableElement>(null);
  const [place, setPlace] = useState({ top: 0, rowHeight: 25 });
  const virtualizer = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => place.rowHeight,
    scrollMargin: place.top,
    overscan: OVERSCAN,
  });
  useLayoutEffect(() => {
    // do not measure while the user scrolls, because each measurement makes the browser compute the layout
    if (!table.current || virtualizer.isScrolling) return;
    const top = table.current.getBoundingClientRect().top + scrollY;
    const rowHeight = table.current.querySelector('tbody tr:not(.space)')?.getBoundingClientRect().height;
    setPlace((before) => {
      const next = { top: Math.round(top), rowHeight: rowHeight ?? before.rowHeight };
      return next.top === before.top && Math.abs(next.rowHeight - before.rowHeight) < 1 ? before : next;
    });
  });
  useEffect(() => virtualizer.measure(), [virtualizer, place.rowHeight]);
  useEffect(() => {
    if (at >= 0) virtualizer.scrollToIndex(at);
  }, [virtualizer, at]);
  const shown = virtualizer.getVirtualItems();
  const [first, last] = [shown[0], shown.at(-1)];
  const lastIndex = last?.index ?? 0;
  useEffect(() => onReach?.(lastIndex), [onReach, lastIndex]);
  const width = columns.length + (selection ? 1 : 0);
  return (
    <table ref={table} class={`virtual${isStacked ? ' stacked' : ''}`} aria-label={label} aria-rowcount={rows.length}>
      <TableHead {...props} />
      <tbody>
        <Space height={(first?.start ?? place.top) - place.top} width={width} />
        {shown.map(({ index }) => {
          const row = rows[index];
          return (
            row && <TableRow key={keyOf(row)} {...{ columns, keyOf, selection }} row={row} isCurrent={index === at} />
          );
        })}
        <Space height={virtualizer.getTotalSize() - ((last?.end ?? place.top) - place.top)} width={width} />
      </tbody>
    </table>
  );
}

function Space({ height, width }: { height: number; width: number }) {
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: the row is empty and cannot have the focus
    <tr class="space" aria-hidden="true">
      <td colSpan={width} style={{ height: `${Math.max(0, height)}px` }} />
    </tr>
  );
}

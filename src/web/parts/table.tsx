/** Tables with optional sort buttons, check boxes and a current row for the keyboard. */

import type { ComponentChildren } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useRef } from 'preact/hooks';
import { ArrowDown, ArrowUp } from './icons';
import type { Selection } from './selection';

export interface Column<Row> {
  title: string;
  cell(row: Row): ComponentChildren;
  isNumber?: boolean;
  /** Whether the column contains the row headers. By default, the first column does. */
  isName?: boolean;
  /** Name of the sort order by this column; undefined if the table cannot be sorted by it. */
  order?: string;
  /** Whether the title is only for screen readers. */
  isUntitled?: boolean;
}

export interface Sort {
  order: string;
  isDescending: boolean;
}

export interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  keyOf(row: Row): string;
  /** Whether the table shows each row as a block on a narrow screen. */
  isStacked?: boolean;
  sort?: Sort | undefined;
  onSort?: ((sort: Sort) => void) | undefined;
  selection?: Selection | undefined;
  /** Index of the current row (`useRowCursor`). */
  at?: number;
}

export function Table<Row>({ rows, ...props }: TableProps<Row> & { rows: readonly Row[] }) {
  const { label, columns, isStacked, keyOf, selection, at } = props;
  if (rows.length === 0) return <p>None</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without a tab index, keyboard users cannot scroll the table
    <section class="wide" aria-label={label} tabIndex={0}>
      <table class={isStacked ? 'stacked' : undefined}>
        <TableHead {...props} />
        <tbody>
          {rows.map((row, index) => (
            <TableRow key={keyOf(row)} {...{ columns, keyOf, selection }} row={row} isCurrent={index === at} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function TableHead<Row>({ columns, sort, onSort, selection }: TableProps<Row>) {
  return (
    <thead>
      <tr>
        {selection && (
          <th scope="col" class="choice">
            {selection.toggleAll && <AllBox selection={selection} toggleAll={selection.toggleAll} />}
          </th>
        )}
        {columns.map((column) => (
          <HeadCell key={column.title} column={column} sort={sort} onSort={onSort} />
        ))}
      </tr>
    </thead>
  );
}

function AllBox({ selection: { isAll = false, allLabel }, toggleAll }: { selection: Selection; toggleAll(): void }) {
  return <input type="checkbox" aria-label={allLabel ?? 'Select all rows'} checked={isAll} onChange={toggleAll} />;
}

interface HeadCellProps<Row> extends Pick<TableProps<Row>, 'sort' | 'onSort'> {
  column: Column<Row>;
}

function HeadCell<Row>({ column: { title, isNumber, order, isUntitled }, sort, onSort }: HeadCellProps<Row>) {
  const isSorted = order !== undefined && sort?.order === order;
  const shown = isUntitled ? <span class="unseen">{title}</span> : title;
  const Arrow = sort?.isDescending ? ArrowDown : ArrowUp;
  return (
    <th
      scope="col"
      class={isNumber ? 'number' : undefined}
      aria-sort={isSorted ? (sort?.isDescending ? 'descending' : 'ascending') : undefined}
    >
      {order !== undefined && onSort ? (
        <button
          type="button"
          class="sort"
          onClick={() => onSort({ order, isDescending: isSorted && !sort?.isDescending })}
        >
          {shown}
          {isSorted && <Arrow class="icon" size={14} aria-hidden="true" />}
        </button>
      ) : (
        shown
      )}
    </th>
  );
}

interface TableRowProps<Row> extends Pick<TableProps<Row>, 'columns' | 'keyOf' | 'selection'> {
  row: Row;
  isCurrent: boolean;
}

function RenderedRow<Row>({ columns, keyOf, selection, row, isCurrent }: TableRowProps<Row>) {
  const line = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    if (isCurrent) line.current?.focus();
  }, [isCurrent]);
  const key = keyOf(row);
  const name = columns.find(({ isName }) => isName) ?? columns[0];
  const isSelected = selection?.has(key) ?? false;
  return (
    <tr ref={line} tabIndex={isCurrent ? -1 : undefined} class={isSelected ? 'selected' : undefined}>
      {selection && <ChoiceCell selection={selection} rowKey={key} isSelected={isSelected} />}
      {columns.map((column) =>
        column === name ? (
          <th key={column.title} scope="row">
            {column.cell(row)}
          </th>
        ) : (
          <td key={column.title} class={column.isNumber ? 'number' : undefined}>
            {column.cell(row)}
          </td>
        ),
      )}
    </tr>
  );
}

/** A row of a table. It is rendered again only if its row, the columns or the selection are other objects than before. */
export const TableRow = memo(RenderedRow) as typeof RenderedRow;

function ChoiceCell({ selection, rowKey, isSelected }: { selection: Selection; rowKey: string; isSelected: boolean }) {
  return (
    <td class="choice">
      <input
        type="checkbox"
        aria-label={`Select ${selection.nameOf?.(rowKey) ?? rowKey}`}
        checked={isSelected}
        onClick={(event) => selection.toggle(rowKey, event.shiftKey)}
      />
    </td>
  );
}

/** Shows a table of rows. The column with `isName` contains the row headers; by default, the first column does. */
import type { ComponentChildren } from 'preact';

export interface Column<Row> {
  title: string;
  cell(row: Row): ComponentChildren;
  isNumber?: boolean;
  isName?: boolean;
}

export function Table<Row>({
  label,
  columns,
  rows,
  keyOf,
  isStacked = false,
}: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  /** Whether the table shows each row as a block on a narrow screen. */
  isStacked?: boolean;
}) {
  const name = columns.find(({ isName }) => isName) ?? columns[0];
  if (rows.length === 0) return <p>None</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without a tab index, keyboard users cannot scroll the table
    <section class="wide" aria-label={label} tabIndex={0}>
      <table class={isStacked ? 'stacked' : undefined}>
        <thead>
          <tr>
            {columns.map(({ title, isNumber }) => (
              <th key={title} scope="col" class={isNumber ? 'number' : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
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
          ))}
        </tbody>
      </table>
    </section>
  );
}

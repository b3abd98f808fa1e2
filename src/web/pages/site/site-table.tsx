/** A table of the site's views. On a narrow screen, each row is a block, and each cell has its column's title. */
import { useMemo } from 'preact/hooks';
import { type Column, Table, type TableProps } from '../../parts/table';

export function SiteTable<Row>({ columns, ...props }: TableProps<Row> & { rows: readonly Row[] }) {
  const titled = useMemo(() => columns.map((column, index) => withTitle(column, index)), [columns]);
  return <Table {...props} columns={titled} isStacked />;
}

function withTitle<Row>(column: Column<Row>, index: number): Column<Row> {
  if (column.isName || column.isUntitled || index === 0) return column;
  return {
    ...column,
    cell: (row) => {
      const content = column.cell(row);
      if (content === '' || content == null) return '';
      return (
        <>
          <span class="cell-title">{column.title} </span>
          {content}
        </>
      );
    },
  };
}

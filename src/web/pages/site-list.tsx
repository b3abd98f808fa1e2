/** What the views of the site's lists have in common: a title, a table of a page, and the pages. */
import type { ComponentChildren } from 'preact';
import type { Look } from '../look';
import { Pages, type Places } from '../parts/pages';
import { Problem } from '../parts/problem';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';

export const PAGE = 50;

interface Connection<Node> {
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
  edges: readonly { node: Node }[];
}

interface SiteListProps<Data, Node> {
  title: string;
  look: Look<Data>;
  places: Places;
  list(data: Data): Connection<Node>;
  columns: readonly Column<Node>[];
  keyOf(node: Node): string;
  children?: ComponentChildren;
}

export function SiteList<Data, Node>({
  title,
  look,
  places,
  list,
  columns,
  keyOf,
  children,
}: SiteListProps<Data, Node>) {
  const { data, error, again } = look;
  const shown = data && list(data);
  return (
    <>
      <Title text={title} />
      {children}
      {error && <Problem error={error} again={again} />}
      {!shown && !error && <p>…</p>}
      {shown && <Table label={title} columns={columns} rows={shown.edges.map(({ node }) => node)} keyOf={keyOf} />}
      <Pages places={places} info={shown?.pageInfo} />
    </>
  );
}

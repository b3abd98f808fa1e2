/** Common parts of the site's list views: title, table and paging. */
import type { TypedDocumentNode } from '@urql/core';
import type { ComponentChildren } from 'preact';
import type { SitePart } from '../../generated/web-operations';
import { useSiteQuery } from '../live-site';
import { Pages, type Paging, usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import type { ViewQuery } from '../view-query';

export const PAGE = 50;

interface Connection<Node> {
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
  edges: readonly { node: Node }[];
}

interface SiteListProps<Data, Node> {
  title: string;
  look: ViewQuery<Data>;
  paging: Paging;
  /** Returns the list in the gateway's response; null if the response does not contain the list. */
  list(data: Data): Connection<Node> | null;
  columns: readonly Column<Node>[];
  keyOf(node: Node): string;
  children?: ComponentChildren;
}

export function SiteList<Data, Node>({
  title,
  look,
  paging,
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
      <Pages paging={paging} info={shown?.pageInfo} />
    </>
  );
}

interface SitePage<Data, Node> extends Pick<SiteListProps<Data, Node>, 'title' | 'list' | 'columns' | 'keyOf'> {
  document: TypedDocumentNode<Data, { first: number; after?: string | null | undefined }>;
  /** Parts of the site that the list shows. The list reloads when one of these parts changes. */
  parts: SitePart[];
}

/** Returns a list view without filters. */
export function createSitePage<Data, Node>({ document, parts, ...props }: SitePage<Data, Node>) {
  return function Page() {
    const paging = usePaging();
    const look = useSiteQuery(document, { first: PAGE, after: paging.after }, ...parts);
    return <SiteList {...props} look={look} paging={paging} />;
  };
}

/** What the views of the site's lists have in common: a title, a table of a page, and the pages. */
import type { TypedDocumentNode } from '@urql/core';
import type { ComponentChildren } from 'preact';
import type { SitePart } from '../../generated/web-operations';
import { useSiteLook } from '../live-site';
import type { Look } from '../look';
import { Pages, type Places, usePlaces } from '../parts/pages';
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

interface SitePage<Data, Node> extends Pick<SiteListProps<Data, Node>, 'title' | 'list' | 'columns' | 'keyOf'> {
  document: TypedDocumentNode<Data, { first: number; after?: string | null | undefined }>;
  /** Changes of these parts reload the list. */
  parts: SitePart[];
}

/** Returns the view of a list without filters. */
export function createSitePage<Data, Node>({ document, parts, ...props }: SitePage<Data, Node>) {
  return function Page() {
    const places = usePlaces();
    const look = useSiteLook(document, { first: PAGE, after: places.after }, ...parts);
    return <SiteList {...props} look={look} places={places} />;
  };
}

/** Common parts of the site's list views: title, table and paging. */
import type { ComponentChildren } from 'preact';
import type { Page } from '../../../clients/typescript/responses.js';
import type { SitePart, TypedDocumentString } from '../../generated/operations.js';
import { useSiteQuery } from '../live-site';
import { Pages, type Paging, usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import type { ViewQuery } from '../view-query';

export const PAGE = 50;

interface List<Node> {
  list: Page<Node> | null;
}

interface SiteListProps<Node> {
  title: string;
  look: ViewQuery<List<Node>>;
  paging: Paging;
  columns: readonly Column<Node>[];
  keyOf(node: Node): string;
  children?: ComponentChildren;
}

export function SiteList<Node>({ title, look, paging, columns, keyOf, children }: SiteListProps<Node>) {
  const { data, error, again } = look;
  const shown = data?.list;
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

interface SitePage<Node> extends Pick<SiteListProps<Node>, 'title' | 'columns' | 'keyOf'> {
  document: TypedDocumentString<List<Node>, { first?: number | null; after?: string | null | undefined }>;
  /** Parts of the site that the list shows. The list reloads when one of these parts changes. */
  parts: SitePart[];
}

/** Returns a list view without filters. */
export function createSitePage<Node>({ document, parts, ...props }: SitePage<Node>) {
  return function Page() {
    const paging = usePaging();
    const look = useSiteQuery(document, { first: PAGE, after: paging.after }, ...parts);
    return <SiteList {...props} look={look} paging={paging} />;
  };
}

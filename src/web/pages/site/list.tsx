/** Common parts of the site's list views: title, table and paging. */

import type { ComponentChildren } from 'preact';
import type { Page } from '../../../../clients/typescript/responses.js';
import type { SitePart, TypedDocumentString } from '../../../generated/operations.js';
import { Empty } from '../../parts/empty';
import { CircleCheck, type IconType } from '../../parts/icons';
import { Pages, type Paging, usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import type { Column } from '../../parts/table';
import { Tally } from '../../parts/tabs';
import { Title } from '../../parts/title';
import type { ViewQuery } from '../../view-query';
import { useLiveQuery } from './live';
import { SiteTable } from './site-table';

export const PAGE = 50;

interface List<Node> {
  list: (Page<Node> & { totalCount?: number | null }) | null;
}

interface RowsProps<Node> {
  label: string;
  look: ViewQuery<List<Node>>;
  paging: Paging;
  columns: readonly Column<Node>[];
  keyOf(node: Node): string;
  /** Title and icon that are shown instead of an empty list. */
  none?: [title: string, icon?: IconType];
}

/** A page of a list, without a title. */
export function Rows<Node>({ label, look, paging, columns, keyOf, none = ['None'] }: RowsProps<Node>) {
  const { data, error, again } = look;
  const shown = data?.list;
  const rows = shown?.edges.map(({ node }) => node);
  return (
    <>
      {error && <Problem error={error} again={again} />}
      {!shown && !error && <Skeleton />}
      {rows &&
        (rows.length > 0 ? (
          <SiteTable label={label} columns={columns} rows={rows} keyOf={keyOf} />
        ) : (
          <Empty title={none[0]} icon={none[1] ?? CircleCheck} />
        ))}
      <Pages paging={paging} info={shown?.pageInfo} />
    </>
  );
}

interface SiteListProps<Node> extends Omit<RowsProps<Node>, 'label'> {
  title: string;
  children?: ComponentChildren;
}

export function SiteList<Node>({ title, children, ...props }: SiteListProps<Node>) {
  const total = props.look.data?.list?.totalCount;
  return (
    <>
      <Title text={title}>{total != null && <Tally count={total} />}</Title>
      {children}
      <Rows label={title} {...props} />
    </>
  );
}

interface SitePage<Node> extends Pick<SiteListProps<Node>, 'title' | 'columns' | 'keyOf' | 'none'> {
  document: TypedDocumentString<List<Node>, { first?: number | null; after?: string | null | undefined }>;
  /** Parts of the site that the list shows. The list reloads when one of these parts changes. */
  parts: SitePart[];
}

/** Returns a list view without filters. */
export function createSitePage<Node>({ document, parts, ...props }: SitePage<Node>) {
  return function Page() {
    const paging = usePaging();
    const look = useLiveQuery(document, { first: PAGE, after: paging.after }, ...parts);
    return <SiteList {...props} look={look} paging={paging} />;
  };
}

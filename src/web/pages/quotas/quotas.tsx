/** Lists the quotas that the user is allowed to use or see, and how much of each quota is used. */

import { QuotaListDocument, type QuotaListQuery } from '../../../generated/operations.js';
import { formatBytes, share } from '../../format';
import { useRequestChanges } from '../../live-site';
import { Empty } from '../../parts/empty';
import { PieChart } from '../../parts/icons';
import { Pages, usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { type Column, Table } from '../../parts/table';
import { Title } from '../../parts/title';
import { linkTo } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { useViewQuery } from '../../view-query';
import { QuotaPage } from './quota';
import { freeOf, Labelled, QuotaBar } from './quota-parts';
import './quotas.css';

const PAGE = 100;

export function QuotasPage({ user }: { user: string | undefined }) {
  const { quotas } = useCaller();
  const shown = user ?? (quotas.length === 1 ? quotas[0]?.user : undefined);
  return shown === undefined ? <QuotaList /> : <QuotaPage key={shown} user={shown} hasOthers={quotas.length > 1} />;
}

function QuotaList() {
  const paging = usePaging();
  const { data, error, again } = useViewQuery(QuotaListDocument, { first: PAGE, after: paging.after });
  useRequestChanges(again);
  const rows = data?.list?.edges.map(({ node }) => node);
  return (
    <div class="quotas-view">
      <Title text="Quotas" />
      {error && <Problem error={error} again={again} />}
      {rows && rows.length > 0 && (
        <Table label="Quotas" columns={columns} rows={rows} keyOf={({ user }) => user} isStacked />
      )}
      {rows?.length === 0 && (
        <Empty icon={PieChart} title="No quotas.">
          <p>You cannot request files without a quota. Ask an operator for one.</p>
        </Empty>
      )}
      {!rows && !error && <Skeleton />}
      <Pages paging={paging} info={data?.list?.pageInfo} />
    </div>
  );
}

type ListedQuota = NonNullable<QuotaListQuery['list']>['edges'][number]['node'];

const columns: Column<ListedQuota>[] = [
  {
    title: 'Quota',
    isName: true,
    cell: ({ user }) => (
      <a href={linkTo(['quotas', user])}>
        <bdi>{user}</bdi>
      </a>
    ),
  },
  {
    title: 'Use',
    cell: ({ user, used, size }) => (
      <span class="quota-use">
        <QuotaBar user={user} used={used} size={size} />
        <span>{Math.floor(share(used, size) * 100)}%</span>
      </span>
    ),
  },
  { title: 'Used', isNumber: true, cell: ({ used }) => <Labelled text={formatBytes(used)} after=" used" /> },
  { title: 'Size', isNumber: true, cell: ({ size }) => <Labelled before="of " text={formatBytes(size)} /> },
  { title: 'Free', isNumber: true, cell: (quota) => <Labelled text={formatBytes(freeOf(quota))} after=" free" /> },
];

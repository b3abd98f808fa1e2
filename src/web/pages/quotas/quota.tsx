/** Shows how a quota is used: over time, by which requests and callers, and when it will have more room. */
import { useMemo } from 'preact/hooks';
import { type QuotaRequestFragment, QuotaUseDocument, type QuotaUseQuery } from '../../../generated/operations.js';
import { count, formatBytes, formatTime } from '../../format';
import { useRequestChanges } from '../../live-site';
import { Badge } from '../../parts/badge';
import { Breadcrumb } from '../../parts/breadcrumb';
import { Curve } from '../../parts/curve';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { RequestStateName } from '../../parts/state';
import { type Column, Table } from '../../parts/table';
import { Title } from '../../parts/title';
import { linkTo } from '../../route';
import { useViewQuery } from '../../view-query';
import { freeOf, Labelled, QuotaBar } from './quota-parts';

type Quota = NonNullable<QuotaUseQuery['quota']>;

const DAYS = 30;
const DAY_MS = 86_400_000;
/** Number of requests in each list. */
const LISTED = 8;

/** @param props.hasOthers whether the user is allowed to see other quotas */
export function QuotaPage({ user, hasOthers }: { user: string; hasOthers: boolean }) {
  const since = useMemo(() => new Date(Date.now() - DAYS * DAY_MS).toISOString(), []);
  const { data, error, again } = useViewQuery(QuotaUseDocument, { user, since, first: LISTED });
  useRequestChanges(again);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <Skeleton />;
  const { quota } = data;
  if (!quota) {
    return (
      <>
        <Title text={`Quota ${JSON.stringify(user)} does not exist, or you are not allowed to see it.`} />
        <p>
          <a href="#/quotas">All quotas</a>
        </p>
      </>
    );
  }
  const [largest, expiring] = [data.largest, data.expiring].map((list) => list?.edges.map(({ node }) => node) ?? []);
  return (
    <div class="quotas-view">
      {hasOthers && (
        <Breadcrumb label="Quotas" parents={[{ text: 'Quotas', href: linkTo(['quotas']) }]} current={quota.user} />
      )}
      <Title text={`Quota of ${quota.user}`}>
        {quota.suspension && (
          <Badge tone="bad">
            {quota.suspension.mode === 'DRAINING' ? 'Draining' : 'Suspended'}: {quota.suspension.reason}
          </Badge>
        )}
      </Title>
      <Room quota={quota} />
      <div class="quota-parts">
        <div>
          <UseOverTime quota={quota} since={since} />
          <QuotaUsers quota={quota} />
          <Members quota={quota} />
        </div>
        <div>
          <Requests title="Expires next" rows={expiring ?? []} columns={expiringColumns(quota, expiring ?? [])} />
          <Requests title="Largest requests" rows={largest ?? []} columns={largestColumns} />
        </div>
      </div>
    </div>
  );
}

function Room({ quota }: { quota: Quota }) {
  const { user, size, used, email } = quota;
  return (
    <>
      <QuotaBar {...quota} />
      <p class="facts">
        <strong>
          {formatBytes(used)} of {formatBytes(size)} used
        </strong>
        , {formatBytes(freeOf(quota))} free · <a href={linkTo(['requests'], { quota: user })}>Requests of this quota</a>
        {email && (
          <>
            {' '}
            · email to <bdi>{email}</bdi>
          </>
        )}
      </p>
    </>
  );
}

function UseOverTime({ quota, since }: { quota: Quota; since: string }) {
  const { user, history } = quota;
  return (
    <section>
      <h2>Use over time</h2>
      <Curve
        title={`Used in the last ${DAYS} days`}
        points={history.map(({ at, used }) => ({ at, value: Number(used) }))}
        from={Date.parse(since)}
        until={Date.parse(history.at(-1)?.at ?? since)}
        isStepped
        format={formatBytes}
      />
      <details>
        <summary>Show as a table</summary>
        <Table
          label={`Usage of quota ${user}`}
          columns={pointColumns}
          rows={[...history].reverse()}
          keyOf={({ at }) => at}
        />
      </details>
    </section>
  );
}

const pointColumns: Column<Quota['history'][number]>[] = [
  { title: 'Since', cell: ({ at }) => formatTime(at) },
  { title: 'Used', isNumber: true, cell: ({ used }) => formatBytes(used) },
];

interface RequestsProps {
  title: string;
  rows: readonly QuotaRequestFragment[];
  columns: readonly Column<QuotaRequestFragment>[];
}

function Requests({ title, rows, columns }: RequestsProps) {
  return (
    <section>
      <h2>{title}</h2>
      {rows.length === 0 ? (
        <p class="hint">
          No live requests. <a href="#/files">Search for files</a> to request them.
        </p>
      ) : (
        <Table
          label={title}
          columns={[nameColumn, ...columns]}
          rows={rows}
          keyOf={({ requestId }) => String(requestId)}
          isStacked
        />
      )}
    </section>
  );
}

const nameColumn: Column<QuotaRequestFragment> = {
  title: 'Request',
  isName: true,
  cell: ({ requestId, label, pattern }) => (
    <a href={linkTo(['requests', requestId])}>
      {requestId} <bdi>{label || pattern || 'a list of files'}</bdi>
    </a>
  ),
};

const largestColumns: Column<QuotaRequestFragment>[] = [
  { title: 'State', cell: (request) => <RequestStateName request={request} /> },
  { title: 'Files', isNumber: true, cell: ({ filesTotal }) => count(filesTotal, 'file') },
  { title: 'Size', isNumber: true, cell: ({ bytesTotal }) => formatBytes(bytesTotal) },
];

/** @param rows the requests in the order in which they expire */
function expiringColumns(quota: Quota, rows: readonly QuotaRequestFragment[]): Column<QuotaRequestFragment>[] {
  const free = new Map<number, bigint>();
  let used = quota.used;
  for (const { requestId, bytesTotal } of rows) {
    used -= bytesTotal;
    free.set(requestId, freeOf({ used, size: quota.size }));
  }
  return [
    { title: 'Expires', cell: ({ retention }) => <Moment at={retention} /> },
    {
      title: 'Frees',
      isNumber: true,
      cell: ({ bytesTotal }) => <Labelled before="frees " text={formatBytes(bytesTotal)} />,
    },
    {
      title: 'Free then',
      isNumber: true,
      cell: ({ requestId }) => <Labelled text={formatBytes(free.get(requestId) ?? 0n)} after=" free then" />,
    },
  ];
}

function QuotaUsers({ quota: { users } }: { quota: Quota }) {
  return (
    <section>
      <h2>Largest users</h2>
      {users.length === 0 ? (
        <p class="hint">No live requests use the quota.</p>
      ) : (
        <Table label="Largest users" columns={userColumns} rows={users} keyOf={({ name }) => name ?? ''} isStacked />
      )}
    </section>
  );
}

const userColumns: Column<Quota['users'][number]>[] = [
  { title: 'User', isName: true, cell: ({ name }) => (name === null ? 'without a name' : <bdi>{name}</bdi>) },
  { title: 'Requests', isNumber: true, cell: ({ requestCount }) => count(requestCount, 'request') },
  { title: 'Files', isNumber: true, cell: ({ fileCount }) => count(fileCount, 'file') },
  { title: 'Size', isNumber: true, cell: ({ bytes }) => formatBytes(bytes) },
];

function Members({ quota: { user, members } }: { quota: Quota }) {
  const rows = members.edges.map(({ node }) => node);
  return (
    <section>
      <h2>Members</h2>
      {rows.length === 0 ? (
        <p class="hint">
          Only <bdi>{user}</bdi> uses this quota.
        </p>
      ) : (
        <Table
          label="Members"
          columns={memberColumns}
          rows={rows}
          keyOf={({ kind, name }) => `${kind} ${name}`}
          isStacked
        />
      )}
      {members.pageInfo.hasNextPage && <p class="hint">The first {count(rows.length, 'member')} are shown.</p>}
    </section>
  );
}

const memberColumns: Column<Quota['members']['edges'][number]['node']>[] = [
  { title: 'Member', isName: true, cell: ({ name }) => <bdi>{name}</bdi> },
  { title: 'Kind', cell: ({ kind }) => (kind === 'GROUP' ? 'group' : 'user') },
  { title: 'Rights', cell: ({ isManager }) => (isManager ? 'manages the quota' : 'uses the quota') },
];

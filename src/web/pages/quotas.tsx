/** Shows the quotas that the user is allowed to use or see, and how much of each quota is used. */
import { useMemo } from 'preact/hooks';
import { QuotaHistoryDocument, type QuotaHistoryQuery } from '../../generated/operations.js';
import { formatBytes, formatTime, share } from '../format';
import { Bar } from '../parts/bar';
import { Curve } from '../parts/curve';
import { Problem } from '../parts/problem';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import { linkTo } from '../route';
import { useCaller } from '../sign-in/caller';
import { useViewQuery } from '../view-query';

export function QuotasPage({ user }: { user: string | undefined }) {
  const { quotas } = useCaller();
  const shown = user ?? (quotas.length === 1 ? quotas[0]?.user : undefined);
  if (shown !== undefined) return <OneQuota user={shown} />;
  return (
    <>
      <Title text="Quotas" />
      <ul class="cards">
        {quotas.map((quota) => (
          <li key={quota.user}>
            <a href={linkTo(['quotas', quota.user])}>
              <bdi>{quota.user}</bdi>
            </a>
            <Room {...quota} />
          </li>
        ))}
      </ul>
    </>
  );
}

type QuotaPoint = NonNullable<QuotaHistoryQuery['quota']>['history'][number];

const DAYS = 30;
const DAY_MS = 86_400_000;

function OneQuota({ user }: { user: string }) {
  const since = useMemo(() => new Date(Date.now() - DAYS * DAY_MS).toISOString(), []);
  const { data, error, again } = useViewQuery(QuotaHistoryDocument, { user, since });
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <p>…</p>;
  const { quota } = data;
  if (!quota) return <Title text={`Quota ${JSON.stringify(user)} does not exist, or you are not allowed to see it.`} />;
  return (
    <>
      <Title text={`Quota of ${quota.user}`} />
      <Room {...quota} />
      <p>
        <a href={linkTo(['requests'], { quota: quota.user })}>Requests of this quota</a>
      </p>
      <Curve
        title={`Used in the last ${DAYS} days`}
        points={quota.history.map(({ at, used }) => ({ at, value: Number(used) }))}
        from={Date.parse(since)}
        until={Date.parse(quota.history.at(-1)?.at ?? since)}
        isStepped
        format={formatBytes}
      />
      <details>
        <summary>Show as a table</summary>
        <Table
          label={`Usage of quota ${quota.user}`}
          columns={pointColumns}
          rows={[...quota.history].reverse()}
          keyOf={({ at }) => at}
        />
      </details>
    </>
  );
}

const pointColumns: Column<QuotaPoint>[] = [
  { title: 'Since', cell: ({ at }) => formatTime(at) },
  { title: 'Used', isNumber: true, cell: ({ used }) => formatBytes(used) },
];

function Room({ user, size, used }: { user: string; size: bigint; used: bigint }) {
  const taken = share(used, size);
  return (
    <>
      <Bar value={taken} kind={taken > 0.9 ? 'full' : 'done'} label={`Quota used by ${user}`} />
      <p class="facts">
        {formatBytes(used)} of {formatBytes(size)} used
      </p>
    </>
  );
}

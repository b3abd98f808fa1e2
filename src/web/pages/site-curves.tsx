/** Two views of the site: charts of its activity, and a list of its running processes. */
import { useMemo, useState } from 'preact/hooks';
import {
  HistoryDocument,
  type HistoryQuery,
  ProcessesDocument,
  type ProcessesQuery,
} from '../../generated/operations.js';
import { formatBytes, formatNumber } from '../format';
import { useSiteQuery } from '../live-site';
import { Curve } from '../parts/curve';
import { Moment } from '../parts/moment';
import { Problem } from '../parts/problem';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';

type Point = NonNullable<HistoryQuery['history']>[number];

const rate = (perSecond: number) => `${formatBytes(Math.round(perSecond))}/s`;
const minutes = (seconds: number) => `${formatNumber(Math.round(seconds / 60))} min`;

const curves: { title: string; value(point: Point): number | null; format(value: number): string }[] = [
  { title: 'Bytes restored', value: (point) => Number(point.bytesRestored) / point.seconds, format: rate },
  { title: 'Files restored', value: ({ filesRestored }) => filesRestored, format: formatNumber },
  { title: 'Files waiting', value: ({ filesWaiting }) => filesWaiting, format: formatNumber },
  { title: 'Longest wait', value: ({ oldestSeconds }) => oldestSeconds, format: minutes },
  { title: 'Drives in use', value: ({ drivesInUse }) => drivesInUse, format: (value) => value.toFixed(1) },
  { title: 'Files failed', value: ({ filesFailed }) => filesFailed, format: formatNumber },
];

const HOUR_MS = 3_600_000;
const spans = { '6': '6 hours', '24': '24 hours', '168': '7 days', '2160': '90 days' } as const;

export function CurvesPage() {
  const [hours, setHours] = useState('24');
  const since = useMemo(() => new Date(Date.now() - Number(hours) * HOUR_MS).toISOString(), [hours]);
  const { data, error, again } = useSiteQuery(HistoryDocument, { since }, 'HISTORY');
  const points = data?.history ?? [];
  const last = points.at(-1);
  const until = last ? Date.parse(last.at) + last.seconds * 1000 : Date.now();
  return (
    <>
      <Title text="Charts" />
      <div class="tools">
        <label>
          Period
          <select value={hours} onChange={(event) => setHours(event.currentTarget.value)}>
            {Object.entries(spans).map(([value, title]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </label>
      </div>
      {error && <Problem error={error} again={again} />}
      {curves.map(({ title, value, format }) => (
        <Curve
          key={title}
          {...{ title, format, until }}
          from={Date.parse(since)}
          points={points.map((point) => ({ at: point.at, value: value(point) }))}
        />
      ))}
      <details>
        <summary>Show as a table</summary>
        <Table label="Chart data" columns={pointColumns} rows={[...points].reverse()} keyOf={({ at }) => at} />
      </details>
    </>
  );
}

const pointColumns: Column<Point>[] = [
  { title: 'From', cell: ({ at }) => <Moment at={at} isFull /> },
  ...curves.map(({ title, value, format }) => ({
    title,
    isNumber: true,
    cell: (point: Point) => {
      const known = value(point);
      return known === null ? 'unknown' : format(known);
    },
  })),
];

const processColumns: Column<NonNullable<ProcessesQuery['processes']>[number]>[] = [
  { title: 'Process', cell: ({ kind, host, pid }) => `${kind.toLowerCase()} on ${host} (${pid})` },
  {
    title: 'State',
    cell: ({ isAlive }) => (
      <span class={`state ${isAlive ? 'completed' : 'failed'}`}>{isAlive ? 'Alive' : 'Silent'}</span>
    ),
  },
  { title: 'Version', cell: ({ version }) => version },
  { title: 'Started', cell: ({ startedAt }) => <Moment at={startedAt} isFull side="past" /> },
  { title: 'Last seen', cell: ({ seenAt }) => <Moment at={seenAt} side="past" /> },
  { title: 'Lag', isNumber: true, cell: ({ lagSeconds }) => `${lagSeconds.toFixed(1)} s` },
];

export function ProcessesPage() {
  const { data, error, again } = useSiteQuery(ProcessesDocument, {}, 'PROCESSES');
  return (
    <>
      <Title text="Gateways and engines" />
      {error && <Problem error={error} again={again} />}
      {data?.processes && (
        <Table
          label="Gateways and engines"
          columns={processColumns}
          rows={data.processes}
          keyOf={({ kind, host, pid, startedAt }) => `${kind} ${host} ${pid} ${startedAt}`}
        />
      )}
    </>
  );
}

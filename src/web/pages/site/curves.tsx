/** Shows charts of the site's activity. The address has the period. */
import { useMemo } from 'preact/hooks';
import { HistoryDocument, type HistoryQuery } from '../../../generated/operations.js';
import { formatNumber } from '../../format';
import { Curve } from '../../parts/curve';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import type { Column } from '../../parts/table';
import { Title } from '../../parts/title';
import { formatDuration, formatRate } from './durations';
import { useFilters } from './filters';
import { useLiveQuery } from './live';
import { SiteTable } from './site-table';

type Point = NonNullable<HistoryQuery['history']>[number];

const curves: { title: string; value(point: Point): number | null; format(value: number): string }[] = [
  { title: 'Bytes restored', value: (point) => Number(point.bytesRestored) / point.seconds, format: formatRate },
  { title: 'Files restored', value: ({ filesRestored }) => filesRestored, format: formatNumber },
  { title: 'Files waiting', value: ({ filesWaiting }) => filesWaiting, format: formatNumber },
  { title: 'Longest wait', value: ({ oldestSeconds }) => oldestSeconds, format: formatDuration },
  { title: 'Drives in use', value: ({ drivesInUse }) => drivesInUse, format: (value) => value.toFixed(1) },
  { title: 'Files failed', value: ({ filesFailed }) => filesFailed, format: formatNumber },
];

const HOUR_MS = 3_600_000;
const spans = { '6': '6 hours', '24': '24 hours', '168': '7 days', '2160': '90 days' } as const;
const DEFAULT_HOURS = '24';

export function CurvesPage() {
  const { values, choose } = useFilters('hours');
  const hours = Object.hasOwn(spans, values.hours ?? '') ? (values.hours ?? DEFAULT_HOURS) : DEFAULT_HOURS;
  const since = useMemo(() => new Date(Date.now() - Number(hours) * HOUR_MS).toISOString(), [hours]);
  const { data, error, again } = useLiveQuery(HistoryDocument, { since }, 'HISTORY');
  const points = data?.history ?? [];
  const last = points.at(-1);
  const until = last ? Date.parse(last.at) + last.seconds * 1000 : Date.now();
  return (
    <>
      <Title
        text="Charts"
        actions={
          <label class="inline">
            Period
            <select
              value={hours}
              onChange={({ currentTarget: { value } }) =>
                choose({ hours: value === DEFAULT_HOURS ? undefined : value })
              }
            >
              {Object.entries(spans).map(([value, title]) => (
                <option key={value} value={value}>
                  {title}
                </option>
              ))}
            </select>
          </label>
        }
      />
      {error && <Problem error={error} again={again} />}
      <div class="charts">
        {curves.map(({ title, value, format }) => (
          <Curve
            key={title}
            {...{ title, format, until }}
            from={Date.parse(since)}
            points={points.map((point) => ({ at: point.at, value: value(point) }))}
          />
        ))}
      </div>
      <details>
        <summary>Show as a table</summary>
        <SiteTable label="Chart data" columns={pointColumns} rows={[...points].reverse()} keyOf={({ at }) => at} />
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

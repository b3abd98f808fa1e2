/** Shows what the drives are doing, and the planned order of the volumes. */

import { DrivesAndQueueDocument, type DrivesAndQueueQuery } from '../../../generated/operations.js';
import { count, formatBytes } from '../../format';
import { Empty } from '../../parts/empty';
import { FlaskConical, Inbox } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Pages, usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import type { Column } from '../../parts/table';
import { Title } from '../../parts/title';
import { type Drive, DriveState, describeReading, describeStop, stateOf, VolumeLink } from './drive-state';
import { formatRate } from './durations';
import { useSort } from './filters';
import { PAGE } from './list';
import { useLiveQuery } from './live';
import { Cut, ServiceMenu } from './service';
import { simulateWithout } from './simulation';
import { SiteTable } from './site-table';

type Plan = NonNullable<DrivesAndQueueQuery['plan']>;
type Planned = Plan['queue']['edges'][number]['node'];

export function PlanPage() {
  const paging = usePaging();
  const variables = { first: PAGE, after: paging.after };
  const { data, error, again } = useLiveQuery(
    DrivesAndQueueDocument,
    variables,
    'DRIVES',
    'QUEUE',
    'SUSPENSIONS',
    'LIBRARIES',
  );
  const { sorted, ...sort } = useSort<Drive>(orders);
  const plan = data?.plan;
  return (
    <>
      <Title
        text="Drives and queue"
        actions={
          <a class="button" href="#/what-if">
            <FlaskConical class="icon" size={16} aria-hidden="true" />
            What if …
          </a>
        }
      />
      {error && <Problem error={error} again={again} />}
      {!plan && !error && <Skeleton />}
      {plan && (
        <>
          <p role="status" class="facts">
            {count(plan.filesWaiting, 'file')} waiting, {formatBytes(plan.bytesWaiting)}, on{' '}
            {count(plan.queue.totalCount, 'volume')}
          </p>
          <h2>Drives</h2>
          <SiteTable
            label="Drives"
            columns={driveColumns}
            rows={sorted(plan.drives)}
            keyOf={({ name }) => name}
            {...sort}
          />
          <h2>Queue by volume</h2>
          {plan.queue.totalCount > 0 ? (
            <Queue at={plan.at} volumes={plan.queue.edges.map(({ node }) => node)} />
          ) : (
            <Empty icon={Inbox} title="No files are waiting for a drive" />
          )}
          <Pages paging={paging} info={plan.queue.pageInfo} />
        </>
      )}
    </>
  );
}

const orders = {
  name: ({ name }: Drive) => name,
  library: ({ libraryName }: Drive) => libraryName,
  state: stateOf,
  files: ({ filesRunning }: Drive) => filesRunning,
  rate: ({ bytesPerSecond }: Drive) => bytesPerSecond ?? 0,
};

const driveColumns: Column<Drive>[] = [
  { title: 'Drive', order: 'name', cell: ({ name }) => name },
  { title: 'Library', order: 'library', cell: ({ libraryName }) => libraryName },
  { title: 'State', order: 'state', cell: (drive) => <DriveState drive={drive} /> },
  { title: 'Volume', cell: ({ volumeName }) => (volumeName === null ? '' : <VolumeLink name={volumeName} />) },
  { title: 'Activity', order: 'files', cell: (drive) => <Cut text={describeReading(drive) || describeStop(drive)} /> },
  {
    title: 'Rate',
    order: 'rate',
    isNumber: true,
    cell: ({ bytesPerSecond: rate, filesRunning }) => (rate && filesRunning > 0 ? formatRate(rate) : ''),
  },
  { title: 'Engine', cell: ({ host, isClaimed }) => host ?? (isClaimed ? 'unknown' : 'none') },
  {
    title: 'Actions',
    isUntitled: true,
    isNumber: true,
    cell: (drive) => <DriveMenu drive={drive} />,
  },
];

export function DriveMenu({ drive: { name, suspension } }: { drive: Drive }) {
  const own = suspension?.kind === 'DRIVE' ? suspension : null;
  return <ServiceMenu kind="DRIVE" name={name} suspension={own} more={[simulateWithout('DRIVE', name)]} />;
}

/** Shows the planned time of each volume as a bar. All bars have the same time scale. */
function Queue({ at, volumes }: { at: string; volumes: readonly Planned[] }) {
  const begin = Date.parse(at);
  const end = Math.max(begin + 1000, ...volumes.map((volume) => (volume.endsAt ? Date.parse(volume.endsAt) : begin)));
  const percent = (time: string) => Math.max(0, (100 * (Date.parse(time) - begin)) / (end - begin));
  const columns: Column<Planned>[] = [
    { title: '#', isNumber: true, cell: ({ queuePosition }) => queuePosition ?? '' },
    { title: 'Volume', isName: true, cell: ({ volumeName }) => <VolumeLink name={volumeName} /> },
    {
      title: 'Planned',
      cell: ({ startsAt, endsAt, problem, reason }) =>
        startsAt && endsAt ? (
          <span class="planned">
            <svg class="span" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
              <rect x={percent(startsAt)} width={Math.max(1, percent(endsAt) - percent(startsAt))} height="8" />
            </svg>
            <span>
              starts <Moment at={startsAt} side="ahead" />, ends <Moment at={endsAt} side="ahead" />
            </span>
          </span>
        ) : (
          (problem ?? reason ?? 'no drive available')
        ),
    },
    {
      title: 'Drive',
      cell: ({ driveName, isMounted }) => (driveName ? `${driveName}${isMounted ? ', mounted' : ''}` : 'none'),
    },
    { title: 'Files', isNumber: true, cell: ({ fileCount }) => fileCount },
    { title: 'Bytes', isNumber: true, cell: ({ bytes }) => formatBytes(bytes) },
    { title: 'Why', cell: ({ startsAt, problem, reason }) => startsAt && <Cut text={problem ?? reason ?? ''} /> },
  ];
  return <SiteTable label="Queue by volume" columns={columns} rows={volumes} keyOf={({ volumeName }) => volumeName} />;
}

/** Shows what the drives are doing, and the planned order of the volumes. */
import { DrivesAndQueueDocument, type DrivesAndQueueQuery } from '../../generated/operations.js';
import { count, formatBytes } from '../format';
import { useSiteQuery } from '../live-site';
import { Moment } from '../parts/moment';
import { Pages, usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { Service } from '../parts/service';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import { PAGE } from './site-list';

type Plan = NonNullable<DrivesAndQueueQuery['plan']>;
type Drive = Plan['drives'][number] & { suspension: Suspension };
type Suspension = NonNullable<DrivesAndQueueQuery['drives']>['edges'][number]['node']['suspension'];
type Planned = Plan['queue']['edges'][number]['node'];

export function PlanPage() {
  const paging = usePaging();
  const variables = { first: PAGE, after: paging.after };
  const { data, error, again } = useSiteQuery(
    DrivesAndQueueDocument,
    variables,
    'DRIVES',
    'QUEUE',
    'SUSPENSIONS',
    'LIBRARIES',
  );
  const plan = data?.plan;
  return (
    <>
      <Title text="Drives and queue" />
      {error && <Problem error={error} again={again} />}
      {plan && (
        <>
          <p role="status">
            {count(plan.filesWaiting, 'file')} waiting, {formatBytes(plan.bytesWaiting)}
          </p>
          <h2>Drives</h2>
          <Table
            label="Drives"
            columns={driveColumns}
            rows={withService(plan, data.drives)}
            keyOf={({ name }) => name}
          />
          <h2>Queue by volume</h2>
          <Timeline at={plan.at} volumes={plan.queue.edges.map(({ node }) => node)} />
          <Pages paging={paging} info={plan.queue.pageInfo} />
        </>
      )}
    </>
  );
}

function withService(plan: Plan, drives: DrivesAndQueueQuery['drives']): Drive[] {
  const known = new Map(drives?.edges.map(({ node }) => [node.name, node.suspension]));
  return plan.drives.map((drive) => ({ ...drive, suspension: known.get(drive.name) ?? null }));
}

const driveColumns: Column<Drive>[] = [
  { title: 'Drive', cell: ({ name }) => name },
  { title: 'Library', cell: ({ libraryName }) => libraryName },
  { title: 'Status', cell: (drive) => describeStatus(drive) },
  { title: 'Active files', isNumber: true, cell: ({ filesRunning }) => filesRunning },
  { title: 'Active bytes', isNumber: true, cell: ({ bytesRunning }) => formatBytes(bytesRunning) },
  {
    title: 'Rate',
    isNumber: true,
    cell: ({ bytesPerSecond: rate }) => (rate ? `${formatBytes(Math.round(rate))}/s` : ''),
  },
  { title: 'Engine', cell: ({ host, isClaimed }) => host ?? (isClaimed ? 'unknown' : 'none') },
  { title: 'Service', cell: ({ name, suspension }) => <Service kind="DRIVE" name={name} suspension={suspension} /> },
];

function describeStatus({ isOpen, isClaimed, hasLibraryFailed, volumeName: volume }: Drive): string {
  if (volume !== null) return `Reading ${volume}${isOpen ? '' : ', out of service'}`;
  if (!isOpen) return 'Out of service';
  if (hasLibraryFailed) return 'Library failed';
  return isClaimed ? 'Idle' : 'No engine';
}

/** Shows the planned time of each volume as a bar. All bars have the same time scale. */
function Timeline({ at, volumes }: { at: string; volumes: readonly Planned[] }) {
  const begin = Date.parse(at);
  const end = Math.max(begin + 1000, ...volumes.map((volume) => (volume.endsAt ? Date.parse(volume.endsAt) : begin)));
  const percent = (time: string) => Math.max(0, (100 * (Date.parse(time) - begin)) / (end - begin));
  const columns: Column<Planned>[] = [
    { title: 'Volume', cell: ({ volumeName }) => volumeName },
    {
      title: 'Planned',
      cell: ({ startsAt, endsAt }) =>
        startsAt && endsAt ? (
          <>
            <svg class="span" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
              <rect x={percent(startsAt)} width={Math.max(1, percent(endsAt) - percent(startsAt))} height="8" />
            </svg>
            Starts <Moment at={startsAt} side="ahead" />, ends <Moment at={endsAt} side="ahead" />
          </>
        ) : (
          'no drive available'
        ),
    },
    {
      title: 'Drive',
      cell: ({ driveName, isMounted }) => (driveName ? `${driveName}${isMounted ? ', mounted' : ''}` : 'none'),
    },
    { title: 'Files', isNumber: true, cell: ({ fileCount }) => fileCount },
    { title: 'Bytes', isNumber: true, cell: ({ bytes }) => formatBytes(bytes) },
    { title: 'Why', cell: ({ problem, reason }) => problem ?? reason ?? '' },
  ];
  return <Table label="Queue by volume" columns={columns} rows={volumes} keyOf={({ volumeName }) => volumeName} />;
}

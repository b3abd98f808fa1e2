/** Shows one volume: its state, its files, its recalls and their errors, and the changes that operators made to it. */

import type { ComponentChildren } from 'preact';
import {
  AuditDocument,
  type Stage,
  VolumeFiguresDocument,
  VolumeFilesDocument,
  type VolumeFilesQuery,
  VolumePageDocument,
  type VolumePageQuery,
} from '../../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../../format';
import { Badge } from '../../parts/badge';
import { Breadcrumb } from '../../parts/breadcrumb';
import { Empty } from '../../parts/empty';
import { CassetteTape, Files, TriangleAlert } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { Search } from '../../parts/search';
import { Skeleton } from '../../parts/skeleton';
import { StageName } from '../../parts/state';
import type { Column } from '../../parts/table';
import { Tabs } from '../../parts/tabs';
import { Title } from '../../parts/title';
import { linkTo } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { useViewQuery } from '../../view-query';
import { auditColumns, auditKey } from './audit';
import { FailedFileList } from './failed-files';
import { RecallList, VerificationList } from './failures';
import { useFilters } from './filters';
import { PAGE, Rows } from './list';
import { useLiveQuery } from './live';
import { ServiceMenu, ServiceState } from './service';
import { simulateWithout } from './simulation';

type Volume = NonNullable<VolumePageQuery['volume']>;

export function VolumePage({ name }: { name: string }) {
  const { data, error, again } = useLiveQuery(VolumePageDocument, { name }, 'DRIVES', 'QUEUE', 'SUSPENSIONS');
  const volume = data?.volume;
  return (
    <>
      <Breadcrumb label="Parents of the volume" parents={[{ text: 'Volumes', href: '#/volumes' }]} current={name} />
      <Title
        text={`Volume ${name}`}
        actions={
          volume && (
            <>
              {volume.retiredAt ? <Badge tone="quiet">Retired</Badge> : <ServiceState suspension={volume.suspension} />}
              <ServiceMenu
                kind="VOLUME"
                name={name}
                suspension={volume.suspension}
                more={[simulateWithout('VOLUME', name)]}
              />
            </>
          )
        }
      />
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Skeleton />}
      {data && !volume && (
        <Empty icon={CassetteTape} title={`There is no volume ${name}`}>
          <p>
            Names are case-sensitive. See the <a href="#/volumes">list of volumes</a>.
          </p>
        </Empty>
      )}
      {volume && (
        <>
          <Facts name={name} volume={volume} />
          <VolumeTabs
            name={name}
            failedFiles={data.failedFiles?.totalCount ?? 0}
            recallErrors={data.recalls?.totalCount ?? 0}
            verificationErrors={data.verificationFailures?.totalCount ?? 0}
          />
        </>
      )}
    </>
  );
}

function Facts({ name, volume }: { name: string; volume: Volume }) {
  const { data } = useViewQuery(VolumeFiguresDocument, { name });
  const figures = data?.volume;
  const { library, drive, suspension, retiredAt, retiredReason, failureCount, failingSince, problem, nextTryAt } =
    volume;
  return (
    <>
      {failureCount > 0 && (
        <div class="problem">
          <TriangleAlert class="icon" size={16} aria-hidden="true" /> {count(failureCount, 'mount')} in a row failed
          {failingSince && (
            <>
              , the first <Moment at={failingSince} side="past" />
            </>
          )}
          : <bdi>{problem ?? 'unknown error'}</bdi>
          {nextTryAt && (
            <>
              . Next try <Moment at={nextTryAt} side="ahead" />
            </>
          )}
          .
        </div>
      )}
      <dl class="figures">
        <Fact name="Library">{library.name}</Fact>
        <Fact name="Medium">{volume.medium.toLowerCase().replace('_', '-')}</Fact>
        <Fact name="Drive">{drive ? <a href="#/plan">{drive.name}</a> : 'not mounted'}</Fact>
        <Fact name="Files">{figures ? formatNumber(figures.fileCount ?? 0) : '…'}</Fact>
        <Fact name="Bytes">{figures ? formatBytes(figures.bytes ?? 0n) : '…'}</Fact>
        <Fact name="Files waiting">{formatNumber(volume.filesWaiting)}</Fact>
        {suspension && (
          <Fact name="Out of service since">
            <Moment at={suspension.since} isFull side="past" />
          </Fact>
        )}
        {retiredAt && (
          <Fact name="Retired">
            <Moment at={retiredAt} isFull side="past" /> {retiredReason}
          </Fact>
        )}
      </dl>
    </>
  );
}

const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

interface VolumeTabsProps {
  name: string;
  failedFiles: number;
  recallErrors: number;
  verificationErrors: number;
}

function VolumeTabs({ name, failedFiles, recallErrors, verificationErrors }: VolumeTabsProps) {
  const { isOperator } = useCaller();
  const { values, choose } = useFilters('tab');
  const tabs = [
    { value: 'files', title: 'Files', content: () => <VolumeFiles name={name} /> },
    { value: 'queue', title: 'Queue', content: () => <RecallList volume={name} isAll /> },
    { value: 'failed', title: 'Failed files', count: failedFiles, content: () => <FailedFileList volume={name} /> },
    { value: 'errors', title: 'Errors', count: recallErrors, content: () => <RecallList volume={name} /> },
    {
      value: 'verifications',
      title: 'Failed verifications',
      count: verificationErrors,
      content: () => <VerificationList volume={name} />,
    },
    ...(isOperator ? [{ value: 'audit', title: 'Changes', content: () => <VolumeAudit name={name} /> }] : []),
  ];
  const value = tabs.some((tab) => tab.value === values.tab) ? (values.tab ?? 'files') : 'files';
  return (
    <Tabs
      label={`Volume ${name}`}
      value={value}
      onChoose={(tab) => choose({ tab: tab === 'files' ? undefined : tab })}
      tabs={tabs}
    />
  );
}

type File = NonNullable<VolumeFilesQuery['list']>['edges'][number]['node'];

const fileColumns: Column<File>[] = [
  { title: 'Path', cell: ({ path }) => <code>{path}</code> },
  { title: 'Size', isNumber: true, cell: ({ size }) => formatBytes(size) },
  { title: 'Stage', cell: ({ stage }) => <StageName stage={stage} /> },
  { title: 'Position', isNumber: true, cell: ({ position }) => position?.toString() ?? 'unknown' },
  {
    title: 'Second copy',
    cell: ({ copyVolume }) => (copyVolume ? <a href={linkTo(['volumes', copyVolume.name])}>{copyVolume.name}</a> : ''),
  },
  { title: 'Confirmed', cell: ({ verifiedAt }) => (verifiedAt ? <Moment at={verifiedAt} side="past" /> : 'never') },
];

const stages: Readonly<Record<Stage, string>> = {
  ONTAPE: 'On tape',
  RESTORING: 'Restoring',
  RESTORED: 'Restored',
  ONDISK: 'On disk',
  UNVERIFIED: 'Unverified',
};

function VolumeFiles({ name }: { name: string }) {
  const paging = usePaging();
  const { values, choose } = useFilters('match', 'stage');
  const stage = Object.hasOwn(stages, values.stage ?? '') ? (values.stage as Stage) : undefined;
  const variables = { volume: name, match: values.match, stages: stage && [stage], first: PAGE, after: paging.after };
  const look = useLiveQuery(VolumeFilesDocument, variables, 'QUEUE');
  const list = look.data?.list;
  return (
    <>
      <div class="tools">
        <Search
          label="Search paths"
          placeholder="Search paths"
          match={values.match ?? ''}
          onSearch={(match, how) => choose({ match: match || undefined }, how)}
        />
        <label>
          Stage
          <select value={stage ?? ''} onChange={(event) => choose({ stage: event.currentTarget.value || undefined })}>
            <option value="">All stages</option>
            {Object.entries(stages).map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <span class="facts" role="status">
          {list?.totalCount != null && `${list.isCountEstimated ? 'about ' : ''}${count(list.totalCount, 'file')}`}
        </span>
      </div>
      <Rows
        label={`Files on ${name}`}
        {...{ look, paging }}
        columns={fileColumns}
        keyOf={({ path }) => path}
        none={['No file matches', Files]}
      />
    </>
  );
}

function VolumeAudit({ name }: { name: string }) {
  const paging = usePaging();
  const variables = { objectKind: 'VOLUME' as const, object: name, first: PAGE, after: paging.after };
  const look = useLiveQuery(AuditDocument, variables, 'AUDIT');
  return (
    <Rows
      label={`Changes to ${name}`}
      {...{ look, paging }}
      columns={auditColumns}
      keyOf={auditKey}
      none={['No changes to this volume']}
    />
  );
}

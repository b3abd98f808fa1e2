/** Shows volumes, restore disks and libraries. */

import { useState } from 'preact/hooks';
import {
  LibrariesInServiceDocument,
  type LibrariesInServiceQuery,
  RestoreDisksDocument,
  type RestoreDisksQuery,
  VolumesInServiceDocument,
  type VolumesInServiceQuery,
} from '../../../generated/operations.js';
import { count, formatBytes, share } from '../../format';
import { Badge } from '../../parts/badge';
import { Bar } from '../../parts/bar';
import { Button } from '../../parts/button';
import { CassetteTape, Disc, Library } from '../../parts/icons';
import { usePaging } from '../../parts/paging';
import type { Column } from '../../parts/table';
import { linkTo } from '../../route';
import { VolumeLink } from './drive-state';
import { useFilters } from './filters';
import { createSitePage, PAGE, SiteList } from './list';
import { useLiveQuery } from './live';
import { Cut, ServiceMenu, ServiceState, serviceColumns } from './service';
import { simulateWithout } from './simulation';

type Volume = NonNullable<VolumesInServiceQuery['list']>['edges'][number]['node'];

const volumeColumns: Column<Volume>[] = [
  { title: 'Volume', cell: ({ name }) => <VolumeLink name={name} /> },
  { title: 'Library', cell: ({ library }) => library.name },
  { title: 'Medium', cell: ({ medium }) => medium.toLowerCase().replace('_', '-') },
  { title: 'Files waiting', isNumber: true, cell: ({ filesWaiting }) => filesWaiting || '' },
  { title: 'Drive', cell: ({ drive }) => drive?.name ?? '' },
  {
    title: 'Service',
    cell: ({ suspension, retiredAt }) =>
      retiredAt && !suspension ? <Badge tone="quiet">Retired</Badge> : <ServiceState suspension={suspension} />,
  },
  {
    title: 'Problem',
    cell: ({ problem, failureCount }) =>
      failureCount > 0 ? <Cut text={`${count(failureCount, 'failed mount')}: ${problem ?? 'unknown error'}`} /> : '',
  },
  {
    title: 'Actions',
    isUntitled: true,
    isNumber: true,
    cell: ({ name, suspension }) => (
      <ServiceMenu kind="VOLUME" name={name} suspension={suspension} more={[simulateWithout('VOLUME', name)]} />
    ),
  },
];

export function VolumesPage() {
  const paging = usePaging();
  const { values, choose } = useFilters('retired');
  const isAll = values.retired === 'shown';
  const variables = { first: PAGE, after: paging.after, retired: isAll };
  const look = useLiveQuery(VolumesInServiceDocument, variables, 'DRIVES', 'QUEUE', 'SUSPENSIONS');
  return (
    <SiteList
      title="Volumes"
      {...{ look, paging }}
      columns={volumeColumns}
      keyOf={({ name }) => name}
      none={['The catalogue contains no volumes', CassetteTape]}
    >
      <div class="tools">
        <GoToVolume />
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={() => choose({ retired: isAll ? undefined : 'shown' })} />
          Include retired volumes
        </label>
      </div>
    </SiteList>
  );
}

function GoToVolume() {
  const [name, setName] = useState('');
  const go = (event: Event) => {
    event.preventDefault();
    if (name.trim()) location.hash = linkTo(['volumes', name.trim()]);
  };
  return (
    <form class="go" onSubmit={go}>
      <label>
        Volume name
        <input value={name} onInput={(event) => setName(event.currentTarget.value)} spellcheck={false} />
      </label>
      <Button type="submit">Open</Button>
    </form>
  );
}

type RestoreDisk = NonNullable<RestoreDisksQuery['list']>['edges'][number]['node'];

/** Shows how much of a disk is used or reserved. */
export function DiskUsage({ disk: { mountpoint, size, used, reserved } }: { disk: RestoreDisk }) {
  const taken = share(Number(used) + Number(reserved), size);
  return <Bar value={taken} kind={taken > 0.9 ? 'full' : 'done'} label={`Usage of disk ${mountpoint}`} />;
}

const diskColumns: Column<RestoreDisk>[] = [
  { title: 'Disk', cell: ({ mountpoint }) => <code>{mountpoint}</code> },
  {
    title: 'Usage',
    cell: (disk) => (
      <span class="usage">
        <DiskUsage disk={disk} />
        {formatBytes(disk.used)} used and {formatBytes(disk.reserved)} reserved of {formatBytes(disk.size)}
      </span>
    ),
  },
  { title: 'Free on disk', isNumber: true, cell: ({ free }) => (free === null ? 'unknown' : formatBytes(free)) },
  { title: 'Last seen by', cell: ({ hosts }) => hosts?.join(', ') || 'no host' },
  { title: 'Problem', cell: ({ problem }) => <Cut text={problem ?? ''} /> },
  ...serviceColumns<RestoreDisk>('DISK', ({ mountpoint }) => mountpoint),
];

export const DisksPage = createSitePage({
  title: 'Restore disks',
  document: RestoreDisksDocument,
  parts: ['DISKS', 'SUSPENSIONS'],
  columns: diskColumns,
  keyOf: ({ mountpoint }) => mountpoint,
  none: ['No restore disk is registered yet', Disc],
});

type LibraryRow = NonNullable<LibrariesInServiceQuery['list']>['edges'][number]['node'];

const libraryColumns: Column<LibraryRow>[] = [
  { title: 'Library', cell: ({ name }) => name },
  { title: 'Type', cell: ({ type }) => type?.toLowerCase().replace('_', '-') ?? 'unknown' },
  { title: 'Drives', isNumber: true, cell: ({ driveCount }) => driveCount },
  { title: 'Volumes', isNumber: true, cell: ({ volumeCount }) => volumeCount },
  {
    title: 'Stages',
    cell: ({ staging }) =>
      staging ? `${staging.filesRequested} requested, ${staging.filesReady} ready, ${staging.filesKept} kept` : '',
  },
  { title: 'Problem', cell: ({ problem }) => <Cut text={problem ?? ''} /> },
  ...serviceColumns<LibraryRow>(
    'LIBRARY',
    ({ name }) => name,
    ({ name }) => [simulateWithout('LIBRARY', name)],
  ),
];

export const LibrariesPage = createSitePage({
  title: 'Libraries',
  document: LibrariesInServiceDocument,
  parts: ['LIBRARIES', 'SUSPENSIONS'],
  columns: libraryColumns,
  keyOf: ({ name }) => name,
  none: ['There is no library', Library],
});

/** Shows volumes, restore disks and libraries. */
import {
  LibrariesInServiceDocument,
  type LibrariesInServiceQuery,
  RestoreDisksDocument,
  type RestoreDisksQuery,
  VolumesInServiceDocument,
  type VolumesInServiceQuery,
} from '../../generated/operations.js';
import { formatBytes, share } from '../format';
import { Bar } from '../parts/bar';
import { Service } from '../parts/service';
import type { Column } from '../parts/table';
import { createSitePage } from './site-list';

const volumeColumns: Column<NonNullable<VolumesInServiceQuery['list']>['edges'][number]['node']>[] = [
  { title: 'Volume', cell: ({ name }) => name },
  { title: 'Library', cell: ({ library }) => library.name },
  { title: 'Medium', cell: ({ medium }) => medium },
  { title: 'Files waiting', isNumber: true, cell: ({ filesWaiting }) => filesWaiting },
  { title: 'Drive', cell: ({ drive }) => drive?.name ?? '' },
  {
    title: 'Service',
    cell: ({ name, suspension }) => <Service kind="VOLUME" name={name} suspension={suspension} />,
  },
];

export const VolumesPage = createSitePage({
  title: 'Volumes',
  document: VolumesInServiceDocument,
  parts: ['DRIVES', 'QUEUE', 'SUSPENSIONS'],
  columns: volumeColumns,
  keyOf: ({ name }) => name,
});

const diskColumns: Column<NonNullable<RestoreDisksQuery['list']>['edges'][number]['node']>[] = [
  { title: 'Disk', cell: ({ mountpoint }) => <code>{mountpoint}</code> },
  {
    title: 'Usage',
    cell: ({ mountpoint, size, used, reserved }) => {
      const taken = share(Number(used) + Number(reserved), size);
      return (
        <>
          <Bar value={taken} kind={taken > 0.9 ? 'full' : 'done'} label={`Usage of disk ${mountpoint}`} />
          {formatBytes(used)} used and {formatBytes(reserved)} reserved of {formatBytes(size)}
        </>
      );
    },
  },
  { title: 'Free on disk', isNumber: true, cell: ({ free }) => (free === null ? 'unknown' : formatBytes(free)) },
  { title: 'Seen by', cell: ({ hosts }) => hosts?.join(', ') || 'no host' },
  { title: 'Problem', cell: ({ problem }) => problem ?? '' },
  {
    title: 'Service',
    cell: ({ mountpoint, suspension }) => <Service kind="DISK" name={mountpoint} suspension={suspension} />,
  },
];

export const DisksPage = createSitePage({
  title: 'Restore disks',
  document: RestoreDisksDocument,
  parts: ['DISKS', 'SUSPENSIONS'],
  columns: diskColumns,
  keyOf: ({ mountpoint }) => mountpoint,
});

const libraryColumns: Column<NonNullable<LibrariesInServiceQuery['list']>['edges'][number]['node']>[] = [
  { title: 'Library', cell: ({ name }) => name },
  { title: 'Type', cell: ({ type }) => type?.toLowerCase().replace('_', '-') ?? 'unknown' },
  { title: 'Drives', isNumber: true, cell: ({ driveCount }) => driveCount },
  { title: 'Volumes', isNumber: true, cell: ({ volumeCount }) => volumeCount },
  {
    title: 'Stages',
    cell: ({ staging }) =>
      staging ? `${staging.filesRequested} requested, ${staging.filesReady} ready, ${staging.filesKept} kept` : '',
  },
  { title: 'Problem', cell: ({ problem }) => problem ?? '' },
  {
    title: 'Service',
    cell: ({ name, suspension }) => <Service kind="LIBRARY" name={name} suspension={suspension} />,
  },
];

export const LibrariesPage = createSitePage({
  title: 'Libraries',
  document: LibrariesInServiceDocument,
  parts: ['LIBRARIES', 'SUSPENSIONS'],
  columns: libraryColumns,
  keyOf: ({ name }) => name,
});

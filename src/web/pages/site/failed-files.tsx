/** Lists the files that failed permanently, with their requests. */
import { FailedFilesDocument, type FailedFilesQuery } from '../../../generated/operations.js';
import { formatBytes } from '../../format';
import { usePaging } from '../../parts/paging';
import type { Column } from '../../parts/table';
import { linkTo } from '../../route';
import { VolumeLink } from './drive-state';
import { errorClasses } from './error-classes';
import { PAGE, Rows } from './list';
import { useLiveQuery } from './live';
import { Cut } from './service';

type Failed = NonNullable<FailedFilesQuery['list']>['edges'][number]['node'];

const pathColumn: Column<Failed> = { title: 'File', cell: ({ file }) => <code>{file.path}</code> };

const volumeColumn: Column<Failed> = {
  title: 'Volume',
  cell: ({ file }) => (file.volume ? <VolumeLink name={file.volume.name} /> : 'unknown'),
};

const otherColumns: Column<Failed>[] = [
  {
    title: 'Request',
    cell: ({ request }) =>
      request && (
        <>
          <a href={linkTo(['requests', request.requestId], { tab: 'files', state: 'failed' })}>{request.requestId}</a>{' '}
          of <bdi>{request.quota.user}</bdi>
        </>
      ),
  },
  { title: 'Size', isNumber: true, cell: ({ size }) => formatBytes(size) },
  { title: 'Class', cell: ({ errorClass }) => (errorClass ? errorClasses[errorClass] : '') },
  { title: 'Error', cell: ({ error }) => <Cut text={error ?? ''} /> },
];

const columns = [pathColumn, ...otherColumns];
const columnsWithVolume = [pathColumn, volumeColumn, ...otherColumns];

/** Lists failed files, those of the newest requests first. @param volume name of the only volume to show */
export function FailedFileList({ volume }: { volume?: string }) {
  const paging = usePaging();
  const look = useLiveQuery(FailedFilesDocument, { volume, first: PAGE, after: paging.after }, 'QUEUE');
  return (
    <Rows
      label="Failed files"
      {...{ look, paging }}
      columns={volume === undefined ? columnsWithVolume : columns}
      keyOf={({ id }) => String(id)}
      none={['No files have failed']}
    />
  );
}

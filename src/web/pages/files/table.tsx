/** The table of the file browser: folders with their counts and sizes, then files. */

import { useMemo } from 'preact/hooks';
import { count, formatBytes, formatNumber } from '../../format';
import { File, Folder } from '../../parts/icons';
import type { Selection } from '../../parts/selection';
import { StageName } from '../../parts/state';
import type { Column, Sort } from '../../parts/table';
import { VirtualTable } from '../../parts/virtual-table';
import { isSearch, linkToFolder, nameOfPath, type Place } from './address';
import type { FileRow } from './rows';

interface FilesTableProps {
  place: Place;
  rows: readonly FileRow[];
  selection: Selection | undefined;
  at: number;
  onSort(sort: Sort): void;
  onReach(index: number): void;
}

export function FilesTable({ place, rows, selection, at, onSort, onReach }: FilesTableProps) {
  const columns = useMemo(() => columnsOf(place), [place]);
  return (
    <div class={`files-list${selection ? ' with-choice' : ''}`}>
      <VirtualTable
        label="Files"
        columns={columns}
        rows={rows}
        keyOf={keyOf}
        sort={place.sort}
        onSort={onSort}
        selection={selection}
        at={at}
        onReach={onReach}
      />
    </div>
  );
}

const keyOf = ({ path }: FileRow): string => path;

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });

function columnsOf(place: Place): Column<FileRow>[] {
  return [
    { title: 'Name', order: 'PATH', isName: true, cell: (row) => <NameCell row={row} place={place} /> },
    { title: 'Size', order: 'SIZE', isNumber: true, cell: (row) => <SizeCell row={row} /> },
    {
      title: 'Stage',
      order: 'STAGE',
      cell: (row) => (row.kind === 'file' ? <StageName stage={row.file.stage} /> : <FolderCount row={row} />),
    },
    {
      title: 'Modified',
      order: 'MODIFIED',
      cell: (row) =>
        row.kind === 'file' && row.file.modifiedAt ? (
          <time dateTime={row.file.modifiedAt} title={row.file.modifiedAt}>
            {dates.format(new Date(row.file.modifiedAt))}
          </time>
        ) : null,
    },
    { title: 'Volume', order: 'VOLUME', cell: (row) => (row.kind === 'file' ? row.file.volume?.name : null) },
  ];
}

function NameCell({ row, place }: { row: FileRow; place: Place }) {
  const name = nameOfPath(row.path);
  if (row.kind === 'folder') {
    return (
      <a class="file-name" href={linkToFolder(row.path, place)} title={row.path}>
        <Folder class="icon" size={16} aria-hidden="true" />
        <bdi>{name}</bdi>
      </a>
    );
  }
  const start = place.isEverywhere ? 0 : place.folder.length + 1;
  const folder = isSearch(place) ? row.path.slice(start, row.path.length - name.length) : '';
  return (
    <span class="file-name" title={row.path}>
      <File class="icon" size={16} aria-hidden="true" />
      <bdi>
        {folder && <span class="file-folder">{folder}</span>}
        {name}
      </bdi>
    </span>
  );
}

function SizeCell({ row }: { row: FileRow }) {
  if (row.kind === 'file')
    return <span title={`${formatNumber(Number(row.file.size))} B`}>{formatBytes(row.file.size)}</span>;
  const { bytes, isEstimated } = row.entry;
  return bytes === null ? null : `${isEstimated ? '≈ ' : ''}${formatBytes(bytes)}`;
}

function FolderCount({ row }: { row: FileRow & { kind: 'folder' } }) {
  const { fileCount, isEstimated } = row.entry;
  if (fileCount === null) return null;
  const text = count(fileCount, 'file');
  return (
    <span class="folder-count" title={isEstimated ? `about ${text}` : undefined}>
      {isEstimated ? '≈ ' : ''}
      {text}
    </span>
  );
}

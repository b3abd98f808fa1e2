/** The files of a request, failed files first, with a filter, a search and a selection. */

import { useMemo, useRef } from 'preact/hooks';
import { type RequestFileState, ShownFilesDocument } from '../../../generated/operations.js';
import { formatBytes, formatNumber } from '../../format';
import { useRowCursor } from '../../keyboard';
import { Badge, type Tone } from '../../parts/badge';
import { Download } from '../../parts/download';
import { Empty } from '../../parts/empty';
import { FileSearch } from '../../parts/icons';
import { Pages, usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { Search } from '../../parts/search';
import { useRowSelection } from '../../parts/selection';
import { Skeleton } from '../../parts/skeleton';
import { isOver } from '../../parts/state';
import { type Column, Table } from '../../parts/table';
import { chooseHere, linkTo, useRoute } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { FileFailure } from './failure';
import { SelectedFiles } from './selected';
import { countWaiting, type ShownFile, type ShownRequest } from './shown-request';
import { useTabQuery } from './tab-query';

const PAGE = 100;

const names: Record<RequestFileState, string> = {
  FAILED: 'Failed',
  WAITING: 'Waiting',
  ON_DISK: 'On disk',
  RELEASED: 'Released',
};

/** Names of file states in a request that has ended and no longer keeps its files on disk. */
const namesAfterEnd: Record<RequestFileState, string> = { ...names, ON_DISK: 'Was on disk', WAITING: 'Not restored' };

const tones: Record<RequestFileState, Tone> = { FAILED: 'bad', WAITING: 'wait', ON_DISK: 'good', RELEASED: 'quiet' };

const isState = (text: string): text is RequestFileState => Object.hasOwn(names, text);

/** States of the files that follow the failed ones in the list of all files. */
const OTHERS: RequestFileState[] = ['WAITING', 'ON_DISK'];

interface RequestFilesProps {
  request: ShownRequest;
  version: number;
  again(): void;
}

export function RequestFiles({ request, version, again }: RequestFilesProps) {
  const { parts, search } = useRoute();
  const paging = usePaging();
  const { isReadOnly } = useCaller();
  const named = (search.get('state') ?? '').toUpperCase();
  const state = isState(named) ? named : undefined;
  const match = search.get('match') ?? '';
  const states = state ? [state] : OTHERS;
  const withFailed = state === undefined && paging.isFirst && request.filesFailed > 0;
  const variables = { id: request.requestId, first: PAGE, after: paging.after, states, match: match || undefined };
  const query = useTabQuery(ShownFilesDocument, { ...variables, withFailed }, version);
  const { data, error } = query;
  const list = data?.request;
  const failed = list?.failed?.edges ?? [];
  const files = useMemo(
    () => [...failed, ...(list?.files.edges ?? [])].map(({ node }) => node),
    [failed, list?.files.edges],
  );
  const seen = useRef(new Map<string, ShownFile>());
  for (const file of files) seen.current.set(file.file.path, file);
  const keys = files.map(({ file }) => file.path);
  const selection = useRowSelection(keys);
  const { at } = useRowCursor(files.length, {
    onSelect: (index, isRange) => selection.toggle(keys[index] ?? '', isRange),
  });
  const hasEnded = isOver(request.state);
  const isPart = (list?.failed?.pageInfo.hasNextPage ?? false) || (list?.files.pageInfo.hasNextPage ?? false);
  return (
    <div class="request-files">
      <div class="tools">
        <StateFilter request={request} state={state} match={match} />
        <Search
          label="Search the files of this request"
          placeholder="Part of a path"
          match={match}
          onSearch={(text, how) => chooseHere(parts, { state: state?.toLowerCase(), match: text || undefined }, how)}
        />
      </div>
      {error && !list && <Problem error={error} again={query.again} />}
      {!list && !error && <Skeleton />}
      {list && files.length === 0 && <NoFiles isFiltered={state !== undefined || match !== ''} />}
      {files.length > 0 && (
        <Table
          label="Files of the request"
          columns={hasEnded ? columnsAfterEnd : columnsOf(request, again, isReadOnly)}
          rows={files}
          keyOf={({ file }) => file.path}
          isStacked
          at={at}
          selection={{ ...selection, allLabel: 'Select all files on this page' }}
        />
      )}
      {withFailed && list?.failed?.pageInfo.hasNextPage && (
        <p>
          <a href={linkTo(parts, { state: 'failed' })}>Show all {formatNumber(request.filesFailed)} failed files</a>
        </p>
      )}
      <Pages paging={paging} info={list?.files.pageInfo} />
      <SelectedFiles
        request={request}
        selection={selection}
        known={seen.current}
        more={isPart || !paging.isFirst ? { states: state ? [state] : ['FAILED', ...OTHERS], match } : undefined}
        again={again}
      />
    </div>
  );
}

function StateFilter({
  request,
  state,
  match,
}: {
  request: ShownRequest;
  state: RequestFileState | undefined;
  match: string;
}) {
  const { requestId, filesTotal, filesFailed, filesOnDisk, filesReleased } = request;
  const words = isOver(request.state) ? namesAfterEnd : names;
  const counts: [RequestFileState | undefined, number][] = [
    [undefined, filesTotal],
    ['FAILED', filesFailed],
    ['WAITING', countWaiting(request)],
    ['ON_DISK', filesOnDisk],
    ['RELEASED', filesReleased],
  ];
  return (
    <ul class="state-filter" aria-label="Filter by state">
      {counts
        .filter(([each, number]) => each === undefined || number > 0 || each === state)
        .map(([each, number]) => (
          <li key={each ?? 'all'}>
            <a
              href={linkTo(['requests', requestId], { state: each?.toLowerCase(), match })}
              aria-current={each === state ? 'true' : undefined}
            >
              {each ? words[each] : 'All'} <span class="tally">{formatNumber(number)}</span>
            </a>
          </li>
        ))}
    </ul>
  );
}

function NoFiles({ isFiltered }: { isFiltered: boolean }) {
  return (
    <Empty icon={FileSearch} title={isFiltered ? 'No matching files' : 'The request contains no files'}>
      {isFiltered && <p>Choose another state, or search for another part of a path (case-sensitive).</p>}
    </Empty>
  );
}

const size: Column<ShownFile> = { title: 'Size', isNumber: true, cell: (file) => formatBytes(file.size) };

const columnsAfterEnd: Column<ShownFile>[] = [
  { title: 'Path', cell: ({ file }) => <code>{file.path}</code> },
  size,
  { title: 'State', cell: ({ state }) => <Badge tone="quiet">{namesAfterEnd[state]}</Badge> },
];

function columnsOf(request: ShownRequest, again: () => void, isReadOnly: boolean): Column<ShownFile>[] {
  return [
    {
      title: 'Path',
      cell: (file) => (
        <>
          <code>{file.file.restoredPath ?? file.file.path}</code>
          <FileFailure request={request} file={file} again={again} isReadOnly={isReadOnly} />
        </>
      ),
    },
    size,
    { title: 'State', cell: ({ state }) => <Badge tone={tones[state]}>{names[state]}</Badge> },
    {
      title: 'Actions',
      isUntitled: true,
      cell: ({ file }) => file.downloadPath && <Download bytesPath={file.downloadPath} path={file.path} />,
    },
  ];
}

/** Searches the catalogue while the user types, and requests selected or all matching files. */
import { useState } from 'preact/hooks';
import {
  FilesWithCountDocument,
  type FilesWithCountQuery,
  type ListedFileFragment,
} from '../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../format';
import { describeNoMatch } from '../no-match';
import { Folders } from '../parts/folders';
import { Pages, usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { Search } from '../parts/search';
import { StageName } from '../parts/state';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import { chooseHere, useRoute } from '../route';
import { useCaller } from '../sign-in/caller';
import { useViewQuery } from '../view-query';
import { RequestForm } from './request-form';
import { SelectedFiles } from './selected-files';

const PAGE = 50;

type Found = NonNullable<FilesWithCountQuery['list']>;
type FoundFile = ListedFileFragment;

export function FilesPage() {
  const match = useRoute().search.get('match') ?? '';
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const paging = usePaging();
  const { isReadOnly } = useCaller();
  const variables = { match: match || undefined, count: 'ESTIMATED' as const, first: PAGE, after: paging.after };
  const { data, error, isFetching, again } = useViewQuery(FilesWithCountDocument, variables);
  const found = data?.list;
  const files = found?.edges.map(({ node }) => node) ?? [];
  const look = (text: string, how?: { isTyped: boolean }) => {
    paging.restart();
    chooseHere(['files'], { match: text }, how);
  };
  const choose = (path: string) => {
    const next = new Set(chosen);
    if (!next.delete(path)) next.add(path);
    setChosen(next);
  };
  return (
    <>
      <Title text="Files" />
      <Search label="Part of a path" placeholder="/demo/ocean/2024/" match={match} onSearch={look} />
      <Folders match={match} onSearch={look} />
      <p role="status">
        {found && describeFound(match, found)}
        {isFetching && ' …'}
      </p>
      {error && <Problem error={error} again={again} />}
      {!isReadOnly && (
        <RequestForm
          match={match}
          matching={found?.totalCount ?? 0}
          chosen={[...chosen]}
          onRequested={() => setChosen(new Set())}
        >
          <SelectedFiles chosen={chosen} onRemove={choose} onClear={() => setChosen(new Set())} />
        </RequestForm>
      )}
      {files.length > 0 && (
        <Table
          label="Files found"
          columns={columnsOf(chosen, isReadOnly ? undefined : choose)}
          rows={files}
          keyOf={({ path }) => path}
          isStacked
        />
      )}
      <Pages paging={paging} info={found?.pageInfo} />
    </>
  );
}

function describeFound(match: string, { totalCount, isCountEstimated }: Found): string {
  if (totalCount === null) return '';
  if (totalCount > 0 || match === '') return `${isCountEstimated ? 'About ' : ''}${count(totalCount, 'file')}`;
  return `${count(0, 'file')}: ${describeNoMatch(match)}.`;
}

function columnsOf(chosen: ReadonlySet<string>, onChoose: ((path: string) => void) | undefined): Column<FoundFile>[] {
  const choice: Column<FoundFile> = {
    title: 'Select',
    cell: ({ path }) => (
      <input
        type="checkbox"
        aria-label={`Select ${path}`}
        checked={chosen.has(path)}
        onChange={() => onChoose?.(path)}
      />
    ),
  };
  return [
    ...(onChoose ? [choice] : []),
    { title: 'Path', isName: true, cell: ({ path }) => <code>{path}</code> },
    {
      title: 'Size',
      isNumber: true,
      cell: ({ size }) => <span title={`${formatNumber(Number(size))} B`}>{formatBytes(size)}</span>,
    },
    { title: 'Stage', cell: ({ stage }) => <StageName stage={stage} /> },
  ];
}

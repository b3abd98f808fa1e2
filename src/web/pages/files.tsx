/** The catalogue: found as one types, chosen one by one or by a text, and asked for once it is known what that takes. */
import { useEffect, useState } from 'preact/hooks';
import { FilesDocument, type FilesQuery } from '../../generated/web-operations';
import { useCaller } from '../caller';
import { count, formatBytes, formatNumber } from '../format';
import { useLook } from '../look';
import { tellNoMatch } from '../no-match';
import { Folders } from '../parts/folders';
import { Pages, usePlaces } from '../parts/pages';
import { Problem } from '../parts/problem';
import { StageName } from '../parts/state';
import { type Column, Table } from '../parts/table';
import { Title } from '../parts/title';
import { chooseHere, useRoute } from '../route';
import { AskFor } from './ask-for';
import { ChosenFiles } from './chosen-files';

const PAGE = 50;

/** Between two letters of somebody who types. */
const TYPING_MS = 200;

type FoundFile = FilesQuery['tapeFiles']['edges'][number]['node'];

export function FilesPage() {
  const match = useRoute().search.get('match') ?? '';
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const places = usePlaces();
  const { isReadOnly } = useCaller();
  const variables = { match: match || undefined, first: PAGE, after: places.after };
  const { data, error, isFetching, again } = useLook(FilesDocument, variables);
  const found = data?.tapeFiles;
  const files = found?.edges.map(({ node }) => node) ?? [];
  const look = (text: string, how?: { isTyped: boolean }) => {
    places.restart();
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
      <Search match={match} onLook={look} />
      <Folders match={match} onLook={look} />
      <p role="status">
        {found && tellFound(match, found)}
        {isFetching && ' …'}
      </p>
      {error && <Problem error={error} again={again} />}
      {!isReadOnly && (
        <AskFor
          match={match}
          matching={found?.totalCount ?? 0}
          chosen={[...chosen]}
          onAsked={() => setChosen(new Set())}
        >
          <ChosenFiles chosen={chosen} onLeave={choose} onClear={() => setChosen(new Set())} />
        </AskFor>
      )}
      {files.length > 0 && (
        <Table
          label="Files found"
          columns={columnsOf(chosen, isReadOnly ? undefined : choose)}
          rows={files}
          keyOf={({ id }) => id}
          isStacked
        />
      )}
      <Pages places={places} info={found?.pageInfo} />
    </>
  );
}

function tellFound(match: string, { totalCount, isCountEstimated }: FilesQuery['tapeFiles']): string {
  if (totalCount > 0 || match === '') return `${isCountEstimated ? 'About ' : ''}${count(totalCount, 'file')}`;
  return `${count(0, 'file')}: ${tellNoMatch(match)}.`;
}

function Search({ match, onLook }: { match: string; onLook(text: string, how: { isTyped: boolean }): void }) {
  const [typed, setTyped] = useState(match);
  useEffect(() => setTyped(match), [match]);
  useEffect(() => {
    if (typed === match) return;
    const timer = setTimeout(() => onLook(typed, { isTyped: true }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, match, onLook]);
  return (
    <search>
      <label class="search">
        Part of a path
        <input
          type="search"
          value={typed}
          placeholder="/badc/2024/"
          spellcheck={false}
          autocapitalize="none"
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
    </search>
  );
}

function columnsOf(chosen: ReadonlySet<string>, onChoose: ((path: string) => void) | undefined): Column<FoundFile>[] {
  const choice: Column<FoundFile> = {
    title: 'Choose',
    cell: ({ path }) => (
      <input
        type="checkbox"
        aria-label={`Choose ${path}`}
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

/** The file browser: folders and files, searches, the selection, and new requests. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { MeasuredFilesDocument } from '../../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../../format';
import { type Shortcut, useRowCursor, useShortcuts } from '../../keyboard';
import { Breadcrumb } from '../../parts/breadcrumb';
import { Button } from '../../parts/button';
import { Empty } from '../../parts/empty';
import { FolderOpen } from '../../parts/icons';
import { Problem, Refused } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { Title } from '../../parts/title';
import { chooseHere, linkTo, parseRoute, replaceRoute, useRoute } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { useViewQuery } from '../../view-query';
import {
  folderOf,
  isSearch,
  linkToFolder,
  noFilters,
  type Place,
  patternOf,
  readPlace,
  searchOf,
  writePlace,
} from './address';
import type { Wanted } from './estimate';
import './files.css';
import { NoResults } from './no-results';
import { PasteDialog } from './paste-dialog';
import { RequestDialog } from './request-dialog';
import { type FileRow, type Rows, useRows } from './rows';
import { SearchBar } from './search-bar';
import { type FileSet, useSelectAll } from './select-all';
import { type FileSelection, useFileSelection } from './selection';
import { SelectionBar } from './selection-bar';
import { useSizes } from './sizes';
import { FilesTable } from './table';
import { useTableSelection } from './table-selection';
import { TooLarge } from './too-large';

export function FilesPage() {
  const route = useRoute();
  const { name, isReadOnly } = useCaller();
  const address = linkTo(...writePlace(readPlace(route)));
  const place = useMemo(() => readPlace(parseRoute(address)), [address]);
  const selection = useFileSelection(name, isReadOnly ? null : route.search.get('sel'));
  useSizes(selection);
  useSelectionInAddress(place, selection.link, isReadOnly);
  return <Browser place={place} selection={isReadOnly ? undefined : selection} />;
}

/** Writes the selection to the address, without a step in the browser's history. */
function useSelectionInAddress(place: Place, link: string | undefined, isReadOnly: boolean): void {
  useEffect(() => {
    const { parts, search } = parseRoute(location.hash);
    if (isReadOnly || (search.get('sel') ?? undefined) === link || (parts[0] ?? 'files') !== 'files') return;
    replaceRoute(linkTo(...writePlace(place, link)));
  }, [place, link, isReadOnly]);
}

function Browser({ place, selection }: { place: Place; selection: FileSelection | undefined }) {
  const rows = useRows(place);
  const [pasted, setPasted] = useState<string>();
  const [asked, setAsked] = useState<{ wanted: Wanted; isEstimate: boolean }>();
  const files = useMemo(() => [...(selection?.files.keys() ?? [])], [selection?.files]);
  const select = useSelectAll(selection ?? noSelection);
  const found = useFound(place, rows);
  const matching: FileSet = { ...setOf(place), count: found.isEstimated ? undefined : found.count };
  const table = useTableSelection({ place, rows, selection, matching, start: select.start });
  const change = (next: Partial<Place>, how?: { isTyped: boolean }) =>
    chooseHere(...writePlace({ ...place, ...next }, selection?.link), how);
  const at = useKeys(place, rows.rows, table?.toggle);
  usePastedList(selection ? setPasted : undefined);
  const ask = (isEstimate: boolean) => setAsked({ wanted: { files }, isEstimate });
  const request: Shortcut = { key: 'r', text: 'Request the selected files', run: () => files.length > 0 && ask(false) };
  useShortcuts(selection ? [request] : []);
  return (
    <div class="files-view">
      <div class="files-head">
        <Title text="Files" />
        <Path place={place} />
      </div>
      <SearchBar place={place} onChange={change} onPaste={selection && (() => setPasted(''))} />
      <Summary
        place={place}
        rows={rows}
        found={found}
        actions={
          selection && {
            onSelectAll: () => select.start([matching]),
            onPattern: (pattern) => setAsked({ wanted: { pattern }, isEstimate: false }),
          }
        }
      />
      <Refused why={select.problem} />
      {rows.error && <Problem error={rows.error} again={rows.again} />}
      <Content place={place} rows={rows} found={found} onChange={change}>
        <FilesTable
          place={place}
          rows={rows.rows}
          selection={table}
          at={at}
          onSort={(sort) => change({ sort })}
          onReach={rows.reach}
        />
      </Content>
      {selection && (
        <SelectionBar
          selection={selection}
          folder={place.folder}
          loading={select.loading}
          onStop={select.stop}
          onEstimate={() => ask(true)}
          onRequest={() => ask(false)}
        />
      )}
      {selection && pasted !== undefined && (
        <PasteDialog text={pasted} folder={place.folder} selection={selection} onClose={() => setPasted(undefined)} />
      )}
      {select.tooLarge && (
        <TooLarge
          set={select.tooLarge}
          onClose={select.dismiss}
          onPattern={(pattern) => {
            select.dismiss();
            setAsked({ wanted: { pattern }, isEstimate: false });
          }}
        />
      )}
      {selection && asked && (
        <RequestDialog
          {...asked}
          onClose={() => setAsked(undefined)}
          onRequested={() => 'files' in asked.wanted && selection.clear()}
        />
      )}
    </div>
  );
}

const noSelection: FileSelection = {
  files: new Map(),
  bytes: 0,
  link: undefined,
  add: () => {},
  remove: () => {},
  clear: () => {},
};

/** Returns the set of all files of a search, or of all files below the folder. */
function setOf(place: Place): FileSet {
  const name = isSearch(place) ? 'the matching files' : `the files in ${place.folder || '/'}`;
  return { name, variables: searchOf(place), pattern: patternOf(place) };
}

interface Found {
  count: number | undefined;
  bytes: bigint | undefined;
  isEstimated: boolean;
}

/** Counts the files of the search, or the files below the folder. */
function useFound(place: Place, { rows, isFirst, isWhole }: Rows): Found {
  const isSearching = isSearch(place);
  const { data } = useViewQuery(MeasuredFilesDocument, isSearching ? searchOf(place) : folderOf(place));
  return useMemo(() => {
    const list = data?.list;
    if (!list) return { count: undefined, bytes: undefined, isEstimated: false };
    const here = {
      count: list.totalCount ?? undefined,
      bytes: list.totalBytes ?? undefined,
      isEstimated: list.isCountEstimated,
    };
    if (isSearching) return here;
    const folders = rows.flatMap((row) => (row.kind === 'folder' ? row.entry : []));
    const isPartial = isFirst || (!isWhole && rows.at(-1)?.kind === 'folder');
    return {
      count: folders.reduce((sum, { fileCount }) => sum + (fileCount ?? 0), here.count ?? 0),
      bytes: here.bytes === undefined ? undefined : folders.reduce((sum, { bytes }) => sum + (bytes ?? 0n), here.bytes),
      isEstimated: here.isEstimated || isPartial || folders.some(({ isEstimated }) => isEstimated),
    };
  }, [data, isSearching, rows, isFirst, isWhole]);
}

function Path({ place }: { place: Place }) {
  const names = place.folder.split('/').filter(Boolean);
  const parents = names.slice(0, -1).map((text, index) => ({
    text,
    href: linkToFolder(`/${names.slice(0, index + 1).join('/')}`, place),
  }));
  const root = { text: 'All files', href: linkToFolder('', place) };
  if (names.length === 0) return <Breadcrumb label="Parent folders" parents={[]} current="All files" />;
  return <Breadcrumb label="Parent folders" parents={[root, ...parents]} current={names.at(-1)} />;
}

interface SummaryProps {
  place: Place;
  rows: Rows;
  found: Found;
  /** Undefined if the user may not request files. */
  actions: { onSelectAll(): void; onPattern(pattern: string): void } | undefined;
}

/** Says how many files there are, and selects or requests all of them. */
function Summary({ place, rows, found, actions }: SummaryProps) {
  const pattern = patternOf(place);
  const folders = rows.rows.filter(({ kind }) => kind === 'folder').length;
  const { count: number, bytes, isEstimated } = found;
  const about = isEstimated ? 'About ' : '';
  return (
    <div class="files-summary">
      <p role="status">
        {number !== undefined && `${about}${count(number, 'file')}`}
        {number !== undefined && bytes !== undefined && number > 0 && `, ${formatBytes(bytes)}`}
        {!isSearch(place) && folders > 0 && ` in ${count(folders, 'folder')}`}
        {rows.isFirst && ' …'}
      </p>
      {actions && number !== undefined && number > 0 && (
        <>
          <Button kind="plain" onClick={actions.onSelectAll}>
            {describeSelectAll(isEstimated ? undefined : number, isSearch(place))}
          </Button>
          {pattern !== '' && (
            <Button kind="plain" onClick={() => actions.onPattern(pattern)}>
              {isSearch(place) ? 'Request all matches' : 'Request this folder'}, including future files
            </Button>
          )}
        </>
      )}
    </div>
  );
}

function describeSelectAll(number: number | undefined, isSearching: boolean): string {
  if (number === 1) return isSearching ? 'Select the matching file' : 'Select the file';
  return `Select all ${number === undefined ? '' : `${formatNumber(number)} `}${isSearching ? 'matching ' : ''}files`;
}

interface ContentProps {
  place: Place;
  rows: Rows;
  found: Found;
  onChange(change: Partial<Place>): void;
  children: preact.ComponentChildren;
}

function Content({ place, rows, onChange, children }: ContentProps) {
  if (rows.rows.length > 0) return <div class={rows.isFirst ? 'stale' : undefined}>{children}</div>;
  if (rows.error) return null;
  if (!rows.isWhole) return <Skeleton lines={12} />;
  if (isSearch(place)) return <NoResults place={place} onChange={onChange} />;
  return (
    <Empty
      icon={FolderOpen}
      title={place.folder === '' ? 'The catalogue is empty' : `There is no folder ${place.folder}`}
    >
      <p>
        {place.folder === ''
          ? 'An operator can import files into the catalogue.'
          : 'The catalogue has no files at this path that you may list.'}
      </p>
    </Empty>
  );
}

/** Moves through the rows with the keyboard. @returns the index of the current row */
function useKeys(
  place: Place,
  rows: readonly FileRow[],
  toggle: ((key: string, isRange: boolean) => void) | undefined,
) {
  const parent = place.folder.slice(0, place.folder.lastIndexOf('/'));
  const open = (index: number) => {
    const row = rows[index];
    if (row?.kind === 'folder') location.hash = linkToFolder(row.path, place);
  };
  const cursor = useRowCursor(rows.length, {
    onOpen: open,
    ...(toggle && { onSelect: (index: number, isRange: boolean) => rows[index] && toggle(rows[index].path, isRange) }),
  });
  const up = () => {
    if (isSearch(place)) chooseHere(...writePlace({ ...place, query: '', match: '', filters: noFilters }));
    else if (place.folder !== '') location.hash = linkToFolder(parent, place);
  };
  useShortcuts([
    { key: 'ArrowDown', text: 'Next row', run: () => cursor.moveTo(Math.min(rows.length - 1, cursor.at + 1)) },
    { key: 'ArrowUp', text: 'Previous row', run: () => cursor.moveTo(Math.max(0, cursor.at - 1)) },
    { key: 'u', text: 'Go to the parent folder', run: up },
    { key: 'Backspace', text: 'Go to the parent folder', run: up },
  ]);
  const { moveTo } = cursor;
  useEffect(() => moveTo(-1), [place, moveTo]);
  return cursor.at;
}

/** Opens the dialog for a list of paths when the user pastes a list outside a field. */
function usePastedList(onPaste: ((text: string) => void) | undefined): void {
  const latest = useRef(onPaste);
  latest.current = onPaste;
  useEffect(() => {
    const paste = ({ target, clipboardData }: ClipboardEvent) => {
      const text = clipboardData?.getData('text/plain') ?? '';
      const isField = target instanceof HTMLElement && target.matches('input, textarea, select');
      if (!isField && !document.querySelector('dialog[open]') && /[\n/]/.test(text)) latest.current?.(text);
    };
    addEventListener('paste', paste);
    return () => removeEventListener('paste', paste);
  }, []);
}

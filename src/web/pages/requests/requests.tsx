/** Shows the requests that the user is allowed to see, with filters, live progress, and changes to several requests. */

import { type RequestLineFragment, RequestListDocument } from '../../../generated/operations.js';
import { useRowCursor } from '../../keyboard';
import { useProgress } from '../../live-progress';
import { useRequestChanges } from '../../live-site';
import { Empty } from '../../parts/empty';
import { Inbox, SearchX } from '../../parts/icons';
import { Pages, usePaging } from '../../parts/paging';
import { Problem } from '../../parts/problem';
import { QuotaChoice } from '../../parts/quota-choice';
import { nameRequest } from '../../parts/request-name';
import { Search } from '../../parts/search';
import { Skeleton } from '../../parts/skeleton';
import { Table } from '../../parts/table';
import { Title } from '../../parts/title';
import { chooseHere, linkTo, useRoute } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { useViewQuery } from '../../view-query';
import { BulkBar } from './bulk-bar';
import { type ChosenRequests, readChosen, useChosenRequests } from './chosen-requests';
import { formatSort, ORDERS, orderByOf, readSort, resort } from './orders';
import { createColumns, type ShownLine } from './request-columns';
import { StateTabs, statesOf } from './state-tabs';
import './requests.css';

const PAGE = 50;

/** The filters and the order of the list, as the address stores them. Empty texts stand for the defaults. */
interface Choice {
  selected: string;
  quota: string;
  match: string;
  state: string;
  order: string;
}

function readChoice(search: URLSearchParams): Choice {
  const read = (name: keyof Choice) => search.get(name) ?? '';
  return {
    selected: readChosen(search),
    quota: read('quota'),
    match: read('match'),
    state: read('state'),
    order: read('order'),
  };
}

type Choose = (chosen: Partial<Choice>, how?: { isTyped: boolean }) => void;

export function RequestsPage() {
  const choice = readChoice(useRoute().search);
  const { quota, match, state, order } = choice;
  const { isReadOnly } = useCaller();
  const paging = usePaging();
  const { data, error, isFetching, requestedAt, again } = useViewQuery(RequestListDocument, {
    ...{ first: PAGE, after: paging.after, quota: quota || undefined, match: match || undefined },
    ...{ states: statesOf(state), orderBy: orderByOf(readSort(order)) },
  });
  useRequestChanges(again);
  const lines = data?.list?.edges.map(({ node }) => node);
  const rows = (lines ?? []).map((line) => ({ requestId: line.requestId, name: nameRequest(line) }));
  const selection = useChosenRequests(choice.selected, rows);
  const choose: Choose = (chosen, how) => chooseHere(['requests'], { ...choice, ...chosen }, how);
  return (
    <div class="requests-view">
      <div class="requests-head">
        <Title text="Requests" />
        <Filters choice={choice} choose={choose} />
      </div>
      <StateTabs
        state={state}
        counts={data?.counts ?? undefined}
        linkTo={(of) => linkTo(['requests'], { ...choice, state: of })}
      />
      {error && <Problem error={error} again={again} />}
      {lines && lines.length > 0 && (
        <RequestTable
          lines={lines}
          requestedAt={requestedAt}
          order={order}
          onOrder={(chosen) => choose({ order: chosen })}
          selection={selection}
        />
      )}
      {lines?.length === 0 && !isFetching && !error && <NoRequests choice={choice} />}
      {!lines && !error && <Skeleton lines={12} />}
      <Pages paging={paging} info={data?.list?.pageInfo} />
      {selection.ids.length > 0 && !isReadOnly && <BulkBar selection={selection} again={again} />}
    </div>
  );
}

function Filters({ choice, choose }: { choice: Choice; choose: Choose }) {
  const { quotas } = useCaller();
  return (
    <div class="tools">
      <Search
        label="Part of a label, a pattern or a path"
        placeholder="ocean 2024"
        match={choice.match}
        onSearch={(match, how) => choose({ match }, how)}
      />
      {quotas.length > 1 && (
        <QuotaChoice value={choice.quota} onChoose={(quota) => choose({ quota })} none="all quotas" />
      )}
      <label>
        Order
        <select
          value={formatSort(readSort(choice.order))}
          onChange={(event) => choose({ order: event.currentTarget.value })}
        >
          {ORDERS.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

interface RequestTableProps {
  lines: readonly RequestLineFragment[];
  requestedAt: number;
  order: string;
  onOrder(order: string): void;
  selection: ChosenRequests;
}

function RequestTable({ lines, requestedAt, order, onOrder, selection }: RequestTableProps) {
  const { isReadOnly, quotas } = useCaller();
  const steps = useProgress(lines, requestedAt);
  const rows: ShownLine[] = lines.map((line) => ({ ...line, ...steps.get(line.requestId) }));
  const sort = readSort(order);
  const cursor = useRowCursor(rows.length, {
    onOpen: (index) => {
      location.hash = linkTo(['requests', lines[index]?.requestId ?? '']);
    },
    ...(!isReadOnly && {
      onSelect: (index, isRange) => selection.toggle(String(lines[index]?.requestId), isRange),
    }),
  });
  return (
    <Table
      label="Requests"
      columns={createColumns({ hasQuota: quotas.length > 1 })}
      rows={rows}
      keyOf={({ requestId }) => String(requestId)}
      isStacked
      sort={sort}
      onSort={(chosen) => onOrder(formatSort(resort(sort, chosen)))}
      selection={isReadOnly ? undefined : selection}
      at={cursor.at}
    />
  );
}

function NoRequests({ choice }: { choice: Choice }) {
  const isFiltered = choice.match !== '' || choice.quota !== '' || choice.state !== '';
  if (!isFiltered) {
    return (
      <Empty icon={Inbox} title="No requests.">
        <p>
          <a href="#/files">Search for files</a> to request them, or look at{' '}
          <a href={linkTo(['requests'], { state: 'all' })}>requests that have ended</a>.
        </p>
      </Empty>
    );
  }
  return (
    <Empty icon={SearchX} title="No request matches.">
      <p>
        <a href={linkTo(['requests'], { ...choice, state: 'all' })}>Search in all states</a>, or{' '}
        <a href="#/requests">remove all filters</a>. To request files, <a href="#/files">search for them</a>.
      </p>
    </Empty>
  );
}

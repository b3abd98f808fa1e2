/** Shows the requests that the user is allowed to see, newest first, with live progress. */
import { LatestRequestsDocument, type RequestLineFragment, type RequestState } from '../../generated/operations.js';
import { count } from '../format';
import { useProgress } from '../live-progress';
import { useRequestChanges } from '../live-site';
import { Moment } from '../parts/moment';
import { Pages, usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { RequestSummary } from '../parts/request-summary';
import { Search } from '../parts/search';
import { isOver, RequestStateName, requestStates } from '../parts/state';
import { Title } from '../parts/title';
import { chooseHere, linkTo, useRoute } from '../route';
import { useViewQuery } from '../view-query';

const PAGE = 25;

/** All states of requests. Without states, a query finds only live requests. */
const ALL: RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

function statesOf(filter: string): RequestState[] | undefined {
  if (filter === 'all') return ALL;
  const state = ALL.find((each) => each.toLowerCase() === filter);
  return state && [state];
}

export function RequestsPage() {
  const { search } = useRoute();
  const quota = search.get('quota') ?? undefined;
  const match = search.get('match') ?? '';
  const filter = search.get('state') ?? '';
  const paging = usePaging();
  const variables = { first: PAGE, after: paging.after, quota, match: match || undefined, states: statesOf(filter) };
  const { data, error, isFetching, requestedAt, again } = useViewQuery(LatestRequestsDocument, variables);
  useRequestChanges(again);
  const requests = data?.list;
  const lines = requests?.edges.map(({ node }) => node) ?? [];
  const steps = useProgress(lines, requestedAt);
  const choose = (chosen: Record<string, string | undefined>, how?: { isTyped: boolean }) => {
    paging.restart();
    const { quota: of, match: text, state } = { quota, match, state: filter, ...chosen };
    chooseHere(['requests'], { quota: of, match: text || undefined, state: state || undefined }, how);
  };
  return (
    <>
      <Title text="Requests" />
      <Search
        label="Part of a label, a pattern or a path"
        placeholder="ocean 2024"
        match={match}
        onSearch={(text, how) => choose({ match: text }, how)}
      />
      <div class="tools">
        <QuotaChoice value={quota ?? ''} onChoose={(chosen) => choose({ quota: chosen })} none="all quotas" />
        <label>
          State{' '}
          <select value={filter} onChange={(event) => choose({ state: event.currentTarget.value })}>
            <option value="">Live</option>
            <option value="all">All</option>
            {ALL.map((state) => (
              <option key={state} value={state.toLowerCase()}>
                {requestStates[state]}
              </option>
            ))}
          </select>
        </label>
        {requests && <p role="status">{count(requests.totalCount, 'request')}</p>}
      </div>
      {error && <Problem error={error} again={again} />}
      <ul class="cards">
        {lines.map((line) => (
          <RequestCard key={line.requestId} line={{ ...line, ...steps.get(line.requestId) }} />
        ))}
      </ul>
      {!isFetching && !error && lines.length === 0 && (
        <p>
          {match || filter ? 'No request matches.' : 'No requests.'} <a href="#/files">Search for files</a> to request
          them.
        </p>
      )}
      <Pages paging={paging} info={requests?.pageInfo} names={['Newer', 'Older']} />
    </>
  );
}

function RequestCard({ line }: { line: RequestLineFragment }) {
  const { requestId, state } = line;
  return (
    <li>
      <div class="head">
        <a href={linkTo(['requests', requestId])}>
          {requestId} <bdi>{line.label || line.pattern || 'a list of files'}</bdi>
        </a>
        <RequestStateName request={line} />
      </div>
      <RequestSummary request={line} name={`Request ${requestId}`}>
        {' '}
        · <bdi>{line.quota.user}</bdi> · requested <Moment at={line.createdAt} side="past" /> ·{' '}
        {isOver(state) ? (
          <>
            ended <Moment at={line.retention} side="past" />
          </>
        ) : (
          <>
            expires <Moment at={line.retention} isFull />
          </>
        )}
      </RequestSummary>
    </li>
  );
}

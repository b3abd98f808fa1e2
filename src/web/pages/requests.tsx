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
import { isOver, RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { chooseHere, linkTo, useRoute } from '../route';
import { useViewQuery } from '../view-query';

const PAGE = 25;

/** All states of requests. A query must list all states to find requests that have ended. */
const ALL: RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

export function RequestsPage() {
  const { search } = useRoute();
  const quota = search.get('quota') ?? undefined;
  const hasEnded = search.has('ended');
  const paging = usePaging();
  const variables = { first: PAGE, after: paging.after, quota, states: hasEnded ? ALL : undefined };
  const { data, error, isFetching, requestedAt, again } = useViewQuery(LatestRequestsDocument, variables);
  useRequestChanges(again);
  const requests = data?.list;
  const lines = requests?.edges.map(({ node }) => node) ?? [];
  const steps = useProgress(lines, requestedAt);
  const choose = (chosen: { quota: string | undefined; hasEnded: boolean }) => {
    paging.restart();
    chooseHere(['requests'], { quota: chosen.quota, ended: chosen.hasEnded ? 'too' : undefined });
  };
  return (
    <>
      <Title text="Requests" />
      <div class="tools">
        <QuotaChoice value={quota ?? ''} onChoose={(chosen) => choose({ quota: chosen, hasEnded })} none="all quotas" />
        <label class="check">
          <input type="checkbox" checked={hasEnded} onChange={() => choose({ quota, hasEnded: !hasEnded })} />
          Include ended requests
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
          No requests. <a href="#/files">Search for files</a> to request them.
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

/** The requests that the caller may see, the newest first, each as far as it is now. */
import { type RequestLineFragment, type RequestState, RequestsDocument } from '../../generated/web-operations';
import { count } from '../format';
import { useProgress } from '../live';
import { useRequestChanges } from '../live-site';
import { useLook } from '../look';
import { Moment } from '../parts/moment';
import { Pages, usePlaces } from '../parts/pages';
import { Problem } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { RequestFigures } from '../parts/request-figures';
import { isOver, RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { chooseHere, linkTo, useRoute } from '../route';

const PAGE = 25;

/** Unless told, the gateway leaves away those that have ended. */
const ALL: RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

export function RequestsPage() {
  const { search } = useRoute();
  const quota = search.get('quota') ?? undefined;
  const hasEnded = search.has('ended');
  const places = usePlaces();
  const variables = { last: PAGE, before: places.after, quota, states: hasEnded ? ALL : undefined };
  const { data, error, isFetching, askedAt, again } = useLook(RequestsDocument, variables);
  useRequestChanges(again);
  const requests = data?.requests;
  // the gateway lists them as they were made, so that the newest are its last page
  const lines = requests?.edges.map(({ node }) => node).reverse() ?? [];
  const older = requests && {
    hasNextPage: requests.pageInfo.hasPreviousPage,
    endCursor: requests.pageInfo.startCursor,
  };
  const steps = useProgress(lines, askedAt);
  const choose = (chosen: { quota: string | undefined; hasEnded: boolean }) => {
    places.restart();
    chooseHere(['requests'], { quota: chosen.quota, ended: chosen.hasEnded ? 'too' : undefined });
  };
  return (
    <>
      <Title text="Requests" />
      <div class="tools">
        <QuotaChoice
          value={quota ?? ''}
          onChoose={(chosen) => choose({ quota: chosen, hasEnded })}
          none="all that I may see"
        />
        <label class="check">
          <input type="checkbox" checked={hasEnded} onChange={() => choose({ quota, hasEnded: !hasEnded })} />
          With those that have ended
        </label>
        {requests && <p role="status">{count(requests.totalCount, 'request')}</p>}
      </div>
      {error && <Problem error={error} again={again} />}
      <ul class="cards">
        {lines.map((line) => (
          <RequestCard key={line.id} line={{ ...line, ...steps.get(line.requestId) }} />
        ))}
      </ul>
      {!isFetching && !error && lines.length === 0 && (
        <p>
          There is none. <a href="#/files">Look for files</a> and ask for them.
        </p>
      )}
      <Pages places={places} info={older} names={['Newer', 'Older']} />
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
      <RequestFigures request={line} name={`Request ${requestId}`}>
        {' '}
        · <bdi>{line.quota.user}</bdi> · asked <Moment at={line.requestDate} side="past" /> ·{' '}
        {isOver(state) ? (
          <>
            ended <Moment at={line.retention} side="past" />
          </>
        ) : (
          <>
            kept until <Moment at={line.retention} isFull />
          </>
        )}
      </RequestFigures>
    </li>
  );
}

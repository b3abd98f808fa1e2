/** The requests that the caller may see, the newest first, each as far as it is now. */
import { type RequestLineFragment, RequestsDocument } from '../../generated/web-operations';
import { count, formatBytes, share } from '../format';
import { useProgress } from '../live';
import { useRequestChanges } from '../live-site';
import { useLook } from '../look';
import { Bar } from '../parts/bar';
import { Moment } from '../parts/moment';
import { Pages, usePlaces } from '../parts/pages';
import { Problem } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { chooseHere, linkTo, useRoute } from '../route';

const PAGE = 25;

export function RequestsPage() {
  const quota = useRoute().search.get('quota') ?? undefined;
  const places = usePlaces();
  const { data, error, isFetching, again } = useLook(RequestsDocument, { last: PAGE, before: places.after, quota });
  useRequestChanges(again);
  const requests = data?.requests;
  // the gateway lists them as they were made, so that the newest are its last page
  const lines = requests?.edges.map(({ node }) => node).reverse() ?? [];
  const older = requests && {
    hasNextPage: requests.pageInfo.hasPreviousPage,
    endCursor: requests.pageInfo.startCursor,
  };
  const steps = useProgress(lines);
  const choose = (chosen: string) => {
    places.restart();
    chooseHere(['requests'], { quota: chosen });
  };
  return (
    <>
      <Title text="Requests" />
      <div class="tools">
        <QuotaChoice value={quota ?? ''} onChoose={choose} none="all that I may see" />
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
  const { requestId, filesTotal, filesOnDisk, filesFailed } = line;
  return (
    <li>
      <div class="head">
        <a href={linkTo(['requests', requestId])}>
          {requestId} {line.label || line.pattern || 'a list of files'}
        </a>
        <RequestStateName state={line.state} />
      </div>
      <Bar value={share(filesOnDisk + filesFailed, filesTotal)} label={`Request ${requestId}: files that are there`} />
      <p class="facts">
        {filesOnDisk} of {count(filesTotal, 'file')}, {formatBytes(line.bytesOnDisk)} of {formatBytes(line.bytesTotal)}
        {filesFailed > 0 && <strong>, {count(filesFailed, 'file')} failed</strong>} · {line.quota.user} · asked{' '}
        <Moment at={line.requestDate} /> · kept until <Moment at={line.retention} />
      </p>
    </li>
  );
}

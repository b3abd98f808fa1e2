/** One request: how far it is, what it waits for, what can be done with it, and its files. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { type HoldState, RequestDocument, type RequestQuery } from '../../generated/web-operations';
import { count, formatBytes, share } from '../format';
import { useProgress } from '../live';
import { useLook } from '../look';
import { Bar } from '../parts/bar';
import { Moment } from '../parts/moment';
import { usePlaces } from '../parts/pages';
import { Problem } from '../parts/problem';
import { RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { RequestDeeds } from './request-deeds';
import { RequestFiles } from './request-files';

export type ShownRequest = NonNullable<RequestQuery['request']>;

const PAGE = 50;

/** Files come faster than anybody reads, and each look asks for a page of them. */
const LOOK_MS = 1000;

export function RequestPage({ id }: { id: string }) {
  const requestId = /^\d{1,9}$/.test(id) ? Number(id) : undefined;
  if (requestId === undefined) return <Title text={`A request has a number, and ${JSON.stringify(id)} is none.`} />;
  return <KnownRequest requestId={requestId} />;
}

function KnownRequest({ requestId }: { requestId: number }) {
  const places = usePlaces();
  const [states, setStates] = useState<HoldState[]>();
  const variables = { id: requestId, first: PAGE, after: places.after, states };
  const { data, error, again } = useLook(RequestDocument, variables);
  const request = data?.request;
  const step = useProgress(request ? [request] : []).get(requestId);
  useLooks(step?.eventId, again);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <p>…</p>;
  if (!request) return <Title text={`There is no request ${requestId} that you may see.`} />;
  const now = { ...request, ...step };
  return (
    <>
      <Title text={`Request ${requestId}`}>
        <RequestStateName state={now.state} />
      </Title>
      {error && <Problem error={error} again={again} />}
      <p class="lead">{request.label || request.pattern || 'A list of files'}</p>
      <Bar value={share(now.filesOnDisk + now.filesFailed, now.filesTotal)} label="Files that are there" />
      <p class="facts" role="status">
        {now.filesOnDisk} of {count(now.filesTotal, 'file')}, {formatBytes(now.bytesOnDisk)} of{' '}
        {formatBytes(now.bytesTotal)}
        {now.filesFailed > 0 && <strong>, {count(now.filesFailed, 'file')} failed</strong>}
      </p>
      <RequestFacts request={request} />
      <RequestDeeds request={request} again={again} />
      <WaitingFor request={request} />
      <LeftOut request={request} />
      <RequestFiles
        request={request}
        states={states}
        places={places}
        onStates={(chosen) => {
          places.restart();
          setStates(chosen);
        }}
      />
    </>
  );
}

/** Looks again after something has happened, once for all that happens in a moment. */
function useLooks(eventId: string | undefined, look: () => void): void {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    if (eventId === undefined || timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      latest.current();
    }, LOOK_MS);
  }, [eventId]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

function RequestFacts({ request }: { request: ShownRequest }) {
  return (
    <dl class="pairs">
      <dt>Quota</dt>
      <dd>{request.quota.user}</dd>
      <dt>Asked</dt>
      <dd>
        <Moment at={request.requestDate} isFull />
      </dd>
      <dt>Kept until</dt>
      <dd>
        <Moment at={request.retention} isFull />
      </dd>
      {request.restoredBelow.length > 0 && (
        <>
          <dt>On disk below</dt>
          <dd>
            {request.restoredBelow.map((place) => (
              <code key={place}>{place}</code>
            ))}
          </dd>
        </>
      )}
    </dl>
  );
}

function WaitingFor({ request: { waiting } }: { request: ShownRequest }) {
  if (!waiting) return null;
  const { end, endUnknown, place, parts } = waiting;
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">Waiting</h2>
      <p>
        {count(waiting.files, 'file')}, {formatBytes(waiting.bytes)}
        {place !== null && `, next in place ${place} of the queue`}.{' '}
        {end && (
          <>
            By the plan done <Moment at={end.planned} isFull />, between <Moment at={end.earliest} /> and{' '}
            <Moment at={end.latest} />.
          </>
        )}
        {!end && (endUnknown ?? 'Nobody can tell yet when.')}
      </p>
      <ul>
        {parts.edges.map(({ node }) => (
          <li key={`${node.reason} ${node.volume}`}>
            {count(node.files, 'file')}, {formatBytes(node.bytes)}: {node.explanation}
          </li>
        ))}
      </ul>
    </section>
  );
}

const whyLeftOut = {
  UNKNOWN: 'the catalogue does not know it',
  QUOTA_FULL: 'the quota is full',
  LIMIT: 'it is beyond the limits of the request',
} as const;

function LeftOut({ request }: { request: ShownRequest }) {
  const paths = request.awaited.edges.map(({ node }) => node);
  if (paths.length === 0) return null;
  return (
    <section aria-labelledby="left-out">
      <h2 id="left-out">Not in the request yet</h2>
      <ul>
        {paths.map(({ path, reason }) => (
          <li key={path}>
            <code>{path}</code>: {whyLeftOut[reason]}
          </li>
        ))}
        {request.awaited.pageInfo.hasNextPage && <li>and more</li>}
      </ul>
    </section>
  );
}

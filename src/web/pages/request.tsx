/** The view of one request: progress, waiting files, actions and files. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { type RequestFileState, RequestWithFilesDocument } from '../../generated/operations.js';
import { useProgress } from '../live-progress';
import { useRequestChanges } from '../live-site';
import { usePaging } from '../parts/paging';
import { Problem } from '../parts/problem';
import { RequestSummary } from '../parts/request-summary';
import { RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { useViewQuery } from '../view-query';
import { RequestActions } from './request-actions';
import { describeEmpty, ExcludedPaths, RequestFacts, WaitingFor } from './request-facts';
import { RequestFiles } from './request-files';

const PAGE = 50;

/** Largest possible request id. Request ids are 32-bit integers. */
const MAX_ID = 2 ** 31 - 1;

/** Minimum time between two reloads of the view, in milliseconds. */
const RELOAD_MS = 1000;

export function RequestPage({ id }: { id: string }) {
  const requestId = /^\d{1,10}$/.test(id) && Number(id) <= MAX_ID ? Number(id) : undefined;
  if (requestId === undefined) return <Title text={`${JSON.stringify(id)} is not a request number.`} />;
  return <KnownRequest requestId={requestId} />;
}

function KnownRequest({ requestId }: { requestId: number }) {
  const paging = usePaging();
  const [states, setStates] = useState<RequestFileState[]>();
  const variables = { id: requestId, first: PAGE, after: paging.after, states };
  const { data, error, requestedAt, again } = useViewQuery(RequestWithFilesDocument, variables);
  const read = data?.request;
  const step = useProgress(read ? [read] : [], requestedAt).get(requestId);
  useThrottled(step?.eventId, again);
  useRequestChanges(again, requestId);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <p>…</p>;
  if (!read) return <Title text={`Request ${requestId} does not exist, or you are not allowed to see it.`} />;
  const request = { ...read, ...step };
  return (
    <>
      <Title text={`Request ${requestId}`}>
        <RequestStateName request={request} />
      </Title>
      {error && <Problem error={error} again={again} />}
      <p class="lead">
        <bdi>{request.label || request.pattern || 'A list of files'}</bdi>
      </p>
      <RequestSummary request={request} why={describeEmpty(request)} isLive />
      <RequestFacts request={request} />
      <RequestActions request={request} again={again} />
      <WaitingFor request={request} />
      <ExcludedPaths request={request} />
      <RequestFiles
        request={request}
        states={states}
        paging={paging}
        onStates={(chosen) => {
          paging.restart();
          setStates(chosen);
        }}
      />
    </>
  );
}

function useThrottled(eventId: bigint | undefined, look: () => void): void {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    if (eventId === undefined || timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      latest.current();
    }, RELOAD_MS);
  }, [eventId]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

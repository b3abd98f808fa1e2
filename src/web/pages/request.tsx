/** One request: how far it is, what it waits for, what can be done with it, and its files. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { RequestDocument, type RequestFileState } from '../../generated/web-operations';
import { useProgress } from '../live';
import { useRequestChanges } from '../live-site';
import { useLook } from '../look';
import { usePlaces } from '../parts/pages';
import { Problem } from '../parts/problem';
import { RequestFigures } from '../parts/request-figures';
import { RequestStateName } from '../parts/state';
import { Title } from '../parts/title';
import { RequestDeeds } from './request-deeds';
import { ExcludedPaths, RequestFacts, tellEmpty, WaitingFor } from './request-facts';
import { RequestFiles } from './request-files';

const PAGE = 50;

/** Ids are integers of 32 bits. */
const MOST_ID = 2 ** 31 - 1;

/** Files come faster than anybody reads, and each look asks for a page of them. */
const LOOK_MS = 1000;

export function RequestPage({ id }: { id: string }) {
  const requestId = /^\d{1,10}$/.test(id) && Number(id) <= MOST_ID ? Number(id) : undefined;
  if (requestId === undefined) return <Title text={`A request has a number, and ${JSON.stringify(id)} is none.`} />;
  return <KnownRequest requestId={requestId} />;
}

function KnownRequest({ requestId }: { requestId: number }) {
  const places = usePlaces();
  const [states, setStates] = useState<RequestFileState[]>();
  const variables = { id: requestId, first: PAGE, after: places.after, states };
  const { data, error, askedAt, again } = useLook(RequestDocument, variables);
  const read = data?.request;
  const step = useProgress(read ? [read] : [], askedAt).get(requestId);
  useLooks(step?.eventId, again);
  useRequestChanges(again, requestId);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <p>…</p>;
  if (!read) return <Title text={`There is no request ${requestId} that you may see.`} />;
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
      <RequestFigures request={request} why={tellEmpty(request)} isTold />
      <RequestFacts request={request} />
      <RequestDeeds request={request} again={again} />
      <WaitingFor request={request} />
      <ExcludedPaths request={request} />
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

/** The view of one request: its progress, a timeline, actions, and tabs with files, activity, waits and details. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { RequestPageDocument } from '../../../generated/operations.js';
import { useShortcuts } from '../../keyboard';
import { useProgress } from '../../live-progress';
import { useRequestChanges } from '../../live-site';
import { Breadcrumb } from '../../parts/breadcrumb';
import { Problem } from '../../parts/problem';
import { nameRequest } from '../../parts/request-name';
import { Skeleton } from '../../parts/skeleton';
import { isOver, RequestStateName } from '../../parts/state';
import { type Tab, Tabs } from '../../parts/tabs';
import { Title } from '../../parts/title';
import { chooseHere, linkTo, useRoute } from '../../route';
import { useViewQuery } from '../../view-query';
import { RequestActions } from './actions';
import { Activity } from './activity';
import { Details } from './details';
import { RequestFiles } from './files';
import { RequestProgress } from './progress';
import './request.css';
import { countWaiting, type ShownRequest } from './shown-request';
import { Timeline } from './timeline';
import { WhyItWaits } from './waits';

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
  const { data, error, requestedAt, again } = useViewQuery(RequestPageDocument, { id: requestId });
  const [version, setVersion] = useState(0);
  useShortcuts([
    {
      key: 'u',
      text: 'Go to the list of requests',
      run: () => {
        location.hash = linkTo(['requests']);
      },
    },
  ]);
  const reload = useCallback(() => {
    again();
    setVersion((before) => before + 1);
  }, [again]);
  const read = data?.request;
  const step = useProgress(read ? [read] : [], requestedAt).get(requestId);
  useThrottled(step?.eventId, reload);
  useRequestChanges(reload, requestId);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <Skeleton />;
  if (!read) return <Title text={`Request ${requestId} does not exist, or you are not allowed to see it.`} />;
  const request: ShownRequest = { ...read, ...step };
  return (
    <>
      <Breadcrumb
        label="Position"
        parents={[{ text: 'All requests', href: linkTo(['requests']) }]}
        current={`Request ${requestId}`}
      />
      <div class="request-head">
        <div>
          <Title text={`Request ${requestId}`}>
            <RequestStateName request={request} />
          </Title>
          <p class="request-label">
            <bdi>{nameRequest(request)}</bdi>
          </p>
        </div>
        <RequestActions request={request} again={reload} />
      </div>
      {error && <Problem error={error} again={again} />}
      <RequestProgress request={request} />
      <Timeline request={request} />
      <RequestTabs request={request} version={version} again={reload} />
    </>
  );
}

interface RequestTabsProps {
  request: ShownRequest;
  version: number;
  again(): void;
}

/** Shows the tabs. The address contains the name of the chosen tab. */
function RequestTabs(props: RequestTabsProps) {
  const { request, version } = props;
  const { parts, search } = useRoute();
  const waiting = countWaiting(request);
  const tabs: Tab[] = [
    { value: 'files', title: 'Files', count: request.filesTotal, content: () => <RequestFiles {...props} /> },
    { value: 'activity', title: 'Activity', content: () => <Activity request={request} version={version} /> },
    ...(waiting > 0 && !isOver(request.state)
      ? [
          {
            value: 'waits',
            title: 'Waiting',
            count: waiting,
            content: () => <WhyItWaits request={request} version={version} />,
          },
        ]
      : []),
    { value: 'details', title: 'Details', content: () => <Details request={request} version={version} /> },
  ];
  const chosen = tabs.find(({ value }) => value === search.get('tab'))?.value ?? 'files';
  return (
    <Tabs
      label="Parts of the request"
      tabs={tabs}
      value={chosen}
      onChoose={(tab) => chooseHere(parts, { tab: tab === 'files' ? undefined : tab })}
    />
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

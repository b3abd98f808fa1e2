/** What a request is, what it waits for, and what is left out of it. */
import type { ComponentChildren } from 'preact';
import { count, formatBytes } from '../format';
import { tellExactness, tellNoMatch } from '../no-match';
import { useNow } from '../now';
import { Moment } from '../parts/moment';
import { isOver } from '../parts/state';
import type { ShownRequest } from './shown-request';

export function RequestFacts({ request }: { request: ShownRequest }) {
  const hasEnded = isOver(request.state);
  return (
    <dl class="pairs">
      <Fact name="Asked for">{tellAskedFor(request)}</Fact>
      <Fact name="Quota">
        <bdi>{request.quota.user}</bdi>
      </Fact>
      <Fact name="Asked at">
        <Moment at={request.requestDate} isFull side="past" />
      </Fact>
      <Fact name={hasEnded ? 'Ended' : 'Kept until'}>
        <Moment at={request.retention} isFull side={hasEnded ? 'past' : undefined} />
      </Fact>
      {request.notifyOnLastFile && !hasEnded && (
        <Fact name="Mail when done">
          <bdi>{request.notifyOnLastFile}</bdi>
        </Fact>
      )}
      {request.restoredBelow.length > 0 && !hasEnded && (
        <Fact name="On disk below">
          {request.restoredBelow.map((place) => (
            <code key={place}>{place}</code>
          ))}
        </Fact>
      )}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

const countExcluded = ({ filesUnknown, filesRefused, filesOverLimit }: ShownRequest): number =>
  filesUnknown + filesRefused + filesOverLimit;

function tellAskedFor(request: ShownRequest): ComponentChildren {
  if (request.pattern)
    return (
      <>
        All files with <bdi>{JSON.stringify(request.pattern)}</bdi> in their path, later ones too
      </>
    );
  const paths = request.filesTotal + request.filesReleased + countExcluded(request);
  return `A list of ${count(paths, 'path')}: see below`;
}

/** Why a request has no file. */
export function tellEmpty(request: ShownRequest): string {
  const { state, pattern, filesReleased, filesUnknown } = request;
  if (filesReleased > 0) return `No file is left in it: ${count(filesReleased, 'file')} let go`;
  if (filesUnknown > 0 && filesUnknown === countExcluded(request)) {
    return `No file is in it: the catalogue knows none of its paths ${tellExactness('')}`;
  }
  if (pattern === '' || countExcluded(request) > 0 || request.hasMoreExcluded) return 'No file is in it';
  return `Nothing matched: ${tellNoMatch(pattern)}${isOver(state) ? '' : '. What appears later joins it'}`;
}

export function WaitingFor({ request: { waiting } }: { request: ShownRequest }) {
  if (!waiting) return null;
  const { end, endUnknown, place, parts } = waiting;
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">Waiting</h2>
      <p>
        {count(waiting.files, 'file')}, {formatBytes(waiting.bytes)}
        {place !== null && `, next in place ${place} of the queue`}.{' '}
        {end ? <PlannedEnd end={end} /> : (endUnknown ?? 'Nobody can tell yet when.')}
      </p>
      <ul>
        {parts.edges.map(({ node }) => (
          <li key={`${node.reason} ${node.volume}`}>
            {count(node.files, 'file')}, {formatBytes(node.bytes)}: <bdi>{node.explanation}</bdi>
          </li>
        ))}
      </ul>
    </section>
  );
}

const SOON_MS = 30_000;

function PlannedEnd({ end }: { end: NonNullable<NonNullable<ShownRequest['waiting']>['end']> }) {
  const isSoon = Date.parse(end.latest) < useNow() + SOON_MS;
  if (isSoon) return <>By the plan it is done in a moment.</>;
  return (
    <>
      By the plan it is done at <Moment at={end.planned} isFull side="ahead" />; at the earliest{' '}
      <Moment at={end.earliest} side="ahead" />, at the latest <Moment at={end.latest} side="ahead" />.
    </>
  );
}

const whyExcluded = {
  UNKNOWN: 'the catalogue does not know it',
  QUOTA_FULL: 'the quota is full',
  LIMIT: 'it is beyond the limits of the request',
} as const;

export function ExcludedPaths({ request }: { request: ShownRequest }) {
  const paths = request.unresolved.edges.map(({ node }) => node);
  if (paths.length === 0) return null;
  return (
    <section aria-labelledby="left-out">
      <h2 id="left-out">{isOver(request.state) ? 'Never in the request' : 'Not in the request yet'}</h2>
      <ul>
        {paths.map(({ path, reason }) => (
          <li key={path}>
            <code>{path}</code>: {whyExcluded[reason]}
          </li>
        ))}
        {request.unresolved.pageInfo.hasNextPage && <li>and more</li>}
      </ul>
    </section>
  );
}

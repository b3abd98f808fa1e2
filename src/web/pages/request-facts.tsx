/** Shows a request's details: properties, waiting files and excluded paths. */
import type { ComponentChildren } from 'preact';
import { count, formatBytes, isSoon } from '../format';
import { describeMatching, describeNoMatch } from '../no-match';
import { useNow } from '../now';
import { Moment } from '../parts/moment';
import { isOver } from '../parts/state';
import type { ShownRequest } from './shown-request';

export function RequestFacts({ request }: { request: ShownRequest }) {
  const hasEnded = isOver(request.state);
  return (
    <dl class="pairs">
      <Fact name="Requested files">{describeRequested(request)}</Fact>
      <Fact name="Quota">
        <bdi>{request.quota.user}</bdi>
      </Fact>
      <Event name="Requested" at={request.createdAt} />
      <Event name="First recall" at={request.recallsStartedAt} />
      <Event name="First file on disk" at={request.firstFileOnDiskAt} />
      <Event name="Finished" at={request.finishedAt} />
      <Fact name={hasEnded ? 'Ended' : 'Expires'}>
        <Moment at={request.retention} isFull side={hasEnded ? 'past' : undefined} />
      </Fact>
      {request.notifyOnLastFile && !hasEnded && (
        <Fact name="Email when complete">
          <bdi>{request.notifyOnLastFile}</bdi>
        </Fact>
      )}
      {request.restoredBelow.length > 0 && !hasEnded && (
        <Fact name="Directory on disk">
          {request.restoredBelow.map((directory) => (
            <code key={directory}>{directory}</code>
          ))}
        </Fact>
      )}
    </dl>
  );
}

function Event({ name, at }: { name: string; at: string | null }) {
  if (at === null) return null;
  return (
    <Fact name={name}>
      <Moment at={at} isFull side="past" />
    </Fact>
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

function describeRequested(request: ShownRequest): ComponentChildren {
  if (request.pattern)
    return (
      <>
        All files with <bdi>{JSON.stringify(request.pattern)}</bdi> in their path, including files added later
      </>
    );
  const paths = request.filesTotal + request.filesReleased + countExcluded(request);
  return `A list of ${count(paths, 'path')}: see below`;
}

/** Describes why a request does not contain any files. */
export function describeEmpty(request: ShownRequest): string {
  const { state, pattern, filesReleased, filesUnknown } = request;
  if (filesReleased > 0) return `The request contains no files: ${count(filesReleased, 'file')} released`;
  if (filesUnknown > 0 && filesUnknown === countExcluded(request)) {
    return `The request contains no files: its paths are not in the catalogue ${describeMatching('')}`;
  }
  if (pattern === null || countExcluded(request) > 0 || request.hasMoreExcluded) return 'The request contains no files';
  return `No match: ${describeNoMatch(pattern)}${isOver(state) ? '' : '. Matching files that are added to the catalogue later are also requested'}`;
}

export function WaitingFor({ request: { waiting } }: { request: ShownRequest }) {
  if (!waiting) return null;
  const { end, endUnknown, queuePosition, parts } = waiting;
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">Waiting</h2>
      <p>
        {count(waiting.fileCount, 'file')}, {formatBytes(waiting.bytes)}
        {queuePosition !== null && `, at position ${queuePosition} in the queue`}.{' '}
        {end ? <PlannedEnd end={end} /> : (endUnknown ?? 'It is not known yet when the request will end.')}
      </p>
      <ul>
        {parts.edges.map(({ node }) => (
          <li key={`${node.reason} ${node.volumeName}`}>
            {count(node.fileCount, 'file')}, {formatBytes(node.bytes)}: <bdi>{node.explanation}</bdi>
          </li>
        ))}
      </ul>
    </section>
  );
}

function PlannedEnd({ end }: { end: NonNullable<NonNullable<ShownRequest['waiting']>['end']> }) {
  const now = useNow();
  if (isSoon(Date.parse(end.latest), now)) return <>The request is expected to end in a moment.</>;
  return (
    <>
      The request is expected to end <Moment at={end.planned} isFull side="ahead" />; at the earliest{' '}
      <Moment at={end.earliest} side="ahead" />, at the latest <Moment at={end.latest} side="ahead" />
      {end.isMeasured ? '' : ' (estimate without measurements)'}.
    </>
  );
}

const whyExcluded = {
  UNKNOWN: 'not in the catalogue',
  QUOTA_FULL: 'the quota is full',
  LIMIT: "over the request's limits",
} as const;

export function ExcludedPaths({ request }: { request: ShownRequest }) {
  const paths = request.unresolved.edges.map(({ node }) => node);
  if (paths.length === 0) return null;
  return (
    <section aria-labelledby="left-out">
      <h2 id="left-out">
        {isOver(request.state) ? 'Requested paths that could not be added' : 'Paths not yet in the request'}
      </h2>
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

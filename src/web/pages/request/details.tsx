/** Shows the properties of a request, and the requested paths that are not in it. */
import type { ComponentChildren } from 'preact';
import { RequestDirectoriesDocument } from '../../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../../format';
import { EmailNote } from '../../parts/email-note';
import { Moment } from '../../parts/moment';
import { isOver } from '../../parts/state';
import { linkTo } from '../../route';
import { countExcluded } from './progress';
import type { ShownRequest } from './shown-request';
import { useTabQuery } from './tab-query';

export function Details({ request, version }: { request: ShownRequest; version: number }) {
  return (
    <>
      <Facts request={request} version={version} />
      <ExcludedPaths request={request} />
    </>
  );
}

function Facts({ request, version }: { request: ShownRequest; version: number }) {
  const { quota, createdAt, recallsStartedAt, firstFileOnDiskAt, finishedAt, retention, priority } = request;
  const hasEnded = isOver(request.state);
  return (
    <dl class="pairs">
      <Fact name="Requested files">{describeRequested(request)}</Fact>
      <Fact name="Quota">
        <a href={linkTo(['quotas', quota.user])}>
          <bdi>{quota.user}</bdi>
        </a>
      </Fact>
      <Time name="Requested" at={createdAt} />
      <Time name="First recall" at={recallsStartedAt} />
      <Time name="First file on disk" at={firstFileOnDiskAt} />
      <Time name="Finished" at={finishedAt} />
      <Fact name={hasEnded ? 'Ended' : 'Expires'}>
        <Moment at={retention} isFull side={hasEnded ? 'past' : undefined} />
      </Fact>
      {!hasEnded && <Email name="Email at the first file" address={request.notifyOnFirstFile} />}
      {!hasEnded && <Email name="Email when complete" address={request.notifyOnLastFile} />}
      {request.filesReleased > 0 && <Fact name="Released">{count(request.filesReleased, 'file')}</Fact>}
      {request.maxFiles !== null && <Fact name="File limit">{formatNumber(request.maxFiles)}</Fact>}
      {request.maxBytes !== null && <Fact name="Size limit">{formatBytes(request.maxBytes)}</Fact>}
      {priority !== 0 && <Fact name="Priority">{priority}</Fact>}
      {!hasEnded && request.filesOnDisk > 0 && <Directories id={request.requestId} version={version} />}
    </dl>
  );
}

function Directories({ id, version }: { id: number; version: number }) {
  const { data } = useTabQuery(RequestDirectoriesDocument, { id }, version);
  const directories = data?.request?.restoredBelow ?? [];
  if (directories.length === 0) return null;
  return (
    <Fact name="Folder on disk">
      {directories.map((directory) => (
        <code key={directory}>{directory} </code>
      ))}
    </Fact>
  );
}

function Email({ name, address }: { name: string; address: string | null }) {
  if (!address) return null;
  return (
    <Fact name={name}>
      <bdi>{address}</bdi>
      <EmailNote />
    </Fact>
  );
}

function Time({ name, at }: { name: string; at: string | null }) {
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

function describeRequested(request: ShownRequest): ComponentChildren {
  if (request.pattern)
    return (
      <>
        All files with <bdi>{JSON.stringify(request.pattern)}</bdi> in their path, including files added later
      </>
    );
  return `A list of ${count(request.filesTotal + request.filesReleased + countExcluded(request), 'path')}`;
}

const whyExcluded = {
  UNKNOWN: 'not in the catalogue',
  QUOTA_FULL: 'the quota is full',
  LIMIT: "over the request's limits",
} as const;

function ExcludedPaths({ request }: { request: ShownRequest }) {
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

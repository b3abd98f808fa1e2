/** Shows the whole site on one page: what the drives do, what waits, what fails, and what needs an operator. */

import type { ComponentChildren } from 'preact';
import {
  DriveActivityDocument,
  type DriveActivityQuery,
  FailureCountsDocument,
  LibrariesInServiceDocument,
  ProcessesDocument,
  RestoreDisksDocument,
  SuspensionsDocument,
} from '../../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../../format';
import { ArrowRight } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { Tally } from '../../parts/tabs';
import { Title } from '../../parts/title';
import { DriveCards } from './drive-cards';
import { formatDuration, formatRate } from './durations';
import { type LastHour, useLastHour } from './last-hour';
import { useLiveQuery } from './live';
import { SuspendedName } from './people';
import { Life, nameOfProcess, processKey } from './processes';
import { Cut, ServiceState } from './service';
import { DiskUsage } from './storage';

export function OverviewPage() {
  const { data, error, again } = useLiveQuery(DriveActivityDocument, {}, 'DRIVES', 'QUEUE', 'SUSPENSIONS', 'LIBRARIES');
  const lastHour = useLastHour();
  const plan = data?.plan;
  return (
    <>
      <Title text="Overview" />
      {error && <Problem error={error} again={again} />}
      {!plan && !error && <Skeleton />}
      {plan && (
        <>
          <div class="tiles">
            <ThroughputTile lastHour={lastHour} />
            <QueueTile plan={plan} lastHour={lastHour} />
            <FailuresTile lastHour={lastHour} />
          </div>
          <Heading href="#/plan" count={plan.drives.length}>
            Drives
          </Heading>
          <DriveCards drives={plan.drives} />
        </>
      )}
      <div class="columns">
        <Disks />
        <OutOfService />
        <FailedLibraries />
        <Processes />
      </div>
    </>
  );
}

interface HeadingProps {
  /** Address of the view with the details. */
  href: string;
  count?: number | undefined;
  children: string;
}

function Heading({ href, count: number, children }: HeadingProps) {
  return (
    <h2 class="linked">
      <a href={href}>
        {children} <ArrowRight class="icon" size={14} aria-hidden="true" />
      </a>
      {number !== undefined && <Tally count={number} />}
    </h2>
  );
}

interface TileProps {
  title: string;
  href: string;
  value: ComponentChildren;
  children?: ComponentChildren;
}

/** An important figure, with a link to its details. */
function Tile({ title, href, value, children }: TileProps) {
  return (
    <section class="card tile" aria-label={title}>
      <a href={href}>{title}</a>
      <strong>{value}</strong>
      {children}
    </section>
  );
}

function ThroughputTile({ lastHour }: { lastHour: LastHour | undefined }) {
  if (!lastHour) return <Tile title="Restored in the last hour" href="#/curves?hours=6" value="…" />;
  const { bytes, files, seconds, slots } = lastHour;
  const rate = formatRate(bytes / seconds);
  const most = Math.max(1, ...slots);
  return (
    <Tile title="Restored in the last hour" href="#/curves?hours=6" value={formatBytes(bytes)}>
      <svg class="bars" viewBox="0 0 120 30" preserveAspectRatio="none" role="img" aria-label={`Mean rate ${rate}`}>
        {slots.map((height, slot) => {
          const shown = Math.max(1, (height / most) * 30);
          return <rect key={slot} x={slot * 10 + 1} width="8" y={30 - shown} height={shown} />;
        })}
      </svg>
      <span class="facts">
        {count(files, 'file')}, {rate}
      </span>
    </Tile>
  );
}

type Activity = NonNullable<DriveActivityQuery['plan']>;

function QueueTile({ plan, lastHour }: { plan: Activity; lastHour: LastHour | undefined }) {
  const oldest = lastHour?.oldestSeconds;
  return (
    <Tile title="Queue" href="#/plan" value={`${count(plan.filesWaiting, 'file')}`}>
      <span class="facts">
        {formatBytes(plan.bytesWaiting)} on {count(plan.queue.totalCount, 'volume')}
      </span>
      <span class="facts">
        {plan.filesWaiting === 0
          ? 'No files waiting'
          : oldest == null
            ? 'The longest wait is not measured yet'
            : `Longest wait ${formatDuration(oldest)}`}
      </span>
      <a class="more" href="#/what-if">
        What if a drive is added or fails?
      </a>
    </Tile>
  );
}

function FailuresTile({ lastHour }: { lastHour: LastHour | undefined }) {
  const { data } = useLiveQuery(FailureCountsDocument, {}, 'QUEUE');
  const failed = data?.failedFiles?.totalCount ?? 0;
  const recalls = data?.recalls?.totalCount ?? 0;
  const verifications = data?.verificationFailures?.totalCount ?? 0;
  const total = failed + recalls + verifications;
  return (
    <Tile title="Failures" href="#/failures" value={data ? (total > 0 ? formatNumber(total) : 'None') : '…'}>
      <span class="facts">
        <a href="#/failures">{count(failed, 'file')} failed permanently</a>
      </span>
      <span class="facts">
        <a href="#/failures?tab=recalls">{count(recalls, 'recall')} delayed by an error</a>
      </span>
      <span class="facts">
        <a href="#/failures?tab=verifications">{count(verifications, 'failed verification')}</a>
      </span>
      <span class="facts">{count(lastHour?.filesFailed ?? 0, 'failed restore')} in the last hour</span>
    </Tile>
  );
}

/** Number of rows of each list on the overview. */
const SHOWN = 10;

function Disks() {
  const { data } = useLiveQuery(RestoreDisksDocument, { first: SHOWN }, 'DISKS', 'SUSPENSIONS');
  const disks = data?.list?.edges.map(({ node }) => node) ?? [];
  return (
    <section>
      <Heading href="#/disks">Disks</Heading>
      {data && disks.length === 0 && <p class="facts">No restore disk is registered yet.</p>}
      <ul class="plain-list">
        {disks.map((disk) => (
          <li key={disk.mountpoint}>
            <div class="line-ends">
              <code>{disk.mountpoint}</code>
              <span>
                {formatBytes(roomOn(disk))} free of {formatBytes(disk.size)}
              </span>
            </div>
            <DiskUsage disk={disk} />
            {disk.problem && <div class="why">{disk.problem}</div>}
            {disk.suspension && <ServiceState suspension={disk.suspension} />}
          </li>
        ))}
      </ul>
      {data?.list?.pageInfo.hasNextPage && <a href="#/disks">All disks</a>}
    </section>
  );
}

/** Returns the number of bytes that Tapegate can still use on a disk: the smaller of its remaining limit and the free space. */
function roomOn({ size, used, reserved, free }: { size: bigint; used: bigint; reserved: bigint; free: bigint | null }) {
  const left = size - used - reserved;
  const room = free !== null && free < left ? free : left;
  return room > 0n ? room : 0n;
}

function OutOfService() {
  const { data } = useLiveQuery(SuspensionsDocument, { first: SHOWN }, 'SUSPENSIONS');
  const rows = data?.list?.edges.map(({ node }) => node) ?? [];
  return (
    <section>
      <Heading href="#/suspensions" count={data?.list?.totalCount}>
        Out of service
      </Heading>
      {data && rows.length === 0 && <p class="facts">Everything is in service</p>}
      <ul class="plain-list">
        {rows.map((row) => (
          <li key={`${row.kind}:${row.name}`}>
            <div class="line-ends">
              <span>
                {row.kind.charAt(0) + row.kind.slice(1).toLowerCase()} <SuspendedName {...row} />
              </span>
              <Moment at={row.since} side="past" />
            </div>
            <ServiceState suspension={row} />
          </li>
        ))}
      </ul>
      {data?.list?.pageInfo.hasNextPage && <a href="#/suspensions">All that is out of service</a>}
    </section>
  );
}

/** Shows the libraries that do not answer; nothing if all libraries work. */
function FailedLibraries() {
  const { data } = useLiveQuery(LibrariesInServiceDocument, { first: 1000 }, 'LIBRARIES');
  const failed = data?.list?.edges.map(({ node }) => node).filter(({ problem }) => problem !== null) ?? [];
  if (failed.length === 0) return null;
  return (
    <section>
      <Heading href="#/libraries" count={failed.length}>
        Failed libraries
      </Heading>
      <ul class="plain-list">
        {failed.map(({ name, problem }) => (
          <li key={name}>
            {name} <div class="why">{problem}</div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Processes() {
  const { data } = useLiveQuery(ProcessesDocument, {}, 'PROCESSES');
  // show silent processes first
  const processes = [...(data?.processes ?? [])].sort((a, b) => Number(a.isAlive) - Number(b.isAlive));
  const hasEngine = processes.some(({ kind, isAlive }) => kind === 'ENGINE' && isAlive);
  return (
    <section>
      <Heading href="#/processes" count={data?.processes?.length}>
        Engines and gateways
      </Heading>
      {data && !hasEngine && (
        <p class="problem" role="alert">
          No engine is running: files are not restored.
        </p>
      )}
      <ul class="plain-list">
        {processes.slice(0, SHOWN).map((process) => (
          <li key={processKey(process)} class="line-ends">
            <Cut text={nameOfProcess(process)} />
            <Life isAlive={process.isAlive} />
          </li>
        ))}
      </ul>
      {processes.length > SHOWN && <a href="#/processes">All engines and gateways</a>}
    </section>
  );
}

/** Shows how far a request is: a bar, counts, the arrival in one sentence, and the rate. */

import type { ComponentChildren } from 'preact';
import { formatSpan } from '../../../core/text/spans.js';
import { count, formatBytes, isSoon, share } from '../../format';
import { describeMatching, describeNoMatch } from '../../no-match';
import { useNow } from '../../now';
import { Bar } from '../../parts/bar';
import { CircleCheck, Clock, TriangleAlert } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { formatRestored } from '../../parts/restored';
import { isOver } from '../../parts/state';
import { linkTo } from '../../route';
import { formatClock } from './clock';
import { countWaiting, type ShownRequest } from './shown-request';

export function RequestProgress({ request }: { request: ShownRequest }) {
  const { requestId, filesOnDisk, filesTotal, filesFailed, state } = request;
  const what = isOver(state) ? 'Files that were on disk' : 'Files on disk';
  const missing = describeMissing(request);
  const done = share(filesOnDisk, filesTotal);
  return (
    <section class="request-state" aria-label="Progress">
      {filesTotal > 0 && (
        <div class="request-bar">
          <Bar value={done} label={what} />
          <strong>{Math.floor(done * 100)}%</strong>
        </div>
      )}
      <p role="status">
        {filesTotal === 0 ? describeEmpty(request) : describeCounts(request)}
        {missing && (
          <>
            ; <a href={linkTo(['requests', requestId], { tab: 'details' })}>{missing}</a>
          </>
        )}
        {filesFailed > 0 && (
          <>
            ,{' '}
            <a class="failed" href={linkTo(['requests', requestId], { state: 'failed' })}>
              {count(filesFailed, 'file')} failed
            </a>
          </>
        )}
        {state === 'RESTORING' && describePace(request)}
      </p>
      <Arrival request={request} />
    </section>
  );
}

function describeCounts(request: ShownRequest): string {
  const { bytesOnDisk, bytesTotal } = request;
  return `${formatRestored(request)}, ${formatBytes(bytesOnDisk)} of ${formatBytes(bytesTotal)}`;
}

/** Returns text such as `2 names not found, 1 file over the quota`; an empty string if no file is missing. */
function describeMissing({ filesUnknown, filesRefused }: ShownRequest): string {
  return [
    ...(filesUnknown > 0 ? [`${count(filesUnknown, 'name')} not found`] : []),
    ...(filesRefused > 0 ? [`${count(filesRefused, 'file')} over the quota`] : []),
  ].join(', ');
}

/** Returns the rate and the elapsed time; an empty string before the first progress event. */
function describePace({ bytesPerSecond, elapsedSeconds }: ShownRequest): string {
  const rate = bytesPerSecond ? `, ${formatBytes(Math.round(bytesPerSecond))}/s` : '';
  const elapsed = elapsedSeconds ? `, ${formatSpan(Math.max(elapsedSeconds, 1))} elapsed` : '';
  return rate + elapsed;
}

export const countExcluded = ({ filesUnknown, filesRefused, filesOverLimit }: ShownRequest): number =>
  filesUnknown + filesRefused + filesOverLimit;

/** Describes why a request does not contain any files. */
function describeEmpty(request: ShownRequest): string {
  const { state, pattern, filesReleased, filesUnknown } = request;
  if (filesReleased > 0) return `The request contains no files: ${count(filesReleased, 'file')} released`;
  if (filesUnknown > 0 && filesUnknown === countExcluded(request)) {
    return `The request contains no files: its paths are not in the catalogue ${describeMatching('')}`;
  }
  if (pattern === null || countExcluded(request) > 0 || request.hasMoreExcluded) return 'The request contains no files';
  return `No match: ${describeNoMatch(pattern)}${isOver(state) ? '' : '. Matching files that are added to the catalogue later are also requested'}`;
}

/** Says in one sentence when the files arrive or arrived. */
function Arrival({ request }: { request: ShownRequest }) {
  const now = useNow();
  const { state, filesTotal, filesOnDisk, filesFailed, finishedAt, createdAt, waiting } = request;
  if (filesTotal === 0 || isOver(state)) return null;
  if (countWaiting(request) === 0 && finishedAt !== null) {
    const took = (Date.parse(finishedAt) - Date.parse(createdAt)) / 1000;
    const isWhole = filesOnDisk === filesTotal;
    return (
      <ArrivalLine isGood={isWhole}>
        {isWhole ? 'All files restored' : 'The request ended'} <Moment at={finishedAt} side="past" />,{' '}
        {isWhole ? 'in' : 'after'} {formatSpan(Math.max(took, 1))}
      </ArrivalLine>
    );
  }
  const end = request.end ?? waiting?.end;
  if (!end) {
    const why = waiting?.endUnknown ?? 'The plan has not been made yet';
    return <ArrivalLine>No arrival time yet. {capitalize(why)}</ArrivalLine>;
  }
  const what = filesFailed > 0 ? 'The other files' : 'All files';
  const note = end.isMeasured ? '' : ' (estimate without measurements)';
  if (isSoon(Date.parse(end.latest), now)) return <ArrivalLine>{`${what} in a moment${note}.`}</ArrivalLine>;
  const left = Math.max((Date.parse(end.planned) - now) / 1000, 1);
  return (
    <ArrivalLine>
      {what} in about {formatSpan(left)} (between {formatClock(end.earliest, now)} and {formatClock(end.latest, now)})
      {note}.
      {waiting?.queuePosition != null && (
        <>
          {' '}
          <a href={linkTo(['requests', request.requestId], { tab: 'waits' })}>
            Position {waiting.queuePosition} in the queue
          </a>
        </>
      )}
    </ArrivalLine>
  );
}

const capitalize = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function ArrivalLine({ isGood, children }: { isGood?: boolean; children: ComponentChildren }) {
  const Icon = isGood === undefined ? Clock : isGood ? CircleCheck : TriangleAlert;
  return (
    <p class="request-arrival">
      <Icon class="icon" size={18} aria-hidden="true" />
      <span>{children}</span>
    </p>
  );
}

/** Shows the progress of a request, both in the list and in the view of a single request. */
import type { ComponentChildren } from 'preact';
import { formatFiles, formatMissing } from '../../core/text/requested-files.js';
import { formatSpan } from '../../core/text/spans.js';
import type { RequestLineFragment } from '../../generated/operations.js';
import { count, formatBytes, share } from '../format';
import type { Progress } from '../live-progress';
import { Bar } from './bar';
import { isOver } from './state';

interface RequestSummaryProps {
  request: RequestLineFragment & Partial<Pick<Progress, 'bytesPerSecond' | 'elapsedSeconds' | 'end'>>;
  name?: string;
  /** Whether screen readers announce progress. */
  isLive?: boolean;
  /** Reason why the request does not contain any files, if known. */
  why?: string;
  /** Additional text on the line with the file counts. */
  children?: ComponentChildren;
}

/** Shows a bar with the share of files on disk, and a text with the numbers of all files and failed files. */
export function RequestSummary({ request, name, isLive = false, why, children }: RequestSummaryProps) {
  const { state, filesOnDisk, filesTotal, filesFailed } = request;
  const what = isOver(state) ? 'files that were on disk' : 'files on disk';
  return (
    <>
      {filesTotal > 0 && (
        <Bar value={share(filesOnDisk, filesTotal)} label={name ? `${name}: ${what}` : what.replace('f', 'F')} />
      )}
      <p class="facts" role={isLive ? 'status' : undefined}>
        {filesTotal === 0 ? (why ?? 'The request contains no files') : describeProgress(request)}
        {filesFailed > 0 && <strong>, {count(filesFailed, 'file')} failed</strong>}
        {state === 'RESTORING' && describePace(request)}
        {children}
      </p>
    </>
  );
}

/** Returns the rate, the elapsed and the remaining time of a request; an empty string before the first progress event. */
function describePace({ bytesPerSecond, elapsedSeconds, end }: RequestSummaryProps['request']): string {
  const rate = bytesPerSecond ? `, ${formatBytes(Math.round(bytesPerSecond))}/s` : '';
  const elapsed = elapsedSeconds ? `, ${formatSpan(Math.max(elapsedSeconds, 1))} elapsed` : '';
  if (!end) return rate + elapsed;
  const left = (Date.parse(end.planned) - Date.parse(end.at)) / 1000;
  const note = end.isMeasured ? '' : ' (without measurements)';
  return `${rate}${elapsed}, about ${formatSpan(Math.max(left, 1))} left${note}`;
}

function describeProgress(request: RequestLineFragment): string {
  const { state, bytesOnDisk, bytesTotal } = request;
  const missing = formatMissing(request, count);
  const bytes = `${formatBytes(bytesOnDisk)} of ${formatBytes(bytesTotal)}`;
  return `${isOver(state) ? 'Had ' : ''}${formatFiles(request, count)}, ${bytes}${missing && `; ${missing}`}`;
}

/** Shows the progress of a request, both in the list and in the view of a single request. */
import type { ComponentChildren } from 'preact';
import { formatFiles, formatMissing } from '../../core/text/requested-files.js';
import type { RequestLineFragment } from '../../generated/operations.js';
import { count, formatBytes, share } from '../format';
import { Bar } from './bar';
import { isOver } from './state';

interface RequestSummaryProps {
  request: RequestLineFragment;
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
        {children}
      </p>
    </>
  );
}

function describeProgress(request: RequestLineFragment): string {
  const { state, bytesOnDisk, bytesTotal } = request;
  const missing = formatMissing(request, count);
  const bytes = `${formatBytes(bytesOnDisk)} of ${formatBytes(bytesTotal)}`;
  return `${isOver(state) ? 'Had ' : ''}${formatFiles(request, count)}, ${bytes}${missing && `; ${missing}`}`;
}

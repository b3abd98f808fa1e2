/** How far a request is, in its view and in the list. */
import type { ComponentChildren } from 'preact';
import { formatFiles, formatMissing } from '../../core/requested-files.js';
import type { RequestLineFragment } from '../../generated/web-operations';
import { count, formatBytes, share } from '../format';
import { Bar } from './bar';
import { isOver } from './state';

interface RequestFiguresProps {
  request: RequestLineFragment;
  /** What its bar is called among others. */
  name?: string;
  /** It is read aloud when it changes. */
  isTold?: boolean;
  /** Why it has no file, where that is known. */
  why?: string;
  /** What else stands in its line. */
  children?: ComponentChildren;
}

/** What was given up is not there: the bar has what is, and the text names both. */
export function RequestFigures({ request, name, isTold = false, why, children }: RequestFiguresProps) {
  const { state, filesOnDisk, filesTotal, filesFailed } = request;
  const what = isOver(state) ? 'files that were there' : 'files that are there';
  return (
    <>
      {filesTotal > 0 && (
        <Bar value={share(filesOnDisk, filesTotal)} label={name ? `${name}: ${what}` : what.replace('f', 'F')} />
      )}
      <p class="facts" role={isTold ? 'status' : undefined}>
        {filesTotal === 0 ? (why ?? 'No file is in it') : tellFigures(request)}
        {filesFailed > 0 && <strong>, {count(filesFailed, 'file')} failed</strong>}
        {children}
      </p>
    </>
  );
}

function tellFigures(request: RequestLineFragment): string {
  const { state, bytesOnDisk, bytesTotal } = request;
  const missing = formatMissing(request, count);
  const bytes = `${formatBytes(bytesOnDisk)} of ${formatBytes(bytesTotal)}`;
  return `${isOver(state) ? 'Had ' : ''}${formatFiles(request, count)}, ${bytes}${missing && `; ${missing}`}`;
}

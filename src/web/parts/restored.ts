/** Tells how many files of a request are on disk, or were when the request ended. */
import { countMissing, formatFiles, type RequestedFiles } from '../../core/text/requested-files.js';
import type { RequestState } from '../../generated/operations.js';
import { count } from '../format';
import { isOver } from './state';

/** Returns text such as `1 of 3 files`, or `1 of 3 files were restored` for a request that has ended. */
export function formatRestored(request: RequestedFiles & { state: RequestState }): string {
  if (!isOver(request.state)) return formatFiles(request, count);
  const number = request.filesTotal + countMissing(request);
  return `${formatFiles(request, count)} ${number === 1 ? 'was' : 'were'} restored`;
}

/** Formats a request's file counts for commands, emails and the dashboard. */
import { plural } from './plural.js';

type Count = (count: number, one: string) => string;

export interface RequestedFiles {
  filesTotal: number;
  filesOnDisk: number;
  filesUnknown: number;
  filesRefused: number;
}

/**
 * Returns the number of missing files: requested paths that are not in the catalogue, plus files that do not fit into
 * the quota.
 */
export const countMissing = ({ filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>) =>
  filesUnknown + filesRefused;

/**
 * Returns text such as `18 of 20 files` for a request with 20 files, 18 of them on disk.
 * @param count formats a number with its noun, such as `20 files`
 */
export function formatFiles(request: RequestedFiles, count: Count = plural): string {
  return `${request.filesOnDisk} of ${count(request.filesTotal + countMissing(request), 'file')}`;
}

/** Returns text such as `2 unresolved paths, 1 file over the quota`, or an empty string if no file is missing. */
export function formatMissing(
  { filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>,
  count: Count = plural,
): string {
  return [
    ...(filesUnknown > 0 ? [count(filesUnknown, 'unresolved path')] : []),
    ...(filesRefused > 0 ? [`${count(filesRefused, 'file')} over the quota`] : []),
  ].join(', ');
}

/** Formats the number of files of a request for commands, emails and the dashboard. */
import { plural } from './plural.js';

type Count = (count: number, one: string) => string;

/** Counts of a request's files, as in GraphQL. */
export interface RequestedFiles {
  filesTotal: number;
  filesOnDisk: number;
  filesUnknown: number;
  filesRefused: number;
}

/**
 * Returns the number of requested paths and files that a request does not contain. Files beyond the request's own
 * limits do not count.
 */
export const countMissing = ({ filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>) =>
  filesUnknown + filesRefused;

/** Returns `18 of 20 files` if two files are missing. @param count formats a number with its noun */
export function formatFiles(request: RequestedFiles, count: Count = plural): string {
  return `${request.filesOnDisk} of ${count(request.filesTotal + countMissing(request), 'file')}`;
}

/** Returns `2 names not found, 1 file without room in the quota`. Returns an empty text if nothing is missing. */
export function formatMissing(
  { filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>,
  count: Count = plural,
): string {
  return [
    ...(filesUnknown > 0 ? [`${count(filesUnknown, 'name')} not found`] : []),
    ...(filesRefused > 0 ? [`${count(filesRefused, 'file')} without room in the quota`] : []),
  ].join(', ');
}

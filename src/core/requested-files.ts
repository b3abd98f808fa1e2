/** How commands, emails and the dashboard count the files of a request. */
import { plural } from './plural.js';

type Count = (count: number, one: string) => string;

/** Counts as GraphQL has them. */
export interface RequestedFiles {
  filesTotal: number;
  filesOnDisk: number;
  filesUnknown: number;
  filesRefused: number;
}

/** Number of requested paths and files that a request does not contain. Files beyond its own limits are not missing. */
export const countMissing = ({ filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>) =>
  filesUnknown + filesRefused;

/** `18 of 20 files`; two are missing. @param count formats a number with its noun */
export function formatFiles(request: RequestedFiles, count: Count = plural): string {
  return `${request.filesOnDisk} of ${count(request.filesTotal + countMissing(request), 'file')}`;
}

/** `2 names not found, 1 file without room in the quota`; empty if nothing is missing. */
export function formatMissing(
  { filesUnknown, filesRefused }: Pick<RequestedFiles, 'filesUnknown' | 'filesRefused'>,
  count: Count = plural,
): string {
  return [
    ...(filesUnknown > 0 ? [`${count(filesUnknown, 'name')} not found`] : []),
    ...(filesRefused > 0 ? [`${count(filesRefused, 'file')} without room in the quota`] : []),
  ].join(', ');
}

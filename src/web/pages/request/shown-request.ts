import type { RequestPageQuery, ShownFilesQuery } from '../../../generated/operations.js';
import type { Progress } from '../../live-progress';

/** The request that the view of a single request shows, with the newest progress if the request is active. */
export type ShownRequest = NonNullable<RequestPageQuery['request']> &
  Partial<Pick<Progress, 'bytesPerSecond' | 'elapsedSeconds' | 'end'>>;

/** A file in the list of the request's files. */
export type ShownFile = NonNullable<ShownFilesQuery['request']>['files']['edges'][number]['node'];

/** Returns the number of files that are not on disk yet and have not failed. */
export const countWaiting = ({ filesTotal, filesOnDisk, filesFailed }: ShownRequest): number =>
  filesTotal - filesOnDisk - filesFailed;

import type { RequestWithFilesQuery } from '../../generated/operations.js';

/** The request that the view of a single request shows. */
export type ShownRequest = NonNullable<RequestWithFilesQuery['request']>;

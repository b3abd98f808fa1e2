import type { RequestQuery } from '../../generated/web-operations';

/** The request that the view of a single request shows. */
export type ShownRequest = NonNullable<RequestQuery['request']>;

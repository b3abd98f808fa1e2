import type { RequestQuery } from '../../generated/web-operations';

/** The request that the view of one request shows. */
export type ShownRequest = NonNullable<RequestQuery['request']>;

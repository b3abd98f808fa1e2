import type { RequestQuery } from '../../generated/web-operations';

/** The request that the page shows. */
export type ShownRequest = NonNullable<RequestQuery['request']>;

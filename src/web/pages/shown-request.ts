import type { RequestQuery } from '../../generated/web-operations';

/** The request of the page. */
export type ShownRequest = NonNullable<RequestQuery['request']>;

import type { RequestQuery } from '../../generated/web-operations';

/** The request shown in the view of a single request. */
export type ShownRequest = NonNullable<RequestQuery['request']>;

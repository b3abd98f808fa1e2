import type { RequestQuery } from '../../generated/web-operations';

export type ShownRequest = NonNullable<RequestQuery['request']>;

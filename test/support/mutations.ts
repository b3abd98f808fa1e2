/** GraphQL mutations of requests. */
import { askData } from './graphql.js';
import type { Gateway } from './http.js';

/** Result of a mutation: fields of the changed request, or of the failure. */
interface MutationResult {
  __typename: string;
  message?: string;
  field?: string;
  requestId: number;
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesReleased: number;
  filesRefused: number;
  filesOverLimit: number;
  bytesTotal: string;
  maxFiles: number | null;
  maxBytes: string | null;
}

const PAYLOAD = `request {
    __typename requestId state filesTotal filesOnDisk filesReleased filesRefused filesOverLimit bytesTotal maxFiles maxBytes
  } errors { __typename message ... on InvalidInput { field } }`;

interface Payload {
  request: MutationResult | null;
  errors: MutationResult[];
}

async function mutate(gateway: Gateway, field: string, input: object): Promise<MutationResult> {
  const type = `${field[0]?.toUpperCase()}${field.slice(1)}Input`;
  const query = `mutation ($input: ${type}!) { result: ${field}(input: $input) { ${PAYLOAD} } }`;
  const { result } = await askData<{ result: Payload }>(gateway, query, { input });
  return (result.request ?? result.errors[0]) as MutationResult;
}

export const create = (gateway: Gateway, input: object) => mutate(gateway, 'createRequest', input);
export const update = (gateway: Gateway, input: object) => mutate(gateway, 'updateRequest', input);
export const release = (gateway: Gateway, input: object) => mutate(gateway, 'releaseFiles', input);

export const retry = (gateway: Gateway, input: object) => mutate(gateway, 'retryRequest', input);

/** Creates a request. Throws an error if the mutation fails. @returns the id of the request */
export async function made(gateway: Gateway, input: object): Promise<number> {
  const { __typename, requestId, message } = await create(gateway, input);
  if (__typename !== 'Request') throw new Error(`${__typename}: ${message}`);
  return requestId;
}

/** Cancels a request. Throws an error if the mutation fails. */
export async function cancel(gateway: Gateway, id: number): Promise<void> {
  const { __typename, message } = await mutate(gateway, 'cancelRequest', { requestId: id });
  if (__typename !== 'Request') throw new Error(`${__typename}: ${message}`);
}

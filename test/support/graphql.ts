/** GraphQL client with exact integers. */
import { type Answer, type Call, type Gateway, send } from './http.js';

export interface GraphqlAnswer {
  data?: unknown;
  errors?: { message: string; path?: (string | number)[]; extensions?: Record<string, unknown> }[];
}

/** @param body strings and bytes are sent unchanged */
export async function sendGraphql(
  gateway: Gateway,
  body: string | Uint8Array | object,
  { headers, ...rest }: Omit<Call, 'body'> = {},
): Promise<Answer & { body: GraphqlAnswer }> {
  const answer = await send(gateway, '/graphql', {
    ...rest,
    headers: { 'Content-Type': 'application/json', ...headers },
    body,
  });
  if (answer.body === undefined) throw new Error(`/graphql answered ${answer.status}: ${answer.text}`);
  return answer as Answer & { body: GraphqlAnswer };
}

/** Replaces bigints with strings, because GraphQL accepts integers beyond 2^53 only as strings. */
const withStrings = (_name: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);

/** @param variables an object, or its JSON text */
export async function ask(gateway: Gateway, query: string, variables: object | string = {}): Promise<GraphqlAnswer> {
  const text = typeof variables === 'string' ? variables : JSON.stringify(variables, withStrings);
  return (await sendGraphql(gateway, `{"query":${JSON.stringify(query)},"variables":${text}}`)).body;
}

/** Returns the data of a query that must succeed. */
export async function askData<Data>(gateway: Gateway, query: string, variables: object | string = {}): Promise<Data> {
  const { data, errors } = await ask(gateway, query, variables);
  if (errors) throw new Error(`${query} answered ${JSON.stringify(errors)}`);
  return data as Data;
}

/** Returns the error messages of a query that must fail. */
export async function askErrors(gateway: Gateway, query: string, variables: object | string = {}): Promise<string[]> {
  const { errors } = await ask(gateway, query, variables);
  if (!errors) throw new Error(`${query} was answered without an error`);
  return errors.map((error) => error.message);
}

export interface Edges<Node> {
  edges: { node: Node }[];
}

export interface Connection<Node> extends Edges<Node> {
  totalCount?: number;
  edges: { cursor: string; node: Node }[];
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null };
}

export const PAGE_INFO = 'pageInfo { hasNextPage hasPreviousPage startCursor endCursor }';

/** A client of /graphql that shows answers whole. */
import type { TestApp } from './app.js';

export interface GraphqlAnswer {
  status: number;
  text: string;
  data?: Record<string, unknown> | null;
  errors?: { message: string; extensions?: Record<string, unknown> }[];
}

/** A string is sent as it is. */
export async function sendGraphql(app: TestApp, body: string | Uint8Array | object): Promise<GraphqlAnswer> {
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const response = await fetch(`${app.url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: isRaw ? (body as string) : JSON.stringify(body),
  });
  const text = await response.text();
  return { ...(JSON.parse(text) as object), status: response.status, text };
}

export const graphql = (app: TestApp, query: string, variables: object = {}) => sendGraphql(app, { query, variables });

/** Ends a request, as only GraphQL can. */
export async function cancelRequest(app: TestApp, id: number): Promise<void> {
  const { data, text } = await graphql(app, 'mutation ($id: Int!) { cancelRequest(id: $id) { __typename } }', { id });
  if ((data?.cancelRequest as { __typename?: string } | undefined)?.__typename !== 'Request') throw new Error(text);
}

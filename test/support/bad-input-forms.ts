/** How a bad input is written down: for REST, for GraphQL, or for all that write requests. */

interface BadInputBase {
  name: string;
  /** What the message says. */
  says: RegExp;
  headers?: Record<string, string>;
}

export interface BadRest extends BadInputBase {
  protocol: 'REST';
  method: string;
  path: string;
  /** A string or bytes are sent as they are, anything else as JSON in an array. */
  body?: unknown;
  status: number;
  allow?: string;
}

export interface BadGraphql extends BadInputBase {
  protocol: 'GraphQL';
  /** A string or bytes are sent as they are, anything else as JSON. */
  body: string | Uint8Array | object;
  status: number;
}

/** What HTTP itself has to say about a request for GraphQL: answered with `errors` and without `data`. */
export interface BadHttp extends BadInputBase {
  protocol: 'HTTP';
  method: string;
  /** The target as it is sent, be it a path or a whole URL. */
  target: string;
  body?: string | undefined;
  status: number;
  allow?: string;
}

export type BadInput = BadRest | BadGraphql;

/** Fields of the contract and their names in GraphQL. */
export const NAMES: Record<string, string> = {
  patterns: 'pattern',
  notify_on_first_file: 'notifyOnFirstFile',
  notify_on_last_file: 'notifyOnLastFile',
};

export const CREATE =
  'mutation ($input: CreateRequestInput!) { createRequest(input: $input) { __typename ... on Failure { message } } }';
export const UPDATE =
  'mutation ($input: UpdateRequestInput!) { updateRequest(input: $input) { __typename ... on Failure { message } } }';

export const rest = (name: string, says: RegExp, call: Partial<BadRest>): BadRest => ({
  protocol: 'REST',
  name: `REST: ${name}`,
  method: 'POST',
  path: '/requests',
  status: 400,
  says,
  ...call,
});

export const graphql = (name: string, says: RegExp, body: BadGraphql['body'], status = 200): BadGraphql => ({
  protocol: 'GraphQL',
  name: `GraphQL: ${name}`,
  says,
  body,
  status,
});

export const http = (name: string, says: RegExp, call: Partial<BadHttp>): BadHttp => ({
  protocol: 'HTTP',
  name: `HTTP: ${name}`,
  method: 'GET',
  target: '/graphql',
  status: 400,
  says,
  ...call,
});

export const ask = (name: string, says: RegExp, query: string, variables: object = {}, status = 200) =>
  graphql(name, says, { query, variables }, status);

/** One field given to all four writers: POST and PUT, createRequest and updateRequest. */
export function writers(name: string, field: string, value: unknown, pattern: string, graphqlStatus = 200): BadInput[] {
  const says = new RegExp(pattern);
  const base = field === 'files' ? {} : { patterns: '/a/' };
  const created = { quota: 'alice', ...base, [field]: value };
  const input = Object.fromEntries(Object.entries(created).map(([key, v]) => [NAMES[key] ?? key, v]));
  const posted = [
    rest(`POST with ${name}`, says, { body: created }),
    ask(`createRequest with ${name}`, says, CREATE, { input }, graphqlStatus),
  ];
  if (field === 'files' || field === 'patterns') return posted;
  return [
    ...posted,
    rest(`PUT with ${name}`, says, { method: 'PUT', path: '/requests/1', body: { quota: 'alice', [field]: value } }),
    ask(
      `updateRequest with ${name}`,
      says,
      UPDATE,
      { input: { id: 1, [NAMES[field] ?? field]: value } },
      graphqlStatus,
    ),
  ];
}

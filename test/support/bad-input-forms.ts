/** Rows of the tables of bad input. Each row contains a call of one protocol, and the error message to expect. */

interface BadInputBase {
  name: string;
  /** Expected error message. */
  says: RegExp;
  status: number;
  headers?: Record<string, string>;
}

export interface BadRest extends BadInputBase {
  protocol: 'REST';
  method: string;
  path: string;
  /** Body to send. Strings and bytes are sent unchanged, other values as JSON in an array. */
  body?: unknown;
}

export interface BadGraphql extends BadInputBase {
  protocol: 'GraphQL';
  /** Body to send. Strings and bytes are sent unchanged, other values as JSON. */
  body: string | Uint8Array | object;
}

/** HTTP request that the GraphQL endpoint rejects with `errors` and without `data`. */
export interface BadHttp extends BadInputBase {
  protocol: 'HTTP';
  method: string;
  /** Path or URL, sent unchanged. */
  target: string;
  body?: string | undefined;
  allow?: string;
}

export type BadInput = BadRest | BadGraphql;

/** GraphQL names of REST fields that have another name in GraphQL. */
export const NAMES: Record<string, string> = {
  patterns: 'pattern',
  notify_on_first_file: 'notifyOnFirstFile',
  notify_on_last_file: 'notifyOnLastFile',
};

const mutationOf = (field: string) => {
  const type = `${field[0]?.toUpperCase()}${field.slice(1)}Input`;
  return `mutation ($input: ${type}!) { ${field}(input: $input) { errors { message } } }`;
};

export const CREATE = mutationOf('createRequest');

export const rest = (name: string, says: RegExp, call: Partial<BadRest>): BadRest => ({
  ...{ protocol: 'REST', name: `REST: ${name}`, method: 'POST', path: '/requests', status: 400, says },
  ...call,
});

export const graphql = (name: string, says: RegExp, body: BadGraphql['body'], status = 200): BadGraphql => ({
  ...{ protocol: 'GraphQL', name: `GraphQL: ${name}`, says, body, status },
});

export const http = (name: string, says: RegExp, call: Partial<BadHttp>): BadHttp => ({
  ...{ protocol: 'HTTP', name: `HTTP: ${name}`, method: 'GET', target: '/graphql', status: 400, says },
  ...call,
});

export const ask = (name: string, says: RegExp, query: string, variables: object = {}) =>
  graphql(name, says, { query, variables });

/** Returns a row for a mutation with an input. @param what completes the row's name, such as "without a size" */
export const mutate = (field: string, what: string, says: RegExp, input: object) =>
  ask(`${field} ${what}`, says, mutationOf(field), { input });

/** Returns a row for each bad value of the only field of a mutation's input. */
export const mutateEach = (field: string, name: string, says: RegExp, values: readonly (string | number)[]) =>
  values.map((value) => mutate(field, `of ${shorten(value)}`, says, { [name]: value }));

export const shorten = (value: unknown) => JSON.stringify(value).slice(0, 30);

/**
 * Returns rows with the same bad value for POST, PUT, createRequest and updateRequest.
 * Files and patterns cannot be changed, so their rows only cover POST and createRequest.
 */
export function writers(name: string, field: string, value: unknown, pattern: string): BadInput[] {
  const says = new RegExp(pattern);
  const base = field === 'files' ? {} : { patterns: '/a/' };
  const created = { quota: 'alice', ...base, [field]: value };
  const input = Object.fromEntries(Object.entries(created).map(([key, v]) => [NAMES[key] ?? key, v]));
  const posted = [
    rest(`POST with ${name}`, says, { body: created }),
    mutate('createRequest', `with ${name}`, says, input),
  ];
  if (field === 'files' || field === 'patterns') return posted;
  const updateNames: Record<string, string> = { ...NAMES, quota: 'expectedQuota' };
  const changed = updateNames[field] ?? field;
  const saysUpdated = field === 'quota' ? new RegExp(pattern.replace('quota', changed)) : says;
  return [
    ...posted,
    rest(`PUT with ${name}`, says, { method: 'PUT', path: '/requests/1', body: { quota: 'alice', [field]: value } }),
    mutate('updateRequest', `with ${name}`, saysUpdated, { requestId: 1, [changed]: value }),
  ];
}

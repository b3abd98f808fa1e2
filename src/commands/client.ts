/**
 * The way to a Tapegate server: GraphQL over HTTP, and over SSE for what goes on. The library for the latter takes long
 * to load, so it is loaded when it is used.
 */
import { readServerUrl } from '../environment.js';
import { codeOf, quote } from '../errors.js';
import { readIntegers } from './answers.js';
import { readCredentialHeaders } from './credentials.js';
import { CommandError, ConnectionError, describeNetworkError, NotKnownError, UsageError } from './failure.js';
import { environment } from './io.js';
import { nameOption } from './option-names.js';
import { ownSettingsFile, readOwnSettings } from './own-settings.js';
import { post } from './post.js';

/**
 * Where the server is, by TAPEGATE_URL, else by the user's own settings.
 * @throws ConfigError
 */
export function readUrl(): string {
  if (environment().TAPEGATE_URL) return readServerUrl(environment());
  const { server } = readOwnSettings(environment());
  return readServerUrl({ TAPEGATE_URL: server }, `server in ${ownSettingsFile(environment())}`);
}

/**
 * The answer to one query or mutation.
 * @throws CommandError in one line, whatever went wrong
 */
export async function ask<Answer>(url: string, query: string, variables: object = {}): Promise<Answer> {
  return await askAs<Answer>({ url, headers: await readCredentialHeaders(url, environment()) }, query, variables);
}

/** The same with headers that say who asks. */
export async function askAs<Answer>(
  { url, headers }: { url: string; headers: Record<string, string> },
  query: string,
  variables: object = {},
): Promise<Answer> {
  const isChange = query.startsWith('mutation');
  const target = `${url}/graphql`;
  const answer = await post(target, { ...FORMS, ...headers }, JSON.stringify({ query, variables }, withStrings)).catch(
    (error) => {
      const problem = formatNetworkError(url, error);
      if (isChange && !isUnsent(error)) throw new CommandError(`${problem}: ${UNCONFIRMED}`);
      throw new ConnectionError(problem);
    },
  );
  refuseRedirect(target, answer.status, answer.headers.location);
  const { data, errors: [error] = [] } = parseAnswer<Answer>(answer.text);
  if (error) throw toCommandError(error, isChange);
  const isDone = answer.status < 300;
  if (data && isDone) return readIntegers(data);
  throw new CommandError(`${url} answers ${answer.status}${isDone && isChange ? `: ${UNCONFIRMED}` : ''}`);
}

/** GraphQL takes integers beyond 2^53 as strings. */
const withStrings = (_name: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);

const FORMS = { 'Content-Type': 'application/json', Accept: 'application/graphql-response+json, application/json' };

/** Returns undefined for a response that is not GraphQL, such as an error page of a proxy. */
function parseAnswer<Answer>(text: string): { data?: Answer | null; errors?: GraphqlError[] } {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/**
 * Follows nobody who leads elsewhere: what is asked for would be told there, and by some answers asked again as it is.
 * @throws CommandError that names both places
 */
function refuseRedirect(from: string, status: number, location: string | null | undefined): void {
  if (status < 300 || status > 399 || !location) return;
  const to = URL.canParse(location, from) ? new URL(location, from).href : quote(location);
  throw new CommandError(
    `${from} leads to ${to}, where nothing is asked: if Tapegate is there, say so by TAPEGATE_URL`,
  );
}

async function fetchThere(...[place, options]: Parameters<typeof fetch>): Promise<Response> {
  const answer = await fetch(place, { ...options, redirect: 'manual' });
  refuseRedirect(place instanceof Request ? place.url : String(place), answer.status, answer.headers.get('location'));
  return answer;
}

/** What is said where nobody knows. */
export const UNCONFIRMED = 'what was asked for may be done: look before you repeat it';

/** Of a connection that was not made. */
const UNSENT_CODES = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

function isUnsent(error: unknown): boolean {
  return [error, (error as { cause?: unknown }).cause].some((each) => UNSENT_CODES.test(codeOf(each) ?? ''));
}

/** The time of the server, UTC without a zone. */
export async function askNow(url: string): Promise<string> {
  const { plan } = await ask<{ plan: { at: string } }>(url, '{ plan { at } }');
  return plan.at.replace(/Z$/, '');
}

/** What a query asks of a failure, beside what it expects of a result union. */
export const FAILURE = '... on Failure { message ... on InvalidInput { field } }';

/** A result union: what the query expects, or `FAILURE`. */
export type Result<Node> = Node & { message?: string; field?: string };

/**
 * What was expected of a result union.
 * @param ownOptions options of the command, for fields that have another name elsewhere
 * @throws CommandError with the message of a failure; UsageError of one that names a field
 */
export function unwrapResult<Node extends object>(
  result: Result<Node>,
  ownOptions: Readonly<Record<string, string>> = {},
): Node {
  const { message, field } = result;
  if (message === undefined) return result;
  if (field === undefined) throw new CommandError(message);
  throw new UsageError(nameOption(message, field, ownOptions));
}

/**
 * Asks for a change, and returns what it made.
 * @param call the mutation with the types of its arguments, such as `suspend(input: SuspendInput!)`
 * @param made the type that it returns, and the fields that are wanted of it, such as `Suspension { kind name }`
 * @param ownOptions as of `unwrapResult`, which says what it throws
 */
export async function askChange<Node extends object>(
  url: string,
  [call, made]: readonly [call: string, made: string],
  variables: object,
  ownOptions?: Readonly<Record<string, string>>,
): Promise<Node> {
  return unwrapResult(await askResult<Node>(url, [call, made], variables), ownOptions);
}

/** The same with a failure as the server returns it. */
export async function askResult<Node extends object>(
  url: string,
  [call, made]: readonly [call: string, made: string],
  variables: object,
): Promise<Result<Node>> {
  const query = declare('mutation', call, `{ ... on ${made} ${FAILURE} }`);
  return (await ask<{ result: Result<Node> }>(url, query, variables)).result;
}

/** Returns an operation of one field whose arguments are all variables. */
function declare(kind: 'query' | 'mutation', call: string, selection: string): string {
  const [, field, types = ''] = /^(\w+)\((.*)\)$/s.exec(call) ?? [];
  const variables = types.replace(/(\w+): /g, '$$$1: ');
  const values = types.replace(/(\w+): [^,]+/g, '$1: $$$1');
  return `${kind} (${variables}) { result: ${field}(${values}) ${selection} }`;
}

/** A page of a connection. */
export interface Page<Node> {
  edges: { node: Node }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

/**
 * After which cursor the last nodes of a list begin; undefined where that is its beginning. What is added meanwhile follows them.
 * @param askPage asks for the page that goes before a cursor, or the last one, with the cursors of its nodes
 */
export async function findLast(
  count: number,
  askPage: (page: { last: number; before: string | null }) => Promise<{
    edges: { cursor: string }[];
    pageInfo: { hasPreviousPage: boolean; startCursor: string | null };
  }>,
): Promise<string | null> {
  let before: string | null = null;
  for (let left = count + 1; ; ) {
    const { edges, pageInfo } = await askPage({ last: Math.min(PAGE_SIZE, left), before });
    left -= edges.length;
    if (left <= 0) return edges[0]?.cursor ?? null;
    if (!pageInfo.hasPreviousPage) return null;
    before = pageInfo.startCursor;
  }
}

/** Which page: the arguments of a connection. */
export interface PageArguments {
  first: number;
  after: string | null;
}

/** The most that the server gives at once. */
const PAGE_SIZE = 1000;

/** The pages of a list as they come, from its beginning or a cursor, until its end or until they hold `limit` nodes. */
export async function* askPages<OnePage extends Page<unknown>>(
  limit: number,
  askPage: (page: PageArguments) => Promise<OnePage>,
  from: string | null = null,
): AsyncGenerator<OnePage> {
  let after = from;
  for (let left = limit; ; ) {
    const page: OnePage = await askPage({ first: Math.min(PAGE_SIZE, left), after });
    yield page;
    left -= page.edges.length;
    after = page.pageInfo.endCursor;
    if (!page.pageInfo.hasNextPage || left <= 0) return;
  }
}

/**
 * Returns the nodes of a list, from its beginning.
 * @param list the field with the types of its arguments but those of the page, such as `requests(quota: String)`
 * @param fields that are wanted of each node
 */
export async function askNodes<Node>(
  url: string,
  [list, fields]: readonly [list: string, fields: string],
  variables: object = {},
  limit = Number.POSITIVE_INFINITY,
): Promise<Node[]> {
  const selection = `{ edges { node { ${fields} } } pageInfo { hasNextPage endCursor } }`;
  const call = `${list.includes('(') ? `${list.slice(0, -1)}, ` : `${list}(`}first: Int, after: String)`;
  const query = declare('query', call, selection);
  const pages = askPages(limit, async (page) => {
    return (await ask<{ result: Page<Node> }>(url, query, { ...variables, ...page })).result;
  });
  const nodes: Node[] = [];
  for await (const { edges } of pages) nodes.push(...edges.map(({ node }) => node));
  return nodes;
}

/**
 * The values of a subscription. Ends when the server completes it, or the signal aborts.
 * @throws ConnectionError without trying again
 */
export async function* follow<Value>(
  url: string,
  query: string,
  variables: Record<string, unknown>,
  signal?: AbortSignal,
): AsyncGenerator<Value> {
  const { createClient } = await import('graphql-sse');
  const texts = Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, withStrings(name, value)]));
  let refusal: unknown; // graphql-sse keeps the text of an error and not its cause
  const client = createClient({
    url: `${url}/graphql/stream`,
    headers: await readCredentialHeaders(url, environment()),
    retryAttempts: 0,
    fetchFn: async (...request: Parameters<typeof fetch>) => {
      try {
        const answer = await fetchThere(...request);
        if (answer.status === 401) refusal = await readRefusal(answer.clone());
        return answer;
      } catch (error) {
        refusal = error;
        throw error;
      }
    },
  });
  const end = () => client.dispose();
  signal?.addEventListener('abort', end);
  try {
    if (signal?.aborted) return;
    for await (const result of client.iterate<Value>({ query, variables: texts })) {
      const [error] = result.errors ?? [];
      if (error) throw toCommandError(error);
      if (result.data) yield readIntegers(result.data);
    }
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw refusal instanceof CommandError ? refusal : new ConnectionError(formatNetworkError(url, refusal ?? error));
  } finally {
    signal?.removeEventListener('abort', end);
    end();
  }
}

/** Why a token is good no longer: another try helps nobody. */
async function readRefusal(answer: Response): Promise<CommandError> {
  const { errors = [] } = (await answer.json().catch(() => ({}))) as { errors?: GraphqlError[] };
  return toCommandError(
    errors[0] ?? { message: 'the server asks for a token', extensions: { code: 'UNAUTHENTICATED' } },
  );
}

interface GraphqlError {
  message: string;
  path?: readonly unknown[] | undefined;
  extensions?: Record<string, unknown>;
}

/** What an error of GraphQL means here. */
function toCommandError({ message, path, extensions }: GraphqlError, isChange = false): CommandError {
  if (extensions?.code === 'UNAUTHENTICATED') return new NotKnownError(message);
  if (extensions?.code === 'INVALID_INPUT') return new UsageError(nameOption(message, String(extensions.field)));
  if (extensions?.code !== 'UNAVAILABLE') return new CommandError(message);
  // below the mutation's own field the change is made, and only its answer failed
  if (isChange && (path?.length ?? 0) > 1) return new CommandError(`${message}: ${UNCONFIRMED}`);
  return new ConnectionError(message);
}

/** Why a server cannot be reached. */
export function formatNetworkError(url: string, error: unknown): string {
  const cause = (error as { cause?: unknown }).cause;
  const isDown = codeOf(cause) === 'ECONNREFUSED' || codeOf(error) === 'ECONNREFUSED';
  if (isDown) return `no Tapegate answers at ${url} (TAPEGATE_URL)`;
  return `${url}: ${describeNetworkError(error)}`;
}

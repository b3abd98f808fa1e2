/**
 * Sends operations to a Tapegate server: GraphQL over HTTP, subscriptions over SSE. Uses `node:http` instead of
 * `fetch`, because the first call of `fetch` takes ten times as much CPU time, about 0.1 s.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { Refused } from '../../../clients/typescript/errors.js';
import {
  type Done,
  findError,
  type GraphqlError,
  type Page,
  type Payload,
  present,
  readData,
  readJson,
  readMediaType,
  toJson,
  toRefused,
  unwrap,
} from '../../../clients/typescript/responses.js';
import type { Environment } from '../../core/environment.js';
import { codeOf, quote } from '../../core/errors.js';
import { ServerTimeDocument, type TypedDocumentString } from '../../generated/operations.js';
import {
  BusyError,
  CommandError,
  ConnectionError,
  formatNetworkError,
  nameOption,
  UnauthenticatedError,
  UnconfirmedError,
  UsageError,
} from '../terminal/failure.js';
import { environment } from '../terminal/io.js';
import { openContext } from './context.js';
import { checkListener } from './listener.js';
import { isDue, readStoredToken } from './stored-tokens.js';
import { LOCAL } from './where.js';

/**
 * Returns the authentication header with TAPEGATE_TOKEN, or else with the server's stored token.
 * @throws CommandError if stored tokens cannot be read, or the user must log in again
 */
export async function readCredentialHeaders(url: string, env: Environment): Promise<Record<string, string>> {
  const token = env.TAPEGATE_TOKEN || (await findStoredToken(url, env));
  if (token !== undefined) await checkListener(url, env);
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

/** Returns the server's stored token. If an identity provider issued the token, renews it shortly before it expires. */
async function findStoredToken(url: string, env: Environment): Promise<string | undefined> {
  const stored = readStoredToken(url, env);
  if (!stored || !isDue(stored)) return stored?.token;
  const { renewToken } = await import('./issuer-login.js');
  return await renewToken(url, env);
}

/**
 * Returns the answer to a query or mutation.
 * @param url the URL of a gateway, or LOCAL
 * @throws CommandError with a one-line message
 */
export async function ask<Answer, Variables>(
  url: string,
  operation: TypedDocumentString<Answer, Variables>,
  variables?: Variables,
): Promise<Answer> {
  if (url === LOCAL) {
    const { executeHere } = await import('../../../graphql/server/here.js');
    const result = await executeHere(await openContext(), operation.toString(), toJson(variables));
    return present(readResult<Answer>(result, isMutation(operation)));
  }
  return await askAs({ url, headers: await readCredentialHeaders(url, environment()) }, operation, variables);
}

/** Sends a query or mutation with the given authentication headers. */
export async function askAs<Answer, Variables>(
  { url, headers }: { url: string; headers: Record<string, string> },
  query: TypedDocumentString<Answer, Variables>,
  variables?: Variables,
): Promise<Answer> {
  const isChange = isMutation(query);
  const target = `${url}/graphql`;
  const body = JSON.stringify({ query, variables: toJson(variables) });
  const answer = await post(target, { ...MEDIA_TYPES, ...headers }, body).catch((error) => {
    const problem = formatNetworkError(url, error);
    if (isChange && !isUnsent(error)) throw new UnconfirmedError(`${problem}: ${UNCONFIRMED}`);
    throw new ConnectionError(problem);
  });
  refuseRedirect(target, answer.status, answer.headers.location);
  const data = readResult<Answer>(readJson(answer.text), isChange);
  const isDone = answer.status < 300;
  if (data && isDone) return data;
  if (!isDone) throw new CommandError(`${url} responds with status ${answer.status}`);
  const type = readMediaType(answer.headers['content-type']);
  const problem = `${url} responds with status ${answer.status} and ${type} instead of a GraphQL response`;
  throw new CommandError(`${problem}${isChange ? `: ${UNCONFIRMED}` : ''}`);
}

const CONNECT_MS = 10_000;

const ANSWER_MS = 300_000;

interface PostResponse {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

/**
 * Sends a POST request without following redirects.
 * @throws Error whose `cause` is the network error, even if the connection fails during the response
 */
async function post(url: string, headers: Record<string, string>, body: string): Promise<PostResponse> {
  const target = new URL(url);
  if (target.username || target.password)
    throw new Error("the server's URL must not contain a password: use TAPEGATE_TOKEN");
  const isTls = target.protocol === 'https:';
  const { request } = await (isTls ? import('node:https') : import('node:http'));
  return await new Promise<PostResponse>((resolve, reject) => {
    const fail = (cause: Error) => reject(new Error(`no answer: ${cause.message}`, { cause }));
    const length = Buffer.byteLength(body);
    const req = request(target, { method: 'POST', headers: { ...headers, 'Content-Length': length } }, (answer) => {
      const { statusCode: status = 0, headers: given } = answer;
      readText(answer).then((read) => resolve({ status, headers: given, text: read }), fail);
    });
    req.on('error', fail);
    req.setTimeout(ANSWER_MS, () => req.destroy(new Error(`the server sent no data for ${ANSWER_MS / 1000} s`)));
    req.on('socket', (socket) => {
      if (!socket.connecting) return;
      const late = Object.assign(new Error(`no connection within ${CONNECT_MS / 1000} s`), { code: 'ETIMEDOUT' });
      const timer = setTimeout(() => req.destroy(late), CONNECT_MS);
      const stop = () => clearTimeout(timer);
      socket.once(isTls ? 'secureConnect' : 'connect', stop).once('close', stop);
    });
    req.end(body);
  });
}

const isMutation = (operation: object): boolean => /^\s*mutation\b/.test(operation.toString());

/**
 * Returns the data of a GraphQL response; undefined if it is not a GraphQL response.
 * @throws CommandError if the response contains an error
 */
function readResult<Answer>(body: unknown, isChange = false): Answer | undefined {
  const error = findError(body);
  if (error) throw toGraphqlError(error, isChange);
  return readData<Answer>(body);
}

const MEDIA_TYPES = {
  'Content-Type': 'application/json',
  Accept: 'application/graphql-response+json, application/json',
};

/**
 * Rejects a redirect, because following the redirect could send the token to another server, or repeat a change.
 * @throws CommandError that names both URLs
 */
function refuseRedirect(from: string, status: number, location: string | null | undefined): void {
  if (status < 300 || status > 399 || !location) return;
  const to = URL.canParse(location, from) ? new URL(location, from).href : quote(location);
  throw new CommandError(
    `${from} redirects to ${to}: if Tapegate has moved there, set TAPEGATE_URL to its new address`,
  );
}

export const UNCONFIRMED = 'the server may have made the change: check whether it did before you repeat the command';

const UNSENT_CODES = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

function isUnsent(error: unknown): boolean {
  return [error, (error as { cause?: unknown }).cause].some((each) => UNSENT_CODES.test(codeOf(each) ?? ''));
}

/** Returns the server's current time in UTC, without a time zone suffix. */
export async function askNow(url: string): Promise<string> {
  const { plan } = await ask(url, ServerTimeDocument);
  return present(plan).at.replace(/Z$/, '');
}

/**
 * Returns the result of a successful operation.
 * @param own maps the names of GraphQL fields to the names of the command's arguments
 * @throws CommandError with the message of a failed operation; UsageError if the error names an input field
 */
export function unwrapResult<Result extends Payload>(
  payload: Result | null,
  own: Readonly<Record<string, string>> = {},
): Done<Result> {
  try {
    return unwrap(payload);
  } catch (error) {
    throw error instanceof Refused ? toCommandError(error, own) : error;
  }
}

export async function askChange<Result extends Payload, Variables>(
  url: string,
  operation: TypedDocumentString<{ result: Result | null }, Variables>,
  variables: Variables,
  own?: Readonly<Record<string, string>>,
): Promise<Done<Result>> {
  return unwrapResult((await ask(url, operation, variables)).result, own);
}

interface PageVariables {
  first?: number | null | undefined;
  after?: string | null | undefined;
}

/** Maximum number of nodes that the server returns per page. */
export const PAGE_SIZE = 1000;

/**
 * Yields pages of a list, until the list ends or `limit` nodes have been read.
 * @param pageOf returns the GraphQL connection in an answer
 * @param range.from the cursor after which the first page begins
 */
export async function* askPages<Answer, Variables extends PageVariables, OnePage extends Page<unknown>>(
  url: string,
  operation: TypedDocumentString<Answer, Variables>,
  variables: Omit<Variables, keyof PageVariables>,
  pageOf: (answer: Answer) => OnePage | null,
  { limit = Number.POSITIVE_INFINITY, from = null }: { limit?: number; from?: string | null } = {},
): AsyncGenerator<OnePage> {
  let after = from;
  for (let left = limit; ; ) {
    const page = { ...variables, first: Math.min(PAGE_SIZE, left), after } as unknown as Variables;
    const answer = present(pageOf(await ask(url, operation, page)));
    yield answer;
    left -= answer.edges.length;
    after = answer.pageInfo.endCursor;
    if (!answer.pageInfo.hasNextPage || left <= 0) return;
  }
}

export async function askNodes<Node, Variables extends PageVariables>(
  url: string,
  operation: TypedDocumentString<{ list: Page<Node> | null }, Variables>,
  variables: Omit<Variables, keyof PageVariables>,
  limit = Number.POSITIVE_INFINITY,
): Promise<Node[]> {
  const nodes: Node[] = [];
  for await (const { edges } of askPages(url, operation, variables, ({ list }) => list, { limit })) {
    nodes.push(...edges.map(({ node }) => node));
  }
  return nodes;
}

/**
 * Yields the values of a subscription until the server completes the subscription or the signal aborts. Does not
 * reconnect after a lost connection.
 * @throws ConnectionError if another attempt might succeed; otherwise another CommandError
 */
export async function* follow<Value, Variables extends object>(
  url: string,
  query: TypedDocumentString<Value, Variables>,
  variables: Variables,
  signal?: AbortSignal,
): AsyncGenerator<Value> {
  if (url === LOCAL) {
    const { followHere } = await import('../../../graphql/server/here.js');
    const results = followHere(await openContext(), query.toString(), toJson(variables), signal);
    for await (const result of results) yield present(readResult<Value>(result));
    return;
  }
  const { createClient } = await import('graphql-sse');
  let refusal: unknown; // the error from `fetchFn`, which graphql-sse does not pass on
  const client = createClient({
    url: `${url}/graphql/stream`,
    headers: await readCredentialHeaders(url, environment()),
    retryAttempts: 0,
    fetchFn: async (...request: Parameters<typeof fetch>) => {
      try {
        const answer = await fetch(request[0], { ...request[1], redirect: 'manual' });
        refuseRedirect(`${url}/graphql/stream`, answer.status, answer.headers.get('location'));
        await requireStream(url, answer);
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
    const sent = { query: query.toString(), variables: toJson(variables) };
    for await (const result of client.iterate(sent)) yield present(readResult<Value>(result));
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw refusal instanceof CommandError ? refusal : new ConnectionError(formatNetworkError(url, refusal ?? error));
  } finally {
    signal?.removeEventListener('abort', end);
    end();
  }
}

/**
 * Rejects a response that is not an event stream, such as a proxy's login page.
 * @throws ConnectionError if another attempt might succeed; otherwise another CommandError
 */
async function requireStream(url: string, answer: Response): Promise<void> {
  const { ok, status, headers } = answer;
  const type = readMediaType(headers.get('content-type'));
  if (ok && type === 'text/event-stream') return;
  if (ok) {
    await answer.body?.cancel();
    throw new CommandError(`${url} responds with status ${status} and ${type} instead of an event stream`);
  }
  const error = findError(readJson(await answer.text().catch(() => '')));
  if (status === 429 || status >= 500)
    throw new ConnectionError(error?.message ?? `${url} responds with status ${status}`);
  if (error) throw toGraphqlError(error);
  if (status === 401) throw new UnauthenticatedError();
  throw new CommandError(`${url} responds with status ${status}`);
}

function toGraphqlError(error: GraphqlError, isChange = false): CommandError {
  const { message, path = [], extensions } = error;
  if (extensions?.code !== 'UNAVAILABLE') return toCommandError(toRefused(error));
  // an error below the mutation's field means that the server stored the change, but could not read a part of the
  // answer
  return isChange && path.length > 1 ? new UnconfirmedError(`${message}: ${UNCONFIRMED}`) : new BusyError(message);
}

/** @param own maps the names of GraphQL fields to the names of the command's arguments */
function toCommandError({ message, code, failure }: Refused, own?: Readonly<Record<string, string>>): CommandError {
  if (code === 'UNAUTHENTICATED') {
    // omit the server's advice from the message, because the advice is for authors of HTTP clients
    return new UnauthenticatedError(message.startsWith('authentication required:') ? undefined : message);
  }
  if (code === 'INVALID_INPUT') return new UsageError(nameOption(message, String(failure.field), own));
  return code === 'UNCONFIRMED' ? new UnconfirmedError(message) : new CommandError(message);
}

/** Transports to a gateway: GraphQL over HTTP, and over server-sent events for subscriptions. */
import { createClient as createStreams } from 'graphql-sse';
import type { TypedDocumentString } from '../../src/generated/operations.js';
import { Refused, UnexpectedResponse, Unreachable } from './errors.js';
import { findError, type GraphqlError, readData, readJson, readMediaType, toJson, toRefused } from './responses.js';

export interface TransportOptions {
  /** URL without a trailing slash. */
  url: string;
  token: () => Promise<string | undefined> | string | undefined;
  fetch: typeof fetch;
}

/** Timeouts for a response, and between two events of a stream, which sends at least one every 12 seconds. */
const ANSWER_MS = 120_000;
const SILENCE_MS = 40_000;

/** Statuses after which a retry may succeed. */
const AWAY = new Set([429, 502, 503, 504]);

/** Messages of graphql-sse for an event that is not valid. A broken connection has other messages. */
const INVALID_EVENT = /^(Invalid stream|Missing message|Unexpected message) /;

/** An operation: a document of this package, or the text of any other operation. */
export type Operation<Data, Variables> = TypedDocumentString<Data, Variables> | string;

export class Transport {
  private readonly options: TransportOptions;

  constructor(options: TransportOptions) {
    this.options = options;
  }

  /** @throws Refused; Unreachable, or its subclass UnexpectedResponse */
  async ask<Data, Variables>(query: Operation<Data, Variables>, variables: Variables): Promise<Data> {
    const { url, fetch } = this.options;
    const answer = await fetch(`${url}/graphql`, {
      method: 'POST',
      redirect: 'manual', // another server must not receive the token
      headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...(await this.headers()) },
      body: JSON.stringify({ query, variables: toJson(variables) }),
      signal: AbortSignal.timeout(ANSWER_MS),
    }).catch((error) => {
      throw unreachable(url, error);
    });
    await refuseRedirect(url, answer);
    const text = await answer.text().catch((error) => {
      throw unreachable(url, error); // the gateway may have made the change
    });
    const body = readJson(text);
    const error = findError(body);
    if (error || !answer.ok) throw refusal(url, answer.status, error);
    const data = readData<Data>(body);
    if (!data) throw unexpected(url, answer, 'a GraphQL response');
    return data;
  }

  /**
   * Yields each result of a subscription until the gateway completes it.
   * @throws Refused; Unreachable if the stream ends early, or its subclass UnexpectedResponse
   */
  async *subscribe<Data, Variables>(
    query: Operation<Data, Variables>,
    variables: Variables,
    signal?: AbortSignal,
  ): AsyncGenerator<Data> {
    signal?.throwIfAborted();
    const { url } = this.options;
    let failure: unknown; // graphql-sse reports only the message of an error
    const streams = createStreams({
      url: `${url}/graphql/stream`,
      headers: () => this.headers(),
      retryAttempts: 0,
      fetchFn: async (input: string, init: RequestInit) => {
        try {
          return await this.openStream(input, init);
        } catch (error) {
          failure = error;
          throw error;
        }
      },
    });
    const end = () => streams.dispose();
    signal?.addEventListener('abort', end);
    try {
      const sent = { query: query.toString(), variables: toJson(variables) };
      for await (const result of streams.iterate<Data>(sent)) {
        const error = findError(result);
        if (error) throw refusal(url, 200, error);
        const data = readData<Data>(result);
        if (!data) throw invalidEvent(url);
        yield data;
      }
      signal?.throwIfAborted();
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof Refused || error instanceof Unreachable) throw error;
      if (failure instanceof Refused || failure instanceof Unreachable) throw failure;
      if (INVALID_EVENT.test((error as Error).message)) throw invalidEvent(url, error);
      throw unreachable(url, failure ?? error);
    } finally {
      signal?.removeEventListener('abort', end);
      streams.dispose();
    }
  }

  /** Treats a stream without events as broken, even if its connection is open. */
  private async openStream(input: string, init: RequestInit): Promise<Response> {
    const silent = new AbortController();
    const signal = init.signal ? AbortSignal.any([init.signal, silent.signal]) : silent.signal;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const hear = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(new Error('nothing has come for too long')), SILENCE_MS);
    };
    hear();
    try {
      const { url, fetch } = this.options;
      const answer = await fetch(input, { ...init, redirect: 'manual', signal });
      await refuseRedirect(url, answer);
      if (!answer.ok) throw refusal(url, answer.status, findError(await answer.json().catch(() => undefined)));
      if (!answer.body || mediaType(answer) !== 'text/event-stream') {
        await answer.body?.cancel();
        throw unexpected(url, answer, 'an event stream');
      }
      const heard = new TransformStream<Uint8Array, Uint8Array>({
        transform: (chunk, controller) => {
          hear();
          controller.enqueue(chunk);
        },
        flush: () => clearTimeout(timer),
      });
      signal.addEventListener('abort', () => clearTimeout(timer));
      return new Response(answer.body.pipeThrough(heard, { signal }), answer);
    } catch (error) {
      clearTimeout(timer);
      throw error;
    }
  }

  private async headers(): Promise<Record<string, string>> {
    const token = await this.options.token();
    return token ? { Authorization: `Bearer ${token}` } : {};
  }
}

/** Browsers hide the status and the target of a redirect. */
async function refuseRedirect(url: string, answer: Response): Promise<void> {
  const { status, headers, type, body } = answer;
  if (type !== 'opaqueredirect' && !(status >= 300 && status < 400)) return;
  await body?.cancel();
  const target = headers.get('location')?.replace(/[?#].*$/s, '');
  const responds = status === 0 ? 'responds with' : `responds with status ${status} and`;
  throw new UnexpectedResponse(`${url} ${responds} an unexpected redirect to ${target ?? 'an unknown URL'}`);
}

/** Without a GraphQL error, a proxy in front of the gateway has failed. */
function refusal(url: string, status: number, error: GraphqlError | undefined): Error {
  const isAway = AWAY.has(status) || error?.extensions?.code === 'UNAVAILABLE' || (!error && status >= 500);
  const message = error?.message ?? `${url} responds with status ${status}`;
  if (isAway) return new Unreachable(message);
  return error ? toRefused(error) : new Refused(message);
}

const mediaType = ({ headers }: Response): string => readMediaType(headers.get('content-type'));

function unexpected(url: string, answer: Response, expected: string): UnexpectedResponse {
  return new UnexpectedResponse(
    `${url} responds with status ${answer.status} and ${mediaType(answer)}, expected ${expected}`,
  );
}

function invalidEvent(url: string, cause?: unknown): UnexpectedResponse {
  return new UnexpectedResponse(`${url} sends an event that is not a GraphQL response`, { cause });
}

function unreachable(url: string, error: unknown): Unreachable {
  const cause = (error as { cause?: unknown }).cause ?? error;
  return new Unreachable(`${url} cannot be reached: ${(cause as Error).message || String(cause)}`, { cause: error });
}

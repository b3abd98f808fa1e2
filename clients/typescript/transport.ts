/** Transports to a gateway: GraphQL over HTTP, and over server-sent events for subscriptions. */
import { createClient as createStreams } from 'graphql-sse';
import { readIntegers } from '../../src/cli/connection/integers.js';
import { Refused, Unreachable } from './errors.js';

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

interface GraphqlError {
  message: string;
  extensions?: { code?: string } | undefined;
}

export class Transport {
  private readonly options: TransportOptions;

  constructor(options: TransportOptions) {
    this.options = options;
  }

  /** @throws Refused, Unreachable */
  async ask<Data>(query: string, variables: object): Promise<Data> {
    const { url, fetch } = this.options;
    const answer = await fetch(`${url}/graphql`, {
      method: 'POST',
      redirect: 'error', // another server must not receive the token
      headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...(await this.headers()) },
      body: stringify({ query, variables }),
      signal: AbortSignal.timeout(ANSWER_MS),
    }).catch((error) => {
      throw unreachable(url, error);
    });
    const text = await answer.text().catch((error) => {
      throw unreachable(url, error); // the gateway may have made the change
    });
    const body = readJson(text) as { data?: Data; errors?: GraphqlError[] } | undefined;
    const [error] = body?.errors ?? [];
    if (error) throw refusal(error, answer.status);
    if (!answer.ok || !body?.data) throw refusal({ message: `${url} answers ${answer.status}` }, answer.status);
    return readIntegers(body.data);
  }

  /** Yields each result of a subscription until the gateway completes it. @throws Refused; Unreachable if the stream ends early */
  async *subscribe<Data>(query: string, variables: object, signal?: AbortSignal): AsyncGenerator<Data> {
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
      const sent = JSON.parse(stringify(variables));
      for await (const result of streams.iterate<Data>({ query, variables: sent })) {
        const [error] = (result.errors ?? []) as readonly GraphqlError[];
        if (error) throw refusal(error, 200);
        if (result.data) yield readIntegers(result.data);
      }
      signal?.throwIfAborted();
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof Refused || error instanceof Unreachable) throw error;
      throw failure instanceof Refused ? failure : unreachable(url, failure ?? error);
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
      const answer = await this.options.fetch(input, { ...init, redirect: 'error', signal });
      if (!answer.ok || !answer.body) throw await readRefusal(answer);
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

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // for example an error page of a proxy
  }
}

async function readRefusal(answer: Response): Promise<Error> {
  const { errors } = (await answer.json().catch(() => ({}))) as { errors?: GraphqlError[] };
  return refusal(errors?.[0] ?? { message: `the gateway returned HTTP status ${answer.status}` }, answer.status);
}

function refusal({ message, extensions }: GraphqlError, status: number): Error {
  const isAway = AWAY.has(status) || extensions?.code === 'UNAVAILABLE';
  return isAway ? new Unreachable(message) : new Refused(message, extensions?.code);
}

function unreachable(url: string, error: unknown): Unreachable {
  const cause = (error as { cause?: unknown }).cause ?? error;
  return new Unreachable(`${url} cannot be reached: ${(cause as Error).message || String(cause)}`, { cause: error });
}

/** Serializes integers exactly: unsafe integers of JavaScript become strings, which the schema accepts. */
function stringify(value: unknown): string {
  return JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? String(each) : each));
}

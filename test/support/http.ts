/** One way to a gateway for both protocols: what goes out is what is given, and what comes back is shown whole. */
import { once } from 'node:events';
import http from 'node:http';
import { parseJson } from '../../src/json.js';

/** Whatever listens there: an app in the test's process, a process, or one that comes and goes. */
export interface Gateway {
  /** `http://127.0.0.1:port` */
  url: string;
  /** Shown to GraphQL, unless a call has credentials of its own. */
  token?: string | undefined;
}

export interface Call {
  /** POST with a body, GET without, unless given. */
  method?: string;
  headers?: Record<string, string>;
  /** A string or bytes are sent as they are, anything else as JSON. */
  body?: unknown;
  signal?: AbortSignal;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The text where it is JSON, with exact integers. */
  body: unknown;
}

/** The answer as it begins to come, for those who read it as it comes. */
export async function request(gateway: Gateway, path: string, call: Call = {}): Promise<Response> {
  const { body, method = body === undefined ? 'GET' : 'POST', signal = null } = call;
  const isShown = gateway.token !== undefined && path.startsWith('/graphql');
  const headers = { ...(isShown && { Authorization: `Bearer ${gateway.token}` }), ...call.headers };
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const content = body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body) };
  return await fetch(`${gateway.url}${path}`, { method, headers, signal, ...content });
}

/**
 * Closes the connections that `fetch` keeps open without a request: a gateway that ends would give their owners a second to say
 * something. What is still answered, or watched, goes on to its end.
 */
export function leaveConnections(): void {
  const agents = globalThis as { [KEPT]?: { close(): Promise<void> } };
  const kept = agents[KEPT];
  if (!kept) return; // nothing was sent yet
  agents[KEPT] = new (kept.constructor as new () => { close(): Promise<void> })();
  void kept.close();
}

/** Where Node has the connections of `fetch`. */
const KEPT = Symbol.for('undici.globalDispatcher.1');

export async function send(gateway: Gateway, path: string, call: Call = {}): Promise<Answer> {
  const response = await request(gateway, path, call);
  const { status, headers } = response;
  const text = await response.text();
  const isJson = text !== '' && /\bjson\b/.test(headers.get('content-type') ?? '');
  return { status, headers, text, body: isJson ? parseJson(text) : undefined };
}

/** What `fetch` would not let pass: any method and target, and any header, `Host` included. Without a body it sends none. */
export async function sendAsIs(
  gateway: Gateway,
  target: string,
  call: Call & { body?: string | undefined } = {},
): Promise<Answer> {
  const { hostname, port } = new URL(gateway.url);
  const { method = 'GET', headers = {}, body } = call;
  const request = http.request({ hostname, port, method, path: target, headers, agent: false });
  request.end(body);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const lines = Object.entries(response.headers).map(([name, value]): [string, string] => [name, String(value)]);
  const isJson = text !== '' && /\bjson\b/.test(response.headers['content-type'] ?? '');
  return {
    status: response.statusCode ?? 0,
    headers: new Headers(lines),
    text,
    body: isJson ? parseJson(text) : undefined,
  };
}

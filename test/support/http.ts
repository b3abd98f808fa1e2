/** HTTP client for REST and GraphQL that returns complete answers. */
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { formatJson } from '../../src/core/text/json.js';
import { parseJson } from './exact-json.js';

/** Gateway in the test's process or in a separate process. */
export interface Gateway {
  /** `http://127.0.0.1:port` */
  url: string;
  /** Token for GraphQL requests without credentials of their own. */
  token?: string | undefined;
}

export interface Call {
  /** HTTP method; default: POST if there is a body, otherwise GET. */
  method?: string;
  headers?: Record<string, string>;
  /** Body to send. Strings and bytes are sent unchanged, other values as JSON. */
  body?: unknown;
  signal?: AbortSignal;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** Parsed body with exact integers, if the body is JSON. */
  body: unknown;
}

/** Returns the response as soon as the headers have arrived. */
export async function request(gateway: Gateway, path: string, call: Call = {}): Promise<Response> {
  const { body, method = body === undefined ? 'GET' : 'POST', signal = null } = call;
  const isShown = gateway.token !== undefined && path.startsWith('/graphql');
  const headers = { ...(isShown && { Authorization: `Bearer ${gateway.token}` }), ...call.headers };
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const content = body === undefined ? {} : { body: isRaw ? (body as string) : formatJson(body) };
  const response = await fetch(`${gateway.url}${path}`, { method, headers, signal, ...content });
  if (response.headers.get('content-type')?.startsWith('text/event-stream')) {
    streams.add(response);
    signal?.addEventListener('abort', () => streams.delete(response));
  }
  return response;
}

/** Responses of open event streams. `fetch` closes the connection of a response that is garbage-collected. */
const streams = new Set<Response>();

/** Closes the idle connections of `fetch`. A gateway that stops would wait a second for idle connections. */
export function leaveConnections(): void {
  const agents = globalThis as { [KEPT]?: { close(): Promise<void> } };
  const kept = agents[KEPT];
  if (!kept) return; // no request has been sent yet
  agents[KEPT] = new (kept.constructor as new () => { close(): Promise<void> })();
  void kept.close();
}

/** Key under which Node stores the connection pool of `fetch`. */
const KEPT = Symbol.for('undici.globalDispatcher.1');

export async function send(gateway: Gateway, path: string, call: Call = {}): Promise<Answer> {
  const response = await request(gateway, path, call);
  const { status, headers } = response;
  const text = await response.text();
  const isJson = text !== '' && /\bjson\b/.test(headers.get('content-type') ?? '');
  return { status, headers, text, body: isJson ? parseJson(text) : undefined };
}

/** Sends requests that `fetch` refuses: any method, target and header, including `Host`. */
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

/** Sends bytes on a new connection, and returns all received text when the connection ends. */
export async function sendBytes({ url }: Gateway, bytes: string): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  socket.write(bytes);
  return await text(socket);
}

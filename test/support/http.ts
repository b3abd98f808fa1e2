/** The HTTP client of both protocols, which returns whole answers. */
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { formatJson } from '../../src/core/json.js';
import { parseJson } from './exact-json.js';

/** An app in the test's process, or a process. */
export interface Gateway {
  /** `http://127.0.0.1:port` */
  url: string;
  /** Sent to GraphQL, unless a call has its own credentials. */
  token?: string | undefined;
}

export interface Call {
  /** Default: POST with a body, GET without. */
  method?: string;
  headers?: Record<string, string>;
  /** A string or bytes are sent unchanged, anything else as JSON. */
  body?: unknown;
  signal?: AbortSignal;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The parsed text if it is JSON, with exact integers. */
  body: unknown;
}

/** Returns the response when its head has arrived. */
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

/** Open event streams: `fetch` closes the connection of a response that the garbage collector frees. */
const streams = new Set<Response>();

/** Closes the idle connections of `fetch`, for which a gateway that stops would wait a second. */
export function leaveConnections(): void {
  const agents = globalThis as { [KEPT]?: { close(): Promise<void> } };
  const kept = agents[KEPT];
  if (!kept) return; // nothing was sent yet
  agents[KEPT] = new (kept.constructor as new () => { close(): Promise<void> })();
  void kept.close();
}

/** The key under which Node keeps the connections of `fetch`. */
const KEPT = Symbol.for('undici.globalDispatcher.1');

export async function send(gateway: Gateway, path: string, call: Call = {}): Promise<Answer> {
  const response = await request(gateway, path, call);
  const { status, headers } = response;
  const text = await response.text();
  const isJson = text !== '' && /\bjson\b/.test(headers.get('content-type') ?? '');
  return { status, headers, text, body: isJson ? parseJson(text) : undefined };
}

/** Sends what `fetch` refuses: any method, target and header, including `Host`. */
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

/** Sends bytes on a connection of their own, and returns all that comes back until it ends. */
export async function sendBytes({ url }: Gateway, bytes: string): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  socket.write(bytes);
  return await text(socket);
}

/** A client of the REST contract that shows answers whole: status, headers, the exact text, and what it says. */
import type { TestApp } from './app.js';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The text as JSON; undefined when there is none. */
  body: unknown;
}

/** A string or bytes are sent as they are, anything else as JSON in an array. */
export async function call(
  app: TestApp,
  method: string,
  path: string,
  options: { body?: unknown; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { body, headers = {} } = options;
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const content = body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify([body]) };
  const response = await fetch(`${app.api}${path}`, { method, headers, ...content });
  const text = await response.text();
  const isJson = text !== '';
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
}

export const get = (app: TestApp, path: string) => call(app, 'GET', path);
export const post = (app: TestApp, body: unknown) => call(app, 'POST', '/requests', { body });
export const put = (app: TestApp, id: number | string, body: unknown) => call(app, 'PUT', `/requests/${id}`, { body });

/** Makes a request that must succeed. */
export async function makeRequest(app: TestApp, fields: object): Promise<number> {
  const { status, text, body } = await post(app, fields);
  if (status !== 200) throw new Error(`POST /requests answered ${status}: ${text}`);
  return (body as [{ req_id: number }])[0].req_id;
}

/** The one object of the answer to a GET that must succeed. */
export async function read<T = Record<string, unknown>>(app: TestApp, path: string): Promise<T> {
  const { status, text, body } = await get(app, path);
  if (status !== 200) throw new Error(`GET ${path} answered ${status}: ${text}`);
  return (body as [T])[0];
}

export const readRequest = (app: TestApp, id: number) => read(app, `/requests/${id}`);

/** Bytes of a quota in use. */
export const readUsed = async (app: TestApp, user: string) => (await read(app, `/quota/${user}`)).used;

/** The body of every error. */
export const errorBody = (message: string) => [{ error: message, error_msg: message }];

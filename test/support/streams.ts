/** Subscriptions over three transports, with one interface. */
import { type Client, createClient } from 'graphql-sse';
import type { TestApp } from './app.js';
import { parseJson } from './exact-json.js';
import { type Gateway, request, send } from './http.js';
import { waitFor } from './wait.js';

export interface Result<Data> {
  data?: Data | null;
  errors?: readonly { message: string; path?: readonly (string | number)[] | undefined; extensions?: object }[];
}

export interface Stream<Data> {
  /** Returns the next result. Rejects if the connection breaks. */
  next(): Promise<IteratorResult<Result<Data>>>;
  /** Closes the connection. */
  close(): void;
}

export interface Operation {
  query: string;
  variables?: Record<string, unknown>;
}

export type Transport = <Data>(app: TestApp, operation: Operation) => Stream<Data>;

const url = (app: TestApp) => `${app.url}/graphql/stream`;

/** Subscribes with a graphql-sse client, which several subscriptions may share. */
export function subscribe<Data>(client: Client<boolean>, operation: Operation): Stream<Data> {
  const results = client.iterate<Data>(operation);
  return {
    next: () => results.next() as Promise<IteratorResult<Result<Data>>>,
    close: () => void results.return?.(),
  };
}

export function openClient(app: TestApp, singleConnection: boolean): Client<boolean> {
  return createClient({ url: url(app), singleConnection, retryAttempts: 0 });
}

/** Subscribes with a POST whose answer is an event stream. */
export function postOperation<Data>(app: Gateway, operation: Operation): Stream<Data> {
  const controller = new AbortController();
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const results = readEvents<Data>(request(app, '/graphql', { headers, body: operation, signal: controller.signal }));
  return { next: () => results.next(), close: () => controller.abort() };
}

/** Reserves a stream in single connection mode. @returns the stream's token */
export async function reserveStream(gateway: Gateway): Promise<string> {
  return (await send(gateway, '/graphql/stream', { method: 'PUT' })).text;
}

/** Opens a stream in single connection mode. */
export async function openStream(gateway: Gateway): Promise<{ token: string; response: Response; close(): void }> {
  const token = await reserveStream(gateway);
  const controller = new AbortController();
  const headers = { 'X-GraphQL-Event-Stream-Token': token, Accept: 'text/event-stream' };
  const response = await request(gateway, '/graphql/stream', { headers, signal: controller.signal });
  return { token, response, close: () => controller.abort() };
}

/** Sends an operation to a stream in single connection mode. */
export async function sendReserved(gateway: Gateway, token: string, operation: object, operationId = '1') {
  const headers = { 'Content-Type': 'application/json', 'X-GraphQL-Event-Stream-Token': token };
  return await send(gateway, '/graphql/stream', { headers, body: { ...operation, extensions: { operationId } } });
}

/** Yields the results of an event stream, with exact integers, until it is complete. */
export async function* readEvents<Data>(answer: Promise<Response>): AsyncGenerator<Result<Data>> {
  const response = await answer;
  const type = response.headers.get('content-type');
  if (!type?.startsWith('text/event-stream')) throw new Error(`${response.status} ${type}: ${await response.text()}`);
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
    const messages = `${rest}${decoder.decode(bytes, { stream: true })}`.split('\n\n');
    rest = messages.pop() ?? '';
    for (const message of messages) {
      const [, event, data = ''] = /^event: (\w+)\n(?:id: \d+\n)?data:(.*)$/.exec(message) ?? [];
      if (event === 'complete') return;
      if (event === 'next') yield parseJson(data) as Result<Data>;
    }
  }
  throw new Error('the stream broke off');
}

/** The transports of a subscription, each with its own connection. */
export const transports: [name: string, transport: Transport][] = [
  ['graphql-sse, distinct connections', (app, operation) => subscribe(openClient(app, false), operation)],
  ['graphql-sse, single connection', (app, operation) => subscribe(openClient(app, true), operation)],
  ['an event stream of /graphql', postOperation],
];

/** Returns the data of the next `count` results. Throws an error if a result has errors. */
export async function take<Data>(stream: Stream<Data>, count: number): Promise<Data[]> {
  const taken: Data[] = [];
  while (taken.length < count) {
    const { done, value } = await stream.next();
    if (done) throw new Error(`the stream ended after ${taken.length} of ${count} results`);
    if (value.errors || !value.data) throw new Error(JSON.stringify(value));
    taken.push(value.data);
  }
  return taken;
}

/** Returns all results until the stream completes. */
export async function drain<Data>(stream: Stream<Data>): Promise<Result<Data>[]> {
  const results: Result<Data>[] = [];
  for (;;) {
    const { done, value } = await stream.next();
    if (done) return results;
    results.push(value);
  }
}

/** Waits until an app's event feed has this number of readers. */
export async function waitForReaders(app: TestApp, count: number): Promise<void> {
  await waitFor(`${count} readers`, async () => app.ctx.events.readers === count);
}

/** Data of a `PROGRESS` result. */
export interface Progress {
  requestProgress: {
    state: string;
    filesTotal: number;
    filesOnDisk: number;
    filesFailed: number;
    bytesTotal: string;
    bytesOnDisk: string;
    end: { earliest: string; planned: string; latest: string } | null;
    at: string;
    eventId: string;
  };
}
/** Data of a `CHANGES` result. */
export interface Changes {
  stageChanges: { path: string; from: string | null; to: string; at: string; eventId: string };
}

export const PROGRESS = `subscription ($id: Int!, $after: BigInt) { requestProgress(requestId: $id, after: $after) {
  state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk end { earliest planned latest } at eventId } }`;
export const CHANGES = `subscription ($requestId: Int, $match: String, $after: BigInt) {
  stageChanges(requestId: $requestId, match: $match, after: $after) { path from to at eventId } }`;

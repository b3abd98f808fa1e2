/**
 * graphql-sse: the progress of a request and the changes of its files, until the request has finished. With the argument
 * `single`, both subscriptions share one event stream. Otherwise, each has its own. If the connection breaks, the client
 * connects again and continues after the last event.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, type ExecutionResult } from 'graphql-sse';
import { headers, url } from './gateway.js';

const [pattern = '/demo/ocean/2024/', mode] = process.argv.slice(2);

const client = createClient({
  url: `${url}/stream`,
  headers,
  singleConnection: mode === 'single',
  retryAttempts: 10,
  retry: () => sleep(1000),
});

function dataOf<Data>({ data, errors }: ExecutionResult<Data, unknown>): Data {
  if (data && !errors) return data;
  throw new Error(errors?.[0]?.message ?? 'no data');
}

const CREATE = `mutation ($input: CreateRequestInput!) {
  createRequest(input: $input) { request { requestId } errors { code message } }
}`;

interface Created {
  createRequest: { request: { requestId: number } | null; errors: { code: string; message: string }[] };
}

async function createRequest(input: { quota: string; pattern: string }): Promise<number> {
  // the client also sends queries and mutations, which have one result
  for await (const result of client.iterate<Created>({ query: CREATE, variables: { input } })) {
    const { request, errors } = dataOf(result).createRequest;
    if (request) return request.requestId;
    throw new Error(errors.map(({ code, message }) => `${code}: ${message}`).join());
  }
  throw new Error('no result');
}

/** Yields the values of a subscription's only field. The client sends `variables.after` again when it reconnects. */
async function* subscribe<Value extends { eventId: string }>(query: string, variables: Record<string, unknown>) {
  for await (const result of client.iterate<Record<string, Value>>({ query, variables })) {
    for (const value of Object.values(dataOf(result))) {
      variables.after = value.eventId;
      yield value;
    }
  }
}

const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  requestProgress(requestId: $id, after: $after) { state filesOnDisk filesTotal eventId }
}`;
const CHANGES = `subscription ($id: Int!, $after: BigInt) {
  stageChanges(requestId: $id, after: $after) { path from to eventId }
}`;

type Progress = { state: string; filesOnDisk: number; filesTotal: number; eventId: string };
type Change = { path: string; from: string | null; to: string; eventId: string };

async function showProgress(id: number): Promise<void> {
  for await (const { state, filesOnDisk, filesTotal } of subscribe<Progress>(PROGRESS, { id }))
    console.log(`${state}: ${filesOnDisk} of ${filesTotal} files on disk`);
}

/** Ends when all files are on disk, because this subscription never completes. */
async function showChanges(id: number): Promise<void> {
  const waiting = new Set<string>();
  for await (const { path, from, to } of subscribe<Change>(CHANGES, { id })) {
    console.log(`${path}: ${from ?? 'now'} ${to}`);
    waiting.add(path);
    if (to === 'RESTORED' || to === 'ONDISK') waiting.delete(path);
    if (waiting.size === 0) return;
  }
}

const id = await createRequest({ quota: 'alice', pattern });
await Promise.all([showProgress(id), showChanges(id)]);
client.dispose();
console.log('finished');

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

const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  requestProgress(requestId: $id, after: $after) { state filesOnDisk filesTotal eventId }
}`;
const CHANGES = `subscription ($id: Int!, $after: BigInt) {
  stageChanges(requestId: $id, after: $after) { path from to eventId }
}`;

type Progress = { state: string; filesOnDisk: number; filesTotal: number; eventId: string };
type Change = { path: string; from: string | null; to: string; eventId: string };

/** When the client reconnects, it sends the variables again, with the last `after`. */
async function showProgress(id: number): Promise<void> {
  const variables: Record<string, unknown> = { id };
  for await (const result of client.iterate<{ requestProgress: Progress }>({ query: PROGRESS, variables })) {
    const { state, filesOnDisk, filesTotal, eventId } = dataOf(result).requestProgress;
    variables.after = eventId;
    console.log(`${state}: ${filesOnDisk} of ${filesTotal} files on disk`);
  }
}

/** Shows changes until the returned function is called, because this subscription does not complete. */
function showChanges(id: number): () => void {
  const variables: Record<string, unknown> = { id };
  let hasEnded = false;
  const dispose = client.subscribe<{ stageChanges: Change }>(
    { query: CHANGES, variables },
    {
      next: (result) => {
        const { path, from, to, eventId } = dataOf(result).stageChanges;
        variables.after = eventId;
        console.log(`${path}: ${from ?? 'now'} ${to}`);
      },
      error: (error) => {
        if (!hasEnded) throw error; // the client reports an error if it closes the stream before the subscription
      },
      complete: () => {},
    },
  );
  return () => {
    hasEnded = true;
    dispose();
  };
}

const id = await createRequest({ quota: 'alice', pattern });
const finished = showProgress(id);
const endChanges = showChanges(id);
await finished;
await sleep(1000); // the last changes may arrive after the last progress
endChanges();
client.dispose();
console.log('finished');

/** Load on gateways that restart behind a balancer. No call may fail, and no subscription may end early. */
import { createClient } from 'graphql-sse';
import { expect } from 'vitest';
import type { Gateway } from './http.js';
import { makeRequest, read } from './rest.js';
import { waitFor } from './wait.js';

/** Starts clients that create requests for the quota `alice` and read the requests back. */
export function startLoad(gateway: Gateway, clients: number) {
  const end = new AbortController();
  let calls = 0;
  const work = async (client: number) => {
    const labels: string[] = [];
    for (let n = 0; !end.signal.aborted; n++) {
      const label = `client ${client}, request ${n}`;
      const id = await makeRequest(gateway, { quota: 'alice', files: [`/rolling/${client}/${n}`], label });
      labels.push(label);
      calls++;
      expect(await read(gateway, `/requests/${id}`)).toMatchObject({ label });
      calls++;
    }
    return labels;
  };
  const all = Promise.all(Array.from({ length: clients }, (_, n) => work(n)));
  all.catch(() => end.abort());
  return {
    /** Waits until all clients together have made `count` more calls. */
    more: async (count: number): Promise<void> => {
      const from = calls;
      await waitFor('calls', async () => end.signal.aborted || calls >= from + count);
    },
    /** @returns the labels of all requests; rejects with the error of a failed call */
    end: async (): Promise<string[]> => {
      end.abort();
      return (await all).flat();
    },
  };
}

/** Watches a request until the subscription completes. @returns the last state, or the errors of the last result */
export async function watchToTheEnd({ url }: Gateway, id: number): Promise<unknown> {
  const client = createClient({ url: `${url}/graphql/stream`, singleConnection: false, retryAttempts: 20 });
  const results = client.iterate<{ requestProgress: { state: string } }>({
    query: 'subscription ($id: Int!) { requestProgress(requestId: $id) { state } }',
    variables: { id },
  });
  let last: unknown;
  for await (const result of results) last = result.data?.requestProgress.state ?? result.errors;
  return last;
}

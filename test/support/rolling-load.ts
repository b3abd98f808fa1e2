/** What clients do while gateways come and go behind a balancer: no call may fail, and no watcher be ended. */
import { createClient } from 'graphql-sse';
import { expect } from 'vitest';
import type { Gateway } from './http.js';
import { makeRequest, read } from './rest.js';
import { waitFor } from './wait.js';

export interface Load {
  /** So many more calls of all clients together. */
  more(count: number): Promise<void>;
  /** @returns the labels of all requests that were made; throws what a call has failed with */
  end(): Promise<string[]>;
}

/** Each makes requests of quota `alice` and asks for them, one after the other. */
export function startLoad(gateway: Gateway, clients: number): Load {
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
    more: async (count) => {
      const from = calls;
      await waitFor('calls', async () => end.signal.aborted || calls >= from + count);
    },
    end: async () => {
      end.abort();
      return (await all).flat();
    },
  };
}

/** @returns what it was told last, when it was told that all is over */
export async function watchToTheEnd({ url }: Gateway, id: number): Promise<unknown> {
  const client = createClient({ url: `${url}/graphql/stream`, singleConnection: false, retryAttempts: 20 });
  const results = client.iterate<{ requestProgress: { state: string } }>({
    query: 'subscription ($id: Int!) { requestProgress(id: $id) { state } }',
    variables: { id },
  });
  let last: unknown;
  for await (const result of results) last = result.data?.requestProgress.state ?? result.errors;
  return last;
}

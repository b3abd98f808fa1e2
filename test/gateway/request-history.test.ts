/** The past changes of a request, and the retry of chosen files. */
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData, type Connection } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { useApp } from '../support/use-app.js';

const library = createMemoryLibrary();
let isBroken = true;
library.onRead = async (volume) => {
  if (volume === 'BAD' && isBroken) throw new TapeError('PERMANENT', 'block 4711 is unreadable');
};
const app = useApp({ library }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addTaped(app.ctx, library, [
    { path: '/h/good', volume: 'GOOD', position: 1n },
    { path: '/h/bad1', volume: 'BAD', position: 1n },
    { path: '/h/bad2', volume: 'BAD', position: 2n },
  ]);
});

async function makeRequest(): Promise<number> {
  const create =
    'mutation { result: createRequest(input: { quota: "alice", pattern: "/h/" }) { request { requestId } } }';
  return (await askData<{ result: { request: { requestId: number } } }>(app, create)).result.request.requestId;
}

const retry = async (requestId: number, paths: string[]) => {
  const query = 'mutation($input: RetryRequestInput!) { result: retryRequest(input: $input) { errors { message } } }';
  const { result } = await askData<{ result: { errors: { message: string }[] } }>(app, query, {
    input: { requestId, paths },
  });
  return result.errors.map(({ message }) => message);
};

const statesOf = async (id: number) =>
  Object.fromEntries((await viewRequest(app, id)).files.map(({ path, state }) => [path, state]));

interface Event {
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
}

test('only chosen failed files are retried, and the changes of the request are listed newest first', async () => {
  const id = await makeRequest();
  await waitForState(app, id, 'PARTIAL');
  expect(await retry(id, ['/h/bad1', '/h/none'])).toEqual([
    `paths must all be in request ${id}, which does not contain "/h/none"`,
  ]);
  isBroken = false;
  expect(await retry(id, ['/h/bad1', '/h/good'])).toEqual([]);
  await waitForState(app, id, 'PARTIAL');
  expect(await statesOf(id)).toEqual({ '/h/good': 'ON_DISK', '/h/bad1': 'ON_DISK', '/h/bad2': 'FAILED' });
  expect(await retry(id, [])).toEqual([]);
  expect((await statesOf(id))['/h/bad2']).toBe('FAILED');

  const read = async (args: string) =>
    (
      await askData<{ request: { events: Connection<Event> } }>(
        app,
        `{ request(requestId: ${id}) { events(${args}) { totalCount pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
           edges { cursor node { state filesTotal filesOnDisk filesFailed } } } } }`,
      )
    ).request.events;
  const all = await read('first: 100');
  const events = all.edges.map(({ node }) => node);
  expect(events[0]).toEqual({ state: 'PARTIAL', filesTotal: 3, filesOnDisk: 2, filesFailed: 1 });
  expect(events.some(({ filesFailed }) => filesFailed === 2)).toBe(true);
  expect(events.at(-1)).toMatchObject({ state: 'QUEUED', filesTotal: 3, filesOnDisk: 0 });
  expect(all.totalCount).toBe(events.length);
  const next = await read(`first: 2, after: "${all.edges[0]?.cursor}"`);
  expect(next.edges.map(({ node }) => node)).toEqual(events.slice(1, 3));
});

/** What operators, and the engine itself, take out of service. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../src/errors.js';
import { listSuspensions, resume, suspend } from '../src/operations/suspensions.js';
import { createMemoryBackend } from '../src/tape/memory.js';
import { startApp, type TestApp, waitFor } from './app.js';
import { viewRequest } from './engine-watch.js';
import { addQuota, addTaped } from './factories.js';
import { makeRequest } from './rest.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(() => app.close());

const isComplete = async (id: number) => (await viewRequest(app, id)).state === 'COMPLETED';

test('nothing is read from a held volume, and all that waits for it once it is released', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/held/a', volume: 'HELD' },
    { path: '/held/b', volume: 'FREE' },
  ]);
  await suspend(app.ctx, { kind: 'VOLUME', name: 'HELD', mode: 'HELD', reason: 'it squeaks' });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/held/' });
  await waitFor('the other file', async () => (await viewRequest(app, id)).filesOnDisk === 1);
  expect(backend.log.filter((entry) => entry.volume === 'HELD')).toEqual([]);
  expect(await resume(app.ctx, { kind: 'VOLUME', name: 'HELD' })).toBe(true);
  await waitFor('the request', () => isComplete(id));
});

test('the files of a held user wait, and those of others do not', async () => {
  await addQuota(app.ctx, 'bob', 10n ** 9n);
  await addTaped(app.ctx, backend, [
    { path: '/user/bob', volume: 'USERS', position: 1n },
    { path: '/user/alice', volume: 'USERS', position: 2n },
  ]);
  await suspend(app.ctx, { kind: 'USER', name: 'bob', mode: 'HELD', reason: 'too fast' });
  const held = await makeRequest(app, { quota: 'bob', files: ['/user/bob'] });
  const free = await makeRequest(app, { quota: 'alice', files: ['/user/alice'] });
  await waitFor('the free request', () => isComplete(free));
  expect((await viewRequest(app, held)).state).toBe('QUEUED');
  await resume(app.ctx, { kind: 'USER', name: 'bob' });
  await waitFor('the held request', () => isComplete(held));
});

test('a volume that cannot be mounted three times is held by the engine, with the reason', async () => {
  await addTaped(app.ctx, backend, [{ path: '/broken/a', volume: 'BROKEN' }]);
  backend.onMount = async (volume) => {
    if (volume === 'BROKEN') throw new TapeError('MEDIA', 'no signal from the leader');
  };
  const id = await makeRequest(app, { quota: 'alice', files: ['/broken/a'] });
  const held = await waitFor('the volume to be held', async () => (await listSuspensions(app.ctx))[0]);
  expect(held).toMatchObject({
    kind: 'VOLUME',
    name: 'BROKEN',
    mode: 'HELD',
    reason: 'it could not be mounted 3 times: no signal from the leader',
  });
  await waitFor('the request to end', async () => (await viewRequest(app, id)).state === 'PARTIAL');
});

test('what does not exist cannot be suspended', async () => {
  const input = { kind: 'VOLUME', name: 'nowhere', mode: 'HELD', reason: '' } as const;
  await expect(suspend(app.ctx, input)).rejects.toThrow('there is no volume "nowhere"');
  expect(await resume(app.ctx, { kind: 'DRIVE', name: 'nowhere' })).toBe(false);
});

/** A disk that stops answering just when a copy is put in its place: the copy is known all the same. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

/** What becomes of a look at a path of the restore area. */
const disk = vi.hoisted(() => ({ look: (_path: string): void => {} }));

vi.mock('../../src/engine/disk/descriptors.js', async (original) => {
  const real = await original<typeof import('../../src/engine/disk/descriptors.js')>();
  return {
    ...real,
    lstatPath: async (file: string, options: { bigint: true }) => {
      disk.look(file);
      return await real.lstatPath(file, options);
    },
  };
});

let app: TestApp;
let clock: Clock;
const backend = createMemoryBackend();

beforeEach(async () => {
  clock = createClock();
  app = await startApp({ backend, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  disk.look = () => {};
  await app.close();
});

test.each(['ESTALE', 'EIO', 'ETIMEDOUT'])(
  'a copy that was put in place is restored, though the look at it says %s',
  async (code) => {
    const contents = await addTaped(app.ctx, backend, [{ path: '/placed/seen', volume: 'V1' }]);
    let looks = 0;
    disk.look = (path) => {
      if (!path.endsWith('/seen')) return;
      looks++;
      throw Object.assign(new Error(`${code}: lstat`), { code });
    };
    const id = await makeRequest(app, { quota: 'alice', files: ['/placed/seen'], retention: '2099-01-01' });
    await waitThroughPauses(app, clock, id, 'COMPLETED');
    expect(looks).toBe(1);
    expect(readRestored(app, '/placed/seen')).toEqual(contents.get('/placed/seen'));
    await cancel(app, id); // known by its bytes where its time of change is not
    await waitFor('the copy to leave', async () => listTree(app.restoreDir).length === 0);
  },
);

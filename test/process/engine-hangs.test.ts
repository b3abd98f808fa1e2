/** Calls that hang, within an engine: what they hang on is taken out of service, and nothing waits for them. */
import { beforeEach, expect, test } from 'vitest';
import { CallWatch, type HungError } from '../../src/engine/calls.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const never = new Promise<never>(() => {});
const backend = createMemoryBackend();
/** Whether a call on the volume comes to an end, whatever its signal says. */
let hangs: (what: 'mount' | 'read' | 'unmount', volume: string) => boolean = () => false;

beforeEach(async () => {
  hangs = () => false;
  app = await start({
    backend: {
      mount: async (volume, drive, signal) => {
        if (hangs('mount', volume)) await never;
        const mounted = await backend.mount(volume, drive, signal);
        return {
          read: async function* (file, readSignal) {
            if (hangs('read', volume)) await never;
            yield* mounted.read(file, readSignal);
          },
          unmount: async () => {
            if (hangs('unmount', volume)) await never;
            await mounted.unmount();
          },
        };
      },
    },
    config: { tapeTimeout: 1 },
  });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
const start = createFreshApp(); // its engines end although calls hang

test.each(['mount', 'read', 'unmount'] as const)(
  'a drive whose %s hangs is out of service with its volume, and the other drive works on',
  async (what) => {
    await addTaped(app.ctx, backend, [
      { path: '/hang/a', volume: 'STUCK' },
      { path: '/fine/a', volume: 'FINE' },
    ]);
    hangs = (call, volume) => call === what && volume === 'STUCK';
    const id = await makeRequest(app, { quota: 'alice', files: ['/hang/a'] });
    const held = await waitFor('drive and volume to be held', async () => {
      const all = await readSuspensions(app);
      return all.length === 2 && all;
    });
    const drive = held.find(({ kind }) => kind === 'DRIVE')?.name ?? '';
    const reason = `${drive}, at STUCK, has not answered for 1 s`;
    expect(held).toMatchObject([
      { kind: 'VOLUME', name: 'STUCK', mode: 'HELD', reason },
      { kind: 'DRIVE', name: drive, mode: 'HELD', reason },
    ]);
    const fine = await makeRequest(app, { quota: 'alice', files: ['/fine/a'] });
    await waitForState(app, fine, 'COMPLETED');
    if (what !== 'unmount') {
      const tries = await waitFor('the file to wait', async () => {
        const all = await readTries(app, id);
        return all['/hang/a']?.recallState === 'WAITING' && all;
      });
      expect(tries['/hang/a']).toMatchObject({ attempts: 0 });
    }
    hangs = () => false;
    await resume(app, 'VOLUME', 'STUCK');
    await waitForState(app, id, 'COMPLETED');
  },
);

test('of calls that hang together the first one is to blame, and one that shows progress is none', async () => {
  const told: string[] = [];
  const watch = new CallWatch({ disk: 0.2, tape: 0.2 }, (error: HungError) => told.push(error.message));
  const first = watch.follow({ kind: 'disk', mountpoint: '/one' }, () => never);
  const second = watch.follow({ kind: 'disk', mountpoint: '/two' }, () => never);
  let isSlow = true;
  const slow = watch.follow({ kind: 'disk', mountpoint: '/slow' }, async (tick) => {
    await waitFor('the others to hang', async () => {
      tick();
      return told.length > 0;
    });
    isSlow = false;
  });
  await expect(first).rejects.toThrow('the restore disk /one has not answered for 0.2 s');
  await expect(second).rejects.toThrow('/one');
  await slow;
  expect([isSlow, watch.hasHung, told]).toEqual([false, true, ['the restore disk /one has not answered for 0.2 s']]);
});

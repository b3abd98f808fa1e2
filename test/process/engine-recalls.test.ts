import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readMoves, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

const DRIVES = 3;
let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: DRIVES } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

test('a file that many requests want is read once, and each of them is told', async () => {
  const gate = holdReads(backend);
  const contents = await addTaped(app.ctx, backend, [
    { path: '/once/a', volume: 'ONCE', position: 1n },
    { path: '/once/b', volume: 'ONCE', position: 2n },
  ]);
  const ids = [
    await makeRequest(app, { quota: 'alice', patterns: '/once/' }),
    await makeRequest(app, { quota: 'bob', files: ['/once/b', '/once/a'] }),
  ];
  await waitFor('the first read', async () => backend.log.some((entry) => entry.what === 'read'));
  ids.push(await makeRequest(app, { quota: 'bob', files: ['/once/a'] })); // its recall runs already
  gate.open();
  for (const id of ids) await waitForState(app, id, 'COMPLETED');
  const late = await makeRequest(app, { quota: 'alice', files: ['/once/a', '/once/b'] });
  await waitForState(app, late, 'COMPLETED');
  expect(backend.log.filter((entry) => entry.what === 'read').map((entry) => entry.position)).toEqual([1n, 2n]);
  for (const [path, bytes] of contents) expect(readRestored(app, path)).toEqual(Buffer.from(bytes));
  expect(await readMoves(app, '/once/a')).toEqual(['TA', 'AR'].map((move) => ({ path: '/once/a', move })));
});

test('a volume is mounted once and read in order of position, whatever the order of the request', async () => {
  const positions = [40n, 7n, 1000n, 3n, 12n];
  const files = positions.map((position) => ({ path: `/order/${position}`, volume: 'ORDER', position }));
  await addTaped(app.ctx, backend, files);
  const id = await makeRequest(app, { quota: 'alice', files: files.map((file) => file.path) });
  await waitForState(app, id, 'COMPLETED');
  await waitFor('the unmount', async () => backend.log.some((entry) => entry.what === 'unmount'));
  expect(backend.log.map(({ what, position }) => (position === undefined ? what : position))).toEqual([
    'mount',
    3n,
    7n,
    12n,
    40n,
    1000n,
    'unmount',
  ]);
});

test('files that are asked for while their volume is mounted are read without another mount', async () => {
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 5n) await gate.opened;
    return bytes;
  };
  await addTaped(
    app.ctx,
    backend,
    [5n, 2n, 9n].map((position) => ({ path: `/meanwhile/${position}`, volume: 'MEANWHILE', position })),
  );
  const first = await makeRequest(app, { quota: 'alice', files: ['/meanwhile/5'] });
  await waitFor('the read', async () => backend.log.some((entry) => entry.position === 5n));
  const second = await makeRequest(app, { quota: 'bob', files: ['/meanwhile/2', '/meanwhile/9'] });
  gate.open();
  await waitForState(app, first, 'COMPLETED');
  await waitForState(app, second, 'COMPLETED');
  expect(backend.log.filter((entry) => entry.what === 'mount')).toHaveLength(1);
  expect(backend.log.filter((entry) => entry.what === 'read').map((entry) => entry.position)).toEqual([5n, 9n, 2n]);
});

test('as many volumes as there are drives are read at a time, each in one drive', async () => {
  const volumes = ['P1', 'P2', 'P3', 'P4', 'P5', 'P6', 'P7'];
  const gate = createGate();
  backend.onMount = () => gate.opened;
  const files = volumes.flatMap((volume) =>
    [1n, 2n].map((position) => ({ path: `/parallel/${volume}-${position}`, volume, position })),
  );
  const contents = await addTaped(app.ctx, backend, files);
  const first = await makeRequest(app, { quota: 'alice', patterns: '/parallel/' });
  await waitFor('all drives to be busy', async () => backend.log.length === DRIVES);
  const second = await makeRequest(app, { quota: 'bob', patterns: '/parallel/' });
  gate.open();
  await waitForState(app, first, 'COMPLETED');
  await waitForState(app, second, 'COMPLETED');
  for (const [path, bytes] of contents) expect(readRestored(app, path)).toEqual(Buffer.from(bytes));

  const mounted = new Map<string, string>();
  let most = 0;
  for (const { what, volume, drive } of backend.log) {
    if (what === 'unmount') mounted.delete(drive);
    if (what !== 'mount') continue;
    expect([...mounted.keys()]).not.toContain(drive);
    expect([...mounted.values()]).not.toContain(volume);
    most = Math.max(most, mounted.set(drive, volume).size);
  }
  expect(most).toBe(DRIVES);
  const mounts = backend.log.filter((entry) => entry.what === 'mount').map((entry) => entry.volume);
  expect(mounts.sort()).toEqual(volumes);
});

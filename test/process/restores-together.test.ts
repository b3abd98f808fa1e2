/** One request for files of several tape systems, each of another kind, one of which is away for a while. */
import { expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { openCommand, openS3, openWlcg } from '../support/real-kinds.js';
import { type RequestView, viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addKind, putFiles } from '../support/restores.js';
import { S3Error } from '../support/s3-store.js';
import { readStates } from '../support/staging.js';
import { waitFor } from '../support/wait.js';

test('a request comes from four tape systems at once, and waits for none of them with what the others have', async () => {
  const [element, glacier, scripts] = [await openWlcg('dcache'), await openS3(), openCommand()];
  const kinds = { element, glacier, scripts };
  const [clock, backend] = [createClock(), createMemoryBackend()];
  const app = await startApp({ backend, now: clock.now, engine: { idleMs: 200, env: glacier.env } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  const right = new Map<string, Uint8Array>(await addTaped(app.ctx, backend, [{ path: '/all/drive/0' }]));
  for (const [name, kind] of Object.entries(kinds)) {
    await addKind(app, name, kind);
    const files = [0, 1, 2].map((n) => ({ path: `/all/${name}/${n}` }));
    for (const [path, bytes] of await putFiles(app, name, kind, files)) right.set(path, bytes);
  }
  const others = glacier.bench.server.onRequest;
  glacier.bench.server.onRequest = async () => new S3Error(500, 'InternalError');
  const id = await makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: '/all/' });
  const until = (what: string, isIt: (view: RequestView) => boolean) =>
    waitFor(what, async () => {
      for (const { bench } of Object.values(kinds)) await bench.arrive([...right.keys()]);
      clock.advance(5);
      const view = await viewRequest(app, id);
      return isIt(view) && view;
    });
  await until('all but those of S3', ({ filesOnDisk }) => filesOnDisk === 7);
  glacier.bench.server.onRequest = others;
  const view = await until('all of them', ({ state }) => state === 'COMPLETED');
  expect(view.holds.map(({ error }) => error)).toEqual(Array(10).fill(null));
  for (const [path, bytes] of right) expect([path, readRestored(app, path)?.equals(bytes)]).toEqual([path, true]);
  const states = await waitFor('all to be let go', async () => {
    clock.advance(5);
    const found = await readStates(app.ctx);
    return Object.values(found).every((state) => state === 'KEPT') && Object.keys(found);
  });
  expect(states).toEqual(['/all/glacier/0', '/all/glacier/1', '/all/glacier/2']);
  await app.close();
  for (const { bench } of Object.values(kinds)) await bench.close();
});

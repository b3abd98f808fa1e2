import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { makeRequest, readRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
});
afterAll(() => app.close());

test('a request by REST brings the bytes of its files from tape to disk', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/a/one.nc' }, { path: '/a/two.nc', volume: 'V00002' }]);
  await addQuota(app.ctx, 'alice', 10_000n);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await waitFor('the request to be complete', async () => {
    return (await readRequest(app, id)).last_files_on_disk ?? undefined;
  });
  for (const [path, bytes] of contents) {
    expect(readFileSync(`${app.restoreDir}${path}`).equals(bytes)).toBe(true);
  }
});

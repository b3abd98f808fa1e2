import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp, waitFor } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
});
afterAll(() => app.close());

test('a request by REST brings the bytes of its files from tape to disk', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/a/one.nc' }, { path: '/a/two.nc', volume: 'V00002' }]);
  await addQuota(app.ctx, 'alice', 10_000n);
  const response = await fetch(`${app.api}/requests`, {
    method: 'POST',
    body: JSON.stringify([{ quota: 'alice', patterns: '/a/' }]),
  });
  expect(response.status).toBe(200);
  const [{ req_id: id }] = (await response.json()) as [{ req_id: number }];
  await waitFor('the request to be complete', async () => {
    const [request] = (await (await fetch(`${app.api}/requests/${id}`)).json()) as [{ last_files_on_disk?: string }];
    return request.last_files_on_disk;
  });
  for (const [path, bytes] of contents) {
    expect(readFileSync(`${app.restoreDir}${path}`).equals(bytes)).toBe(true);
  }
});

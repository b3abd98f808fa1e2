import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRequest } from '../../src/operations/requests/create.js';
import { createDirectoryBackend } from '../../src/tape/directory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { cleanUp, startCli, stop } from '../support/process.js';
import { drain, take, transports } from '../support/streams.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

test('a gateway tells what an engine in another process does', async () => {
  const library = createDirectoryBackend(path.join(app.dataDir, 'library'));
  await library.openLibrary?.(true);
  const files = await Promise.all(
    [1, 2, 3].map(async (n) => {
      const bytes = randomBytes(1000 * n);
      await library.write(
        `P${n}`,
        1n,
        (async function* chunks() {
          yield bytes;
        })(),
        new AbortController().signal,
      );
      const stored = { size: BigInt(bytes.length), checksum: checksumOf(bytes) };
      return { path: `/process/${n}`, volume: `P${n}`, position: 1n, ...stored };
    }),
  );
  await addFiles(app.ctx, files);
  await addQuota(app.ctx, 'xia', 10_000n);
  const id = await createRequest(app.ctx, { quota: 'xia', pattern: '/process/' });
  const query = 'subscription ($id: Int!) { requestProgress(id: $id) { state filesOnDisk bytesOnDisk } }';
  const streams = transports.map(([, open]) =>
    open<{ requestProgress: { state: string } }>(app, { query, variables: { id } }),
  );
  for (const stream of streams) {
    expect(await take(stream, 1)).toEqual([{ requestProgress: { state: 'QUEUED', filesOnDisk: 0, bytesOnDisk: '0' } }]);
  }
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, LOG_LEVEL: 'warn' };
  const engine = startCli(['work'], { env });
  for (const stream of streams) {
    const results = (await drain(stream)).map(({ data }) => data?.requestProgress);
    expect(results[0]?.state).toBe('RESTORING');
    expect(results.at(-1)).toEqual({ state: 'COMPLETED', filesOnDisk: 3, bytesOnDisk: '6000' });
  }
  expect(await stop(engine)).toMatchObject({ stderr: '' });
});

/** Restores from the archive classes of S3. */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { readRestored } from '../support/engine-watch.js';
import { openS3 } from '../support/real-kinds.js';
import { describeRestores } from '../support/real-restores.js';
import { openSite } from '../support/restores.js';
import { keyIn } from '../support/s3-bench.js';

describeRestores('s3', () => openS3(), { release: false, ids: false, until: true, offsets: true });

test('an object that is exchanged while it is read is not half of the one and half of the other', async () => {
  const kind = await openS3();
  const { server } = kind.bench;
  const site = await openSite(kind);
  const [file, size] = ['/exchanged.nc', 6 * 1024 * 1024];
  await site.put([{ path: file, size, isSummed: false }]);
  const newer = randomBytes(size);
  const others = server.onRequest;
  server.onRequest = async (request) => {
    const isThird = request.operation === 'GetObject' && server.count('GetObject') === 3;
    if (isThird) Object.assign(server.store.find(keyIn(file)), { bytes: newer, etag: '"newer"' });
    return await others(request);
  };
  await site.bring(await site.request(file), 'COMPLETED', [file]);
  expect(readRestored(site.app, file)?.equals(newer)).toBe(true);
  await site.close();
});

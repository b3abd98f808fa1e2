/** Restores through storage elements with the WLCG Tape REST API, in each of their dialects. */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { readRestored } from '../support/engine-watch.js';
import { openWlcg } from '../support/real-kinds.js';
import { describeRestores } from '../support/real-restores.js';
import { openSite } from '../support/restores.js';

const traits = { ids: true, until: false, offsets: true };
describeRestores('dcache', () => openWlcg('dcache'), { ...traits, release: true });
describeRestores('eos', () => openWlcg('eos'), { ...traits, release: true, isShort: true });
describeRestores('storm', () => openWlcg('storm'), { ...traits, release: false, isShort: true });

test('a file that is exchanged while it is read is not half of the one and half of the other', async () => {
  const kind = await openWlcg('eos');
  const { server } = kind.bench;
  const site = await openSite(kind);
  const [file, size] = ['/exchanged.nc', 3_000_000];
  await site.put([{ path: file, size, isSummed: false }]);
  const newer = randomBytes(size);
  let reads = 0;
  server.onBytes = (request, response, bytes) => {
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    const [etag, given] = reads++ === 0 ? ['"older"', bytes] : ['"newer"', newer];
    const range = from === 0 ? {} : { 'content-range': `bytes ${from}-${size - 1}/${size}` };
    response.writeHead(from === 0 ? 200 : 206, { etag, 'content-length': String(size - from), ...range });
    if (reads === 1) response.write(given.subarray(0, 1_000_003), () => response.destroy());
    else response.end(given.subarray(from));
    return true;
  };
  await site.bring(await site.request(file), 'COMPLETED', [file]);
  expect(readRestored(site.app, file)?.equals(newer)).toBe(true);
  expect(reads).toBe(3);
  await site.close();
});

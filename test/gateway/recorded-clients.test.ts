/** Recorded requests of gfal2 2.21.3 and davix 0.8.4. `npm run test:clients` runs the clients themselves. */
import { expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { addQuota, addTaped } from '../support/factories.js';
import { sendAsIs } from '../support/http.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
const transfer = { siteName: undefined, webdav: 'all' as const, gateways: new Map(), diskCalls: 2 };
const GFAL2 = { 'User-Agent': 'gfal2/2.21.3 neon/0.0.29', TE: 'trailers' };
let token: string;
let contents: Map<string, Uint8Array>;
const app = useApp({ library, config: { transfer, access: { auth: new Set(['token']) } } }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  token = (await createToken(app.ctx, { name: 'alice', role: 'USER' })).secret;
  contents = await addTaped(app.ctx, library, [{ path: '/grid/data/large' }, { path: '/grid/data/with space' }]);
});

async function call(
  method: string,
  target: string,
  { body, ...headers }: { body?: string; [header: string]: string | undefined } = {},
) {
  const shown = {
    ...GFAL2,
    ...(headers as Record<string, string>),
    Authorization: `Bearer ${token}`,
    ...(method === 'POST' && { 'Content-Type': 'application/json' }),
    ...(body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) }),
  };
  return await sendAsIs(app, target, { method, headers: shown, body });
}

const LIST = `<?xml version="1.0" encoding="utf-8" ?><D:propfind xmlns:D="DAV:" xmlns:L="LCGDM:"><D:prop><D:displayname/><D:getlastmodified/><D:creationdate/>
<D:getcontentlength/><D:quota-used-bytes/><D:resourcetype><D:collection/></D:resourcetype><L:mode/></D:prop></D:propfind>`;

test('gfal2 discovers, stages, polls, lists, reads and releases', async () => {
  const found = await call('GET', '/.well-known/wlcg-tape-rest-api', { Connection: 'Keep-Alive', 'Keep-Alive': '' });
  const [{ uri, version }] = (found.body as { endpoints: [{ uri: string; version: string }] }).endpoints;
  expect([version, uri]).toEqual(['v1', `${app.url}/tape_rest/v1`]);
  const base = new URL(uri).pathname;

  const paths = '{"paths": ["/webdav/grid/data/large", "/webdav/grid/data/with%20space"]}';
  const info = await call('POST', `${base}/archiveinfo/`, { body: paths });
  const localities = ['large', 'with%20space'].map((name) => ({ path: `/webdav/grid/data/${name}`, locality: 'TAPE' }));
  expect([info.status, info.body]).toEqual([200, localities]);
  const staged = await call('POST', `${base}/stage/`, {
    body: '{"files": [{"path": "/webdav/grid/data/large", "targetedMetadata": {"default": {"activity": "x"}}}, {"path": "/webdav/grid/data/with%20space"}]}',
  });
  const { requestId } = staged.body as { requestId: string };
  expect([staged.status, typeof requestId]).toEqual([201, 'string']);
  const polled = await waitFor('all to be on disk', async () => {
    const { status, body } = await call('GET', `${base}/stage/${requestId}`);
    const answer = body as { id: string; files: { path: string; state: string; error?: string }[] };
    expect([status, answer.id]).toEqual([200, requestId]);
    expect(answer.files.map(({ error }) => error)).toEqual([undefined, undefined]);
    return answer.files.every(({ state }) => state === 'COMPLETED') && answer;
  });
  expect(polled.files.map(({ path }) => path)).toEqual(['/webdav/grid/data/large', '/webdav/grid/data/with%20space']);

  const looked = await call('PROPFIND', '/webdav/grid/data//large', { Depth: '0' });
  expect([looked.status, /<D:getcontentlength>(\d+)</.exec(looked.text)?.[1]]).toEqual([207, '1000']);
  const listed = await call('PROPFIND', '/webdav/grid/data', { Depth: '1', body: LIST });
  expect([listed.status, listed.text.match(/<D:response>/g)?.length]).toEqual([207, 3]);
  const summed = await call('HEAD', '/webdav/grid/data//large', { 'Want-Digest': 'SHA-256' });
  expect([summed.status, summed.headers.get('digest')]).toEqual([200, expect.stringMatching(/^sha-256=/)]);
  const read = await call('GET', '/webdav/grid/data/with%20space');
  expect([read.status, read.headers.get('content-length')]).toEqual([200, '1000']);
  const part = await call('GET', '/webdav/grid/data//large', { Range: 'bytes=990-' });
  const last = Buffer.from(contents.get('/grid/data/large') ?? []).subarray(990);
  expect([part.status, part.text]).toEqual([206, last.toString()]);

  const released = await call('POST', `${base}/release/${requestId}`, { body: paths });
  expect([released.status, released.text]).toEqual([200, '']);
  const aborted = await call('POST', `${base}/stage/${requestId}/cancel`, { body: paths });
  expect([aborted.status, aborted.text]).toEqual([200, '']);
});

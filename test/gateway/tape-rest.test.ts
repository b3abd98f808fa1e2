/** The WLCG Tape REST API as clients meet it. What real ones do is in test/clients/clients.test.ts and in rest/tape/README.md. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { setMember } from '../../src/operations/access/members.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { pruneBulks } from '../../src/operations/bulks/prune.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { expireRequests } from '../../src/operations/requests/ends.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { send } from '../support/http.js';
import { callTape, poll, stageFiles, statesOf, TAPE, type TapeClient, waitForStaged } from '../support/tape-rest.js';
import { waitFor } from '../support/wait.js';

const backend = createMemoryBackend();
const hooks = { onRead: backend.onRead };
let app: TestApp;
let alice: TapeClient;
let bob: TapeClient;

beforeAll(async () => {
  app = await startApp({ backend, config: { access: { auth: new Set(['token']) } } });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
  alice = await clientOf('alice');
  bob = await clientOf('bob');
});
afterEach(() => Object.assign(backend, hooks));
afterAll(() => app.close());

async function clientOf(name: string, how: object = { role: 'USER' }): Promise<TapeClient> {
  const { secret } = await createToken(app.ctx, { name, ...how } as Parameters<typeof createToken>[1]);
  return { url: app.url, token: secret };
}

const usedOf = async (user: string): Promise<string> =>
  (await askData<{ quota: { used: string } }>(app, `{ quota(user: "${user}") { used } }`)).quota.used;

const stageOf = async (path: string): Promise<string> =>
  (await askData<{ tapeFile: { stage: string } }>(app, `{ tapeFile(path: "${path}") { stage } }`)).tapeFile.stage;

/** The labels of requests begin with the id of the stage request. */
async function requestsOf(id: string): Promise<{ retention: string; state: string; paths: string[] }[]> {
  const { requests } = await askData<{ requests: { edges: { node: Record<string, unknown> }[] } }>(
    app,
    `{ requests(first: 100, states: [QUEUED, RESTORING, COMPLETED, PARTIAL, EXPIRED, CANCELLED]) { edges { node {
      label retention requestDate state filesUnknown holds(first: 50) { edges { node { file { path } } } } } } } }`,
  );
  return requests.edges.flatMap(({ node }) => {
    if (node.label !== `stage ${id}`) return [];
    expect(node.filesUnknown).toBe(0);
    const holds = (node.holds as { edges: { node: { file: { path: string } } }[] }).edges;
    return [{ ...(node as { retention: string; state: string }), paths: holds.map((edge) => edge.node.file.path) }];
  });
}

test('clients find the API, by whatever name they know the gateway, without a token', async () => {
  const { status, body } = await send(app, '/.well-known/wlcg-tape-rest-api');
  expect([status, body]).toEqual([
    200,
    {
      sitename: '127.0.0.1',
      description: 'Tapegate',
      endpoints: [{ uri: `${app.url}${TAPE}`, version: 'v1', metadata: {} }],
    },
  ]);
});

test('files are staged and polled until they are on disk, each under the path that was written', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/s/one' }, { path: '/s/two' }]);
  const before = Math.floor(Date.now() / 1000);
  const id = await stageFiles(alice, [{ path: '//webdav//s/one' }, { path: '/s//two/' }, { path: '/s/one' }]);
  const first = await poll(alice, id);
  expect(first).toEqual({
    id,
    createdAt: expect.any(Number),
    startedAt: expect.any(Number),
    files: ['//webdav//s/one', '/s//two/'].map((path) =>
      expect.objectContaining({ path, state: expect.stringMatching(/SUBMITTED|STARTED/) }),
    ),
  });
  expect([first.createdAt, first.startedAt].every((time) => time >= before - 60 && time <= before + 60)).toBe(true);
  await waitFor('the first read', async () => statesOf(await poll(alice, id))['//webdav//s/one'] === 'STARTED');
  gate.open();
  const last = await waitForStaged(alice, id);
  expect(statesOf(last)).toEqual({ '//webdav//s/one': 'COMPLETED', '/s//two/': 'COMPLETED' });
  expect(last.completedAt).toBeGreaterThanOrEqual(last.startedAt);
  expect(await usedOf('alice')).toBe('2000');
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('an unknown path, a folder, a file elsewhere and one beyond the quota are their own errors, and are not awaited', async () => {
  await addTaped(app.ctx, backend, [{ path: '/e/good' }, { path: '/e/late', size: 10 }]);
  await addFiles(app.ctx, [
    { path: '/e/large', size: 2_000_000n, volume: 'E2' },
    { path: '/e/primary', stage: 'ONDISK', volume: 'E2' },
  ]);
  const paths = ['/e/none', '/e', '/e/primary', '/e/large', '/e/good', '/e/late'];
  const id = await stageFiles(
    alice,
    paths.map((path) => ({ path })),
  );
  const { files } = await waitForStaged(alice, id);
  expect(files.map(({ path, state, error }) => [path, state, error])).toEqual([
    ['/e/none', 'FAILED', expect.stringContaining('no such file')],
    ['/e', 'FAILED', expect.stringContaining('folder')],
    ['/e/primary', 'FAILED', expect.stringContaining('primary place')],
    ['/e/large', 'FAILED', expect.stringContaining('quota has no room')],
    ['/e/good', 'COMPLETED', undefined],
    ['/e/late', 'COMPLETED', undefined],
  ]);
  expect(await usedOf('alice')).toBe('1010');
  await addTaped(app.ctx, backend, [{ path: '/e/none', volume: 'E3' }]);
  expect(statesOf(await poll(alice, id))['/e/none']).toBe('FAILED');
  expect((await requestsOf(id)).map((request) => request.paths)).toEqual([['/e/good', '/e/late']]);
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('the quota takes files in their order as far as it has room', async () => {
  await addQuota(app.ctx, 'small', 2500n);
  await addTaped(
    app.ctx,
    backend,
    [1, 2, 3].map((n) => ({ path: `/room/${n}`, volume: 'ROOM' })),
  );
  const small = await clientOf('small');
  const id = await stageFiles(
    small,
    [1, 2, 3].map((n) => ({ path: `/room/${n}` })),
  );
  expect(statesOf(await waitForStaged(small, id))).toEqual({
    '/room/1': 'COMPLETED',
    '/room/2': 'COMPLETED',
    '/room/3': 'FAILED',
  });
  expect(await usedOf('small')).toBe('2000');
});

test('a stage request of which nothing can be had is taken, and makes no request', async () => {
  const id = await stageFiles(alice, [{ path: '/nowhere/at/all' }]);
  const { files, completedAt, createdAt } = await poll(alice, id);
  expect([files[0]?.state, completedAt]).toEqual(['FAILED', createdAt]);
  expect(await requestsOf(id)).toEqual([]);
  expect((await callTape(alice, 'DELETE', `/stage/${id}`)).status).toBe(200);
});

test('each disk lifetime has a request of its own, which ends when it is over', async () => {
  await addTaped(app.ctx, backend, [{ path: '/l/day' }, { path: '/l/hours' }, { path: '/l/any' }]);
  const id = await stageFiles(alice, [
    { path: '/l/day', diskLifetime: 'P1D' },
    { path: '/l/hours', diskLifetime: 'PT1H30M' },
    { path: '/l/any' },
  ]);
  expect(Object.values(statesOf(await waitForStaged(alice, id)))).toEqual(['COMPLETED', 'COMPLETED', 'COMPLETED']);
  const seconds = (await requestsOf(id)).map((request) => {
    const { retention, requestDate } = request as unknown as { retention: string; requestDate: string };
    return [request.paths[0], Math.round((Date.parse(retention) - Date.parse(requestDate)) / 60_000) * 60];
  });
  expect(Object.fromEntries(seconds)).toEqual({ '/l/day': 86_400, '/l/hours': 5400, '/l/any': 5 * 86_400 });
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('a file that has not come when its lifetime is over has failed, and says so', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/late/a', volume: 'LATE' }]);
  const id = await stageFiles(alice, [{ path: '/late/a', diskLifetime: 'PT1S' }]);
  const { files } = await waitForStaged(alice, id);
  gate.open();
  expect(files).toEqual([{ path: '/late/a', state: 'FAILED', error: expect.stringContaining('lifetime') }]);
});

test('files are cancelled all or none', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [
    { path: '/c/a', volume: 'C' },
    { path: '/c/b', volume: 'C' },
  ]);
  const id = await stageFiles(alice, [{ path: '/c/a' }, { path: '/c/b' }]);
  const refused = await callTape(alice, 'POST', `/stage/${id}/cancel`, { paths: ['/c/a', '/c/other'] });
  expect([refused.status, refused.headers.get('content-type'), refused.body]).toEqual([
    400,
    'application/problem+json',
    { status: 400, title: 'Bad Request', detail: expect.stringContaining('"/c/other"') },
  ]);
  expect(Object.values(statesOf(await poll(alice, id)))).not.toContain('CANCELLED');
  const { status, text } = await callTape(alice, 'POST', `/stage/${id}/cancel`, { paths: ['/webdav/c/a', '/c/b'] });
  expect([status, text]).toEqual([200, '']);
  const answer = await poll(alice, id);
  gate.open();
  expect([statesOf(answer), typeof answer.completedAt]).toEqual([
    { '/c/a': 'CANCELLED', '/c/b': 'CANCELLED' },
    'number',
  ]);
  expect(await usedOf('alice')).toBe('0');
  // which is without effect by now
  expect((await callTape(alice, 'POST', `/release/${id}`, { paths: ['/c/a'] })).status).toBe(200);
});

test('a stage request that is deleted is nobody’s any more, and holds nothing', async () => {
  await addTaped(app.ctx, backend, [{ path: '/d/a', volume: 'D' }]);
  const id = await stageFiles(alice, [{ path: '/d/a' }]);
  await waitForStaged(alice, id);
  const { status, text } = await callTape(alice, 'DELETE', `/stage/${id}`);
  expect([status, text, await usedOf('alice')]).toEqual([200, '', '0']);
  await waitFor('the copy to go', async () => (await stageOf('/d/a')) === 'ONTAPE');
  const gone = [
    await callTape(alice, 'GET', `/stage/${id}`),
    await callTape(alice, 'DELETE', `/stage/${id}`),
    await callTape(alice, 'POST', `/stage/${id}/cancel`, { paths: ['/d/a'] }),
    await callTape(alice, 'POST', `/release/${id}`, { paths: ['/d/a'] }),
    await callTape(alice, 'GET', '/stage/nonsense'),
  ];
  expect(gone.map((answer) => answer.status)).toEqual([404, 404, 404, 404, 404]);
});

test('a file that is released leaves the disk, and stays completed', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/r/a', volume: 'R' },
    { path: '/r/b', volume: 'R' },
  ]);
  const id = await stageFiles(alice, [{ path: '/r/a' }, { path: '/r/b' }]);
  await waitForStaged(alice, id);
  const { status, text } = await callTape(alice, 'POST', `/release/${id}`, { paths: ['/webdav//r/a'] });
  expect([status, text]).toEqual([200, '']);
  await waitFor('the copy to go', async () => (await stageOf('/r/a')) === 'ONTAPE');
  expect([await stageOf('/r/b'), await usedOf('alice')]).toEqual(['RESTORED', '1000']);
  expect(statesOf(await poll(alice, id))).toEqual({ '/r/a': 'COMPLETED', '/r/b': 'COMPLETED' });
  // as gfal2 does where its user has not kept the id; what somebody else has staged stays
  const other = await stageFiles(bob, [{ path: '/r/b' }]);
  await callTape(alice, 'POST', '/release/gfal2-placeholder-id', { paths: ['/webdav/r/b', '/r/none'] });
  expect([await usedOf('alice'), await usedOf('bob'), await stageOf('/r/b')]).toEqual(['0', '1000', 'RESTORED']);
  await callTape(bob, 'DELETE', `/stage/${other}`);
});

test('what a client releases after its lifetime is over was let go before, and is no fault', async () => {
  await addTaped(app.ctx, backend, [{ path: '/over/a', volume: 'OVER' }]);
  const id = await stageFiles(alice, [{ path: '/over/a' }]);
  await waitForStaged(alice, id);
  const { rows } = await app.ctx.db.pool.query<{ id: number }>(
    `SELECT request_id AS id FROM bulk_file WHERE path = '/over/a' AND bulk_id = $1`,
    [id],
  );
  for (const request of rows) await updateRequest(app.ctx, { id: request.id, retention: '2020-01-01' });
  const { status, text } = await callTape(alice, 'POST', `/release/${id}`, { paths: ['/over/a'] });
  expect([rows.length, status, text]).toEqual([1, 200, '']);
});

test('a file that was renamed is released by the path by which it was staged, and by its own, also without the id', async () => {
  await addTaped(
    app.ctx,
    backend,
    ['a', 'b', 'c'].map((name) => ({ path: `/w/${name}` })),
  );
  const before = await usedOf('alice');
  const id = await stageFiles(alice, [{ path: '/w/a' }, { path: '/w/b' }, { path: '/w/c' }]);
  await waitForStaged(alice, id);
  await renameFiles(app.ctx, { from: '/w/', to: '/v/' });
  expect((await callTape(alice, 'POST', '/release/gfal2-placeholder-id', { paths: ['/w/a', '/v/b'] })).status).toBe(
    200,
  );
  expect(Number(await usedOf('alice')) - Number(before)).toBe(1000);
  expect((await callTape(alice, 'POST', '/release/gfal2-placeholder-id', { paths: ['/w/c'] })).status).toBe(200);
  expect(await usedOf('alice')).toBe(before);
});

test('localities tell what can be served here', async () => {
  await addTaped(app.ctx, backend, [{ path: '/i/restored', volume: 'I' }]);
  await addFiles(app.ctx, [
    { path: '/i/tape', volume: 'I2' },
    { path: '/i/empty', size: 0n, volume: 'I2' },
    { path: '/i/disk', stage: 'ONDISK', volume: 'I2' },
    { path: '/i/unverified', stage: 'UNVERIFIED', verified: null, volume: 'I2' },
    { path: '/i/nowhere', volume: null, position: null },
  ]);
  const id = await stageFiles(alice, [{ path: '/i/restored' }]);
  await waitForStaged(alice, id);
  const names = ['restored', 'tape', 'tape', 'empty', 'disk', 'unverified', 'nowhere', 'none', '../x'];
  const { status, body } = await callTape(alice, 'POST', '/archiveinfo', {
    paths: [...names.map((name) => `//webdav/i/${name}`), '/i'],
  });
  const error = expect.any(String);
  expect([status, body]).toEqual([
    200,
    [
      { path: '//webdav/i/restored', locality: 'DISK_AND_TAPE' },
      { path: '//webdav/i/tape', locality: 'TAPE' },
      { path: '//webdav/i/empty', locality: 'TAPE' },
      { path: '//webdav/i/disk', locality: 'UNAVAILABLE', error },
      { path: '//webdav/i/unverified', locality: 'UNAVAILABLE', error },
      { path: '//webdav/i/nowhere', locality: 'UNAVAILABLE', error },
      { path: '//webdav/i/none', error },
      { path: '//webdav/i/../x', error },
      { path: '/i', error },
    ],
  ]);
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('a path of a URL is percent-encoded, and one of the archive is not', async () => {
  await addFiles(app.ctx, [{ path: '/u/a b%' }, { path: '/u/a%20b' }, { path: '/webdav/u', position: 5n }]);
  const known = [
    '/webdav/u/a%20b%25',
    '/u/a b%',
    '/u/a%20b',
    '/webdav/u/a%2520b',
    '/webdav/webdav/u',
    '/webdav/u/a b%',
  ];
  const unknown = ['/u/a%20b%25', '/webdav/u/a%20b', '/webdav/u/%2e%2e/u/a', '/webdav/u%00'];
  const { body } = await callTape(alice, 'POST', '/archiveinfo', { paths: [...known, ...unknown] });
  const told = (body as { path: string; locality?: string }[]).map(({ path, locality }) => [path, locality]);
  // those that mean the same are answered once
  expect(told).toEqual([
    ['/webdav/u/a%20b%25', 'TAPE'],
    ['/u/a%20b', 'TAPE'],
    ['/webdav/webdav/u', 'TAPE'],
    ...unknown.map((path) => [path, undefined]),
  ]);
});

test('what rules keep from a caller is as if it were not there', async () => {
  await addTaped(app.ctx, backend, [{ path: '/secret/a', volume: 'SECRET' }]);
  await setPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'alice' });
  const paths = ['/secret/a', '/secret'];
  const info = await callTape(bob, 'POST', '/archiveinfo', { paths });
  const none = await callTape(bob, 'POST', '/archiveinfo', { paths: ['/nothing/a', '/nothing'] });
  expect(info.text.replaceAll('secret', 'nothing')).toBe(none.text);
  const id = await stageFiles(
    bob,
    paths.map((path) => ({ path })),
  );
  const { files } = await poll(bob, id);
  const missing = await stageFiles(bob, [{ path: '/nothing/a' }]);
  expect(files.map(({ error }) => error)).toEqual(Array(2).fill((await poll(bob, missing)).files[0]?.error));
});

test('nobody sees or changes what another has staged', async () => {
  await addTaped(app.ctx, backend, [{ path: '/o/a', volume: 'O' }]);
  const id = await stageFiles(alice, [{ path: '/o/a' }]);
  const statuses = async (client: TapeClient) => [
    (await callTape(client, 'GET', `/stage/${id}`)).status,
    (await callTape(client, 'POST', `/stage/${id}/cancel`, { paths: ['/o/a'] })).status,
    (await callTape(client, 'POST', `/release/${id}`, { paths: ['/o/a'] })).status,
    (await callTape(client, 'DELETE', `/stage/${id}`)).status,
  ];
  expect(await statuses(bob)).toEqual([404, 404, 404, 404]);
  const viewer = await clientOf('auditor', { role: 'VIEWER' });
  expect(await statuses(viewer)).toEqual([200, 403, 403, 403]);
  expect((await callTape({ ...alice, token: 'none' }, 'GET', `/stage/${id}`)).status).toBe(401);
  expect(await usedOf('alice')).toBe('1000');
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('the quota that is charged is the caller’s only one, or its own, or the one that it names', async () => {
  await addQuota(app.ctx, 'lab', 1_000_000n);
  await addQuota(app.ctx, 'vo', 1_000_000n);
  await addTaped(app.ctx, backend, [{ path: '/q/a', volume: 'Q' }]);
  await setMember(app.ctx, { quota: 'lab', kind: 'USER', name: 'alice', isManager: false });
  const stage = async (client: TapeClient, metadata?: object) => {
    const { status, body } = await callTape(client, 'POST', '/stage', {
      files: [{ path: '/q/a', targetedMetadata: metadata }],
    });
    return status === 201
      ? (body as { requestId: string }).requestId
      : `${status} ${(body as { detail: string }).detail}`;
  };
  const used = async () => [await usedOf('alice'), await usedOf('lab'), await usedOf('vo')];
  const own = await stage(alice, { elsewhere: { quota: 'nobody' }, '127.0.0.1': { activity: 'x', quota: 5 } });
  expect(await used()).toEqual(['1000', '0', '0']);
  const shared = await stage(alice, { '127.0.0.1': { quota: 'lab' } });
  expect(await used()).toEqual(['1000', '1000', '0']);
  const only = await stage(await clientOf('mover', { role: 'SERVICE', quotas: ['vo'] }), { default: {} });
  expect(await used()).toEqual(['1000', '1000', '1000']);
  expect(await stage(alice, { default: { quota: 'bob' } })).toMatch(/^403 .*"bob"/);
  const both = await clientOf('both', { role: 'SERVICE', quotas: ['vo', 'lab'] });
  expect(await stage(both)).toMatch(/^400 .*must name the quota that is to be charged: "both" has 2, "lab", "vo"$/);
  expect(await stage(await clientOf('carol'))).toMatch(/^400 .*must name a quota: "carol" has none/);
  expect(await stage({ url: app.url, token: app.token })).toMatch(/^400 .*you may ask with any$/);
  expect(await stage({ url: app.url, token: app.token }, { default: { quota: 'nobody' } })).toMatch(/^403 .*"nobody"/);
  for (const id of [own, shared, only]) await callTape({ url: app.url, token: app.token }, 'DELETE', `/stage/${id}`);
  expect(await used()).toEqual(['0', '0', '0']);
});

test('what has ended long ago is forgotten, and what lives is not', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/p/a', volume: 'P' },
    { path: '/p/b', volume: 'P' },
  ]);
  const [old, live] = [await stageFiles(alice, [{ path: '/p/a' }]), await stageFiles(alice, [{ path: '/p/b' }])];
  await callTape(alice, 'POST', `/stage/${old}/cancel`, { paths: ['/p/a'] });
  await app.ctx.db.pool.query(
    `UPDATE request SET state = 'CANCELLED', retention = retention - interval '60 days' WHERE label = 'stage ${old}'`,
  );
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.db.clock.now(), 31 * 86_400) };
  await app.ctx.db.pool.query(
    `UPDATE request SET retention = retention + interval '90 days' WHERE label = 'stage ${live}'`,
  );
  await pruneBulks(later, new AbortController().signal);
  expect((await callTape(alice, 'GET', `/stage/${old}`)).status).toBe(404);
  expect((await callTape(alice, 'GET', `/stage/${live}`)).status).toBe(200);
  await callTape(alice, 'DELETE', `/stage/${live}`);
});

test('a stage request is there for a day, also while it is made, whatever REQUEST_DAYS says', async () => {
  const id = await stageFiles(alice, [{ path: '/nowhere/at/all' }]);
  const config = { ...app.ctx.config, requestDays: 0 };
  await pruneBulks({ ...app.ctx, config }, new AbortController().signal);
  expect(statesOf(await poll(alice, id))).toEqual({ '/nowhere/at/all': 'FAILED' });
  const later = () => addSeconds(app.ctx.db.clock.now(), 86_401);
  await pruneBulks({ ...app.ctx, config, now: later }, new AbortController().signal);
  expect((await callTape(alice, 'GET', `/stage/${id}`)).status).toBe(404);
});

test('files of a part that has ended, and is compact by now, are told as they were', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/k/short', volume: 'K' },
    { path: '/k/long', volume: 'K' },
  ]);
  const id = await stageFiles(alice, [
    { path: '/k/short', diskLifetime: 'P1D' },
    { path: '/k/long', diskLifetime: 'P90D' },
  ]);
  await waitForStaged(alice, id);
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.db.clock.now(), 40 * 86_400) };
  await expireRequests(later);
  await compactRequests(later, new AbortController().signal);
  const forms = await app.ctx.db.pool.query(`SELECT form FROM request WHERE label = 'stage ${id}' ORDER BY id`);
  expect(forms.rows).toEqual([{ form: 'COMPACT' }, { form: 'ROWS' }]);
  expect(statesOf(await poll(alice, id))).toEqual({ '/k/short': 'COMPLETED', '/k/long': 'COMPLETED' });
  await callTape(alice, 'DELETE', `/stage/${id}`);
});

test('a stage request of thousands of files is told whole', async () => {
  const files = Array.from({ length: 1500 }, (_, n) => ({
    path: `/many/${n}`,
    volume: 'MANY',
    size: 1n,
    position: BigInt(n + 1),
  }));
  await addFiles(app.ctx, files);
  const gate = holdReads(backend);
  const id = await stageFiles(
    alice,
    files.map(({ path }) => ({ path: `/webdav${path}` })),
  );
  const answer = await poll(alice, id);
  expect([answer.files.length, answer.files[1499]?.path]).toEqual([1500, '/webdav/many/1499']);
  expect((await callTape(alice, 'DELETE', `/stage/${id}`)).status).toBe(200);
  gate.open();
});

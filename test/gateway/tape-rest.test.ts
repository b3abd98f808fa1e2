/** The WLCG Tape REST API as clients see it. Real clients run in test/clients/clients.test.ts. */
import { afterEach, expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { expireRequests } from '../../src/domain/requests/ends.js';
import { pruneStageRequests } from '../../src/domain/stage-requests/stage-requests.js';
import { startBeside } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { ask, askData, type Edges } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { send } from '../support/http.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { callTape, poll, stageFiles, statesOf, TAPE, type TapeClient, waitForStaged } from '../support/tape-rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
const hooks = { onRead: library.onRead };
let alice: TapeClient;
let bob: TapeClient;
const app = useApp({ library, config: { access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
  alice = await clientOf('alice');
  bob = await clientOf('bob');
});
afterEach(() => Object.assign(library, hooks));

async function clientOf(name: string, how: object = { role: 'USER' }): Promise<TapeClient> {
  const { secret } = await createToken(app.ctx, { name, ...how } as Parameters<typeof createToken>[1]);
  return { url: app.url, token: secret };
}

const add = (volume: string, ...paths: string[]) => {
  const files = paths.map((path) => ({ path, volume }));
  return addTaped(app.ctx, library, files);
};

const stage = (client: TapeClient, ...paths: string[]) => {
  const files = paths.map((path) => ({ path }));
  return stageFiles(client, files);
};

const remove = (id: string) => callTape(alice, 'DELETE', `/stage/${id}`);
const cancel = (client: TapeClient, id: string, ...paths: string[]) =>
  callTape(client, 'POST', `/stage/${id}/cancel`, { paths });
const release = (client: TapeClient, id: string, ...paths: string[]) =>
  callTape(client, 'POST', `/release/${id}`, { paths });
/** Request id that gfal2 sends if its user specifies none. */
const NO_ID = 'gfal2-placeholder-id';

const usedOf = async (user: string): Promise<string> =>
  (await askData<{ quota: { used: string } }>(app, `{ quota(user: "${user}") { used } }`)).quota.used;

const stageOf = async (path: string): Promise<string> =>
  (await askData<{ tapeFile: { stage: string } }>(app, `{ tapeFile(path: "${path}") { stage } }`)).tapeFile.stage;

/** Returns the paths and lifetimes, in seconds, of the Tapegate requests that a stage request has created. */
async function requestsOf(id: string): Promise<{ seconds: number; paths: string[] }[]> {
  const { requests } = await askData<{ requests: Edges<RequestNode> }>(
    app,
    '{ requests(first: 100) { edges { node { label retention createdAt files { edges { node { file { path } } } } } } } }',
  );
  const made = requests.edges.filter(({ node }) => node.label === `stage ${id}`);
  return made.map(({ node: { retention, createdAt, files } }) => ({
    seconds: Math.round((Date.parse(retention) - Date.parse(createdAt)) / 60_000) * 60,
    paths: files.edges.map(({ node }) => node.file.path),
  }));
}

type RequestNode = Record<'label' | 'retention' | 'createdAt', string> & { files: Edges<{ file: { path: string } }> };

test('clients discover the API without a token', async () => {
  const { status, body } = await send(app, '/.well-known/wlcg-tape-rest-api');
  const endpoints = [{ uri: `${app.url}${TAPE}`, version: 'v1', metadata: {} }];
  expect([status, body]).toEqual([200, { sitename: '127.0.0.1', description: 'Tapegate', endpoints }]);
});

test('files are staged and polled until they are on disk, each under the path that the client wrote', async () => {
  const gate = holdReads(library);
  await addTaped(app.ctx, library, [{ path: '/s/one' }, { path: '/s/two' }]);
  const before = Math.floor(Date.now() / 1000);
  const id = await stage(alice, '//webdav//s/one', '/s//two/', '/s/one');
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
  await remove(id);
});

test('files that cannot be staged fail with their own errors and stay failed, and the quota takes the others in their order', async () => {
  await addQuota(app.ctx, 'small', 2500n);
  const small = await clientOf('small');
  await add('E1', '/e/1', '/e/2', '/e/3');
  await addFiles(app.ctx, [{ path: '/e/primary', stage: 'ONDISK', volume: 'E2' }]);
  const id = await stage(small, '/e/none', '/e', '/e/primary', '/e/1', '/e/2', '/e/3');
  const { files } = await waitForStaged(small, id);
  expect(files.map(({ path, state, error }) => [path, state, error])).toEqual([
    ['/e/none', 'FAILED', expect.stringContaining('no such file')],
    ['/e', 'FAILED', expect.stringContaining('directory')],
    ['/e/primary', 'FAILED', expect.stringContaining('primary path')],
    ['/e/1', 'COMPLETED', undefined],
    ['/e/2', 'COMPLETED', undefined],
    ['/e/3', 'FAILED', expect.stringContaining('quota has no room')],
  ]);
  expect(await usedOf('small')).toBe('2000');
  await add('E3', '/e/none');
  expect(statesOf(await poll(small, id))['/e/none']).toBe('FAILED');
  expect((await requestsOf(id)).map(({ paths }) => paths)).toEqual([['/e/1', '/e/2']]);
  const empty = await stage(alice, '/nowhere/at/all');
  const { completedAt, createdAt } = await poll(alice, empty);
  expect([completedAt, await requestsOf(empty)]).toEqual([createdAt, []]);
});

test('files with different disk lifetimes are kept for as long as each says', async () => {
  await addTaped(app.ctx, library, [{ path: '/l/day' }, { path: '/l/hours' }, { path: '/l/any' }]);
  const id = await stageFiles(alice, [
    { path: '/l/day', diskLifetime: 'P1D' },
    { path: '/l/hours', diskLifetime: 'PT1H30M' },
    { path: '/l/any' },
  ]);
  expect(Object.values(statesOf(await waitForStaged(alice, id)))).toEqual(['COMPLETED', 'COMPLETED', 'COMPLETED']);
  const lifetimes = (await requestsOf(id)).map(({ seconds, paths }) => [paths[0], seconds]);
  expect(Object.fromEntries(lifetimes)).toEqual({ '/l/day': 86_400, '/l/hours': 5400, '/l/any': 5 * 86_400 });
  await remove(id);
});

test('a file that is not on disk when its lifetime ends fails with that reason', async () => {
  const gate = holdReads(library);
  await add('LATE', '/late/a');
  const id = await stageFiles(alice, [{ path: '/late/a', diskLifetime: 'PT1S' }]);
  const { files } = await waitForStaged(alice, id);
  gate.open();
  expect(files).toEqual([{ path: '/late/a', state: 'FAILED', error: expect.stringContaining('lifetime') }]);
});

test('a cancellation that names a path of no file in the request cancels nothing', async () => {
  const gate = holdReads(library);
  await add('C', '/c/a', '/c/b');
  const id = await stage(alice, '/c/a', '/c/b');
  const refused = await cancel(alice, id, '/c/a', '/c/other');
  expect([refused.status, refused.headers.get('content-type'), refused.body]).toEqual([
    400,
    'application/problem+json',
    { status: 400, title: 'Bad Request', detail: expect.stringContaining('"/c/other"') },
  ]);
  expect(Object.values(statesOf(await poll(alice, id)))).not.toContain('CANCELLED');
  const { status, text } = await cancel(alice, id, '/webdav/c/a', '/c/b');
  expect([status, text]).toEqual([200, '']);
  const answer = await poll(alice, id);
  gate.open();
  expect(statesOf(answer)).toEqual({ '/c/a': 'CANCELLED', '/c/b': 'CANCELLED' });
  expect(answer.completedAt).toEqual(expect.any(Number));
  expect(await usedOf('alice')).toBe('0');
  expect((await release(alice, id, '/c/a')).status).toBe(200);
});

test('a deleted stage request returns 404 and keeps no file on disk', async () => {
  await add('D', '/d/a');
  const id = await stage(alice, '/d/a');
  await waitForStaged(alice, id);
  const { status, text } = await callTape(alice, 'DELETE', `/stage/${id}`);
  expect([status, text, await usedOf('alice')]).toEqual([200, '', '0']);
  await waitFor('the copy to be removed', async () => (await stageOf('/d/a')) === 'ONTAPE');
  const gone = [
    await callTape(alice, 'GET', `/stage/${id}`),
    await callTape(alice, 'DELETE', `/stage/${id}`),
    await cancel(alice, id, '/d/a'),
    await release(alice, id, '/d/a'),
    await callTape(alice, 'GET', '/stage/nonsense'),
  ];
  expect(gone.map((answer) => answer.status)).toEqual([404, 404, 404, 404, 404]);
});

test('a released file is removed from disk and stays COMPLETED, also without the id of its request', async () => {
  await add('R', '/r/a', '/r/b');
  const id = await stage(alice, '/r/a', '/r/b');
  await waitForStaged(alice, id);
  const { status, text } = await release(alice, id, '/webdav//r/a');
  expect([status, text]).toEqual([200, '']);
  await waitFor('the copy to be removed', async () => (await stageOf('/r/a')) === 'ONTAPE');
  expect([await stageOf('/r/b'), await usedOf('alice')]).toEqual(['RESTORED', '1000']);
  expect(statesOf(await poll(alice, id))).toEqual({ '/r/a': 'COMPLETED', '/r/b': 'COMPLETED' });
  // a file that another user has staged stays on disk
  const other = await stage(bob, '/r/b');
  await release(alice, NO_ID, '/webdav/r/b', '/r/none');
  expect([await usedOf('alice'), await usedOf('bob'), await stageOf('/r/b')]).toEqual(['0', '1000', 'RESTORED']);
  await callTape(bob, 'DELETE', `/stage/${other}`);
});

test('a renamed file can be released by its old and by its new path, also without the id', async () => {
  await add('W', '/w/a', '/w/b', '/w/c');
  const before = await usedOf('alice');
  const id = await stage(alice, '/w/a', '/w/b', '/w/c');
  await waitForStaged(alice, id);
  await renameFiles(app.ctx, { from: '/w/', to: '/v/' });
  await release(alice, NO_ID, '/w/a', '/v/b');
  expect(Number(await usedOf('alice')) - Number(before)).toBe(1000);
  await release(alice, id, '/w/c');
  expect(await usedOf('alice')).toBe(before);
});

test('archiveinfo returns the locality of each file, or an error', async () => {
  await add('I', '/i/restored');
  await addFiles(app.ctx, [
    { path: '/i/tape', volume: 'I2' },
    { path: '/i/empty', size: 0n, volume: 'I2' },
    { path: '/i/disk', stage: 'ONDISK', volume: 'I2' },
    { path: '/i/unverified', stage: 'UNVERIFIED', verified: null, volume: 'I2' },
    { path: '/i/nowhere', volume: null, position: null },
  ]);
  const id = await stage(alice, '/i/restored');
  await waitForStaged(alice, id);
  const names = ['restored', 'tape', 'tape', 'empty', 'disk', 'unverified', 'nowhere', 'none', '../x'];
  const paths = [...names.map((name) => `//webdav/i/${name}`), '/i'];
  const { body } = await callTape(alice, 'POST', '/archiveinfo', { paths });
  const error = expect.any(String);
  expect(body).toEqual([
    { path: '//webdav/i/restored', locality: 'DISK_AND_TAPE' },
    { path: '//webdav/i/tape', locality: 'TAPE' },
    { path: '//webdav/i/empty', locality: 'TAPE' },
    ...['disk', 'unverified', 'nowhere'].map((name) => ({
      path: `//webdav/i/${name}`,
      locality: 'UNAVAILABLE',
      error,
    })),
    ...['//webdav/i/none', '//webdav/i/../x', '/i'].map((path) => ({ path, error })),
  ]);
  await remove(id);
});

test('paths below /webdav are percent-decoded, and other paths are taken as they are', async () => {
  await addFiles(app.ctx, [{ path: '/u/a b%' }, { path: '/u/a%20b' }, { path: '/webdav/u', position: 5n }]);
  const known = ['/webdav/u/a%20b%25', '/u/a b%', '/u/a%20b', '/webdav/u/a%2520b', '/webdav/webdav/u'];
  const unknown = ['/u/a%20b%25', '/webdav/u/a%20b', '/webdav/u/%2e%2e/u/a', '/webdav/u%00'];
  const { body } = await callTape(alice, 'POST', '/archiveinfo', { paths: [...known, ...unknown] });
  const told = (body as { path: string; locality?: string }[]).map(({ path, locality }) => [path, locality]);
  // several spellings of one path get one answer
  expect(told).toEqual([
    ['/webdav/u/a%20b%25', 'TAPE'],
    ['/u/a%20b', 'TAPE'],
    ['/webdav/webdav/u', 'TAPE'],
    ...unknown.map((path) => [path, undefined]),
  ]);
});

test('a file that a path rule hides from a caller is reported as unknown', async () => {
  await add('SECRET', '/secret/a');
  await addPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'alice' });
  const paths = ['/secret/a', '/secret'];
  const info = await callTape(bob, 'POST', '/archiveinfo', { paths });
  const none = await callTape(bob, 'POST', '/archiveinfo', { paths: ['/nothing/a', '/nothing'] });
  expect(info.text.replaceAll('secret', 'nothing')).toBe(none.text);
  const id = await stage(bob, ...paths);
  const { files } = await poll(bob, id);
  const missing = await stage(bob, '/nothing/a');
  expect(files.map(({ error }) => error)).toEqual(Array(2).fill((await poll(bob, missing)).files[0]?.error));
});

test('only its owner can use a stage request, and viewers can read it', async () => {
  await add('O', '/o/a');
  const id = await stage(alice, '/o/a');
  const statuses = async (client: TapeClient) => [
    (await callTape(client, 'GET', `/stage/${id}`)).status,
    (await cancel(client, id, '/o/a')).status,
    (await release(client, id, '/o/a')).status,
    (await callTape(client, 'DELETE', `/stage/${id}`)).status,
  ];
  expect(await statuses(bob)).toEqual([404, 404, 404, 404]);
  const viewer = await clientOf('auditor', { role: 'VIEWER' });
  expect(await statuses(viewer)).toEqual([200, 403, 403, 403]);
  expect((await callTape({ ...alice, token: 'none' }, 'GET', `/stage/${id}`)).status).toBe(401);
  expect(await usedOf('alice')).toBe('1000');
  await remove(id);
});

test('the charged quota is the only one of the caller, or its own, or the one that the request names', async () => {
  await addQuota(app.ctx, 'lab', 1_000_000n);
  await addQuota(app.ctx, 'vo', 1_000_000n);
  await add('Q', '/q/a');
  await setQuotaMember(app.ctx, { quota: 'lab', kind: 'USER', name: 'alice', isManager: false });
  const stage = async (client: TapeClient, metadata?: object) => {
    const files = [{ path: '/q/a', targetedMetadata: metadata }];
    const { status, body } = await callTape(client, 'POST', '/stage', { files });
    const { requestId, detail } = body as { requestId?: string; detail?: string };
    return requestId ?? `${status} ${detail}`;
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
  expect(await stage(both)).toMatch(/^400 .*must name the quota to charge; "both" has 2 quotas: "lab", "vo"$/);
  const dora = await clientOf('dora');
  for (const quota of ['vo', 'lab'])
    await setQuotaMember(app.ctx, { quota, kind: 'USER', name: 'dora', isManager: false });
  const oldest = await stage(dora);
  expect(await used()).toEqual(['1000', '1000', '2000']);
  const leave =
    'mutation { removeQuotaMember(input: { quota: "vo", kind: USER, name: "dora" }) { member { name } errors { code } } }';
  const read = async () => (await ask(dora, '{ caller { defaultQuota } }')).data;
  expect(await read()).toEqual({ caller: { defaultQuota: 'vo' } });
  expect((await ask(dora, leave.replace('dora', 'alice'))).data).toEqual({
    removeQuotaMember: { member: null, errors: [{ code: 'FORBIDDEN' }] },
  });
  expect((await ask(dora, leave)).data).toEqual({ removeQuotaMember: { member: { name: 'dora' }, errors: [] } });
  expect(await read()).toEqual({ caller: { defaultQuota: 'lab' } });
  expect(await stage(await clientOf('carol'))).toMatch(
    /^400 .*must name the quota to charge, because "carol" has no quota/,
  );
  expect(await stage({ url: app.url, token: app.token })).toMatch(/^400 .*you are allowed to charge any quota$/);
  expect(await stage({ url: app.url, token: app.token }, { default: { quota: 'nobody' } })).toMatch(/^403 .*"nobody"/);
  for (const id of [own, shared, only, oldest])
    await callTape({ url: app.url, token: app.token }, 'DELETE', `/stage/${id}`);
  expect(await used()).toEqual(['0', '0', '0']);
});

test('stage requests are removed long after their end, but not within a day, and live ones stay', async () => {
  await add('P', '/p/a', '/p/b');
  const [old, live] = [await stage(alice, '/p/a'), await stage(alice, '/p/b')];
  const recent = await stage(alice, '/nowhere/at/all');
  await cancel(alice, old, '/p/a');
  const shift = (id: string, days: number, changes = '') =>
    app.ctx.db.pool.query(
      `UPDATE request SET ${changes} retention = retention + interval '${days} days' WHERE label = 'stage ${id}'`,
    );
  await shift(old, -60, "state = 'CANCELLED',");
  await shift(live, 90);
  const config = { ...app.ctx.config, requestDays: 0 };
  const prune = (seconds: number) => {
    const now = () => addSeconds(app.ctx.db.clock.now(), seconds);
    return pruneStageRequests({ ...app.ctx, config, now }, new AbortController().signal);
  };
  const statuses = () =>
    Promise.all([old, live, recent].map(async (id) => (await callTape(alice, 'GET', `/stage/${id}`)).status));
  await prune(0);
  expect((await statuses())[2]).toBe(200);
  await prune(86_401);
  expect(await statuses()).toEqual([404, 200, 404]);
  await remove(live);
});

test('files of an expired part keep their states', async () => {
  await add('K', '/k/short', '/k/long');
  const id = await stageFiles(alice, [
    { path: '/k/short', diskLifetime: 'P1D' },
    { path: '/k/long', diskLifetime: 'P90D' },
  ]);
  await waitForStaged(alice, id);
  await expireRequests({ ...app.ctx, now: () => addSeconds(app.ctx.db.clock.now(), 40 * 86_400) });
  expect(statesOf(await poll(alice, id))).toEqual({ '/k/short': 'COMPLETED', '/k/long': 'COMPLETED' });
  await remove(id);
});

test('a stage request of more files than a page lists all of them', async () => {
  const files = Array.from({ length: 1500 }, (_, n) => ({ path: `/many/${n}`, volume: 'MANY', size: 1n }));
  await addFiles(app.ctx, files);
  const gate = holdReads(library);
  const id = await stage(alice, ...files.map(({ path }) => `/webdav${path}`));
  const answer = await poll(alice, id);
  expect([answer.files.length, answer.files[1499]?.path]).toEqual([1500, '/webdav/many/1499']);
  expect((await callTape(alice, 'DELETE', `/stage/${id}`)).status).toBe(200);
  gate.open();
});

test('an invalid path fails alone, and not with the files beside it', async () => {
  await add('ODD', '/odd/good');
  const odd = [
    ...['relative', '/webdav', '/odd/../x', '/odd/./x', `/${'x'.repeat(300)}`, `/${'long/'.repeat(600)}x`],
    ...['/odd/.tapegate-x', '/webdav/odd/%00', '/webdav/odd/%2e%2e/y', '/webdav/odd/a%2F%2Fb'],
  ];
  const id = await stage(alice, ...odd.slice(0, 5), '/odd/good', ...odd.slice(5));
  const states = statesOf(await waitForStaged(alice, id));
  expect(states).toEqual({ ...Object.fromEntries(odd.map((each) => [each, 'FAILED'])), '/odd/good': 'COMPLETED' });
  const answers = [
    await release(alice, NO_ID, ...odd),
    await cancel(alice, id, ...odd),
    await release(alice, id, ...odd),
    await cancel(alice, id, '/webdav/%00/other'),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 400]);
  expect(answers[3]?.text).toContain('/other');
  expect((await remove(id)).status).toBe(200);
});

test('beyond the limit of paths archiveinfo answers the first ones, and a release is refused', async () => {
  const small = await startBeside(app, { limits: { requestPaths: 2 } });
  try {
    const client = { ...alice, url: small.url };
    const paths = ['/1', '/2', '/3'];
    const { status, body } = await callTape(client, 'POST', '/archiveinfo', { paths });
    expect([status, (body as { path: string }[]).map((info) => info.path)]).toEqual([200, ['/1', '/2']]);
    expect((await release(client, NO_ID, ...paths)).status).toBe(400);
  } finally {
    await small.close();
  }
});

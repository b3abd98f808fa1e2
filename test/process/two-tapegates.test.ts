/**
 * One Tapegate is the library of another. Requests at the near site are restored from the tapes of the far site. The
 * near site reports errors of the far site, and no site keeps stale files.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { addSecret } from '../support/library-dir.js';
import { cancel, made } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { readTries } from '../support/suspend.js';
import { closeSites, FarSite, NearSite } from '../support/two-tapegates.js';
import { waitFor } from '../support/wait.js';

/** Files of the far catalogue by path. In the near catalogue, `/there` replaces `/arc`. */
const contents = new Map<string, Buffer>(
  (
    [
      ['good/a b', 300_000],
      ['good/ü%41', 0],
      ['good/b', 1],
      ['bad/directory/file', 1000],
      ...[1, 2, 3].map((n) => [`full/${n}`, 400_000] as const),
      ['late/a', 1000],
      ['broken/large', 8_000_000],
    ] as const
  ).map(([name, size]) => [`/arc/${name}`, randomBytes(size)]),
);

const QUOTA = 10n ** 9n;
let far: FarSite;
let near: NearSite;

beforeAll(async () => {
  far = await FarSite.create();
  await far.archive(contents);
  await far.startGateway();
  await far.startEngine();
  const token = await far.addUser('near.example.org', String(QUOTA));
  near = await NearSite.start();
  const [tokenFile, caFile] = [addSecret(`${token}\n`), addSecret(readFileSync(far.caFile, 'utf8'))];
  const settings = {
    url: `${far.url}/webdav`,
    ...{ tokenFile, caFile, pathPrefix: '/there', remotePathPrefix: '/arc', pollLeastSeconds: 1 },
  };
  const set = Object.entries(settings).map(([key, value]) => `${key}=${value}`);
  await near.site.run(['library', 'add', 'far', '--type', 'wlcg', '--set', ...set]);
  await near.site.run(['quota', 'set', 'ann', '--size', '1T']);
  // the near catalogue has the checksum of every other file
  const rows = [...contents].map(([file, bytes], n) => rowOf(file, bytes.length, n % 2 === 0 ? checksumOf(bytes) : ''));
  const known = rows.filter(([file]) => file !== '/there/bad/directory/file');
  await addRows([...known, rowOf('/arc/bad/none', 7), rowOf('/arc/bad/directory', 1000)]);
});

afterEach(async () => {
  for (const { id } of await near.site.query<{ id: number }>('SELECT id FROM request')) await cancel(near, id);
  await near.site.waitForNothing();
  await far.site.waitForNothing();
});

afterAll(async () => {
  await closeSites(far, near);
});

const nearPath = (file: string) => file.replace(/^\/arc/, '/there');
const rowOf = (file: string, size: number, checksum = '') => [nearPath(file), size, 'T', 'far', 'far', checksum];

async function addRows(rows: (string | number)[][]): Promise<void> {
  const lines = [['path', 'size', 'stage', 'volume', 'library', 'checksum'], ...rows].map((row) => row.join(','));
  await near.site.run(['import', '-'], lines.join('\n'));
}

/** Expects the bytes of the far tapes in the near restore area, and the checksum in the near catalogue. */
async function expectRestored(file: string): Promise<void> {
  const bytes = contents.get(file) ?? Buffer.alloc(0);
  const restored = path.join(near.site.restoreDir, nearPath(file));
  expect(existsSync(restored) && readFileSync(restored).equals(bytes)).toBe(true);
  const query = 'query ($path: String!) { tapeFile(path: $path) { stage checksum } }';
  const { tapeFile } = await askData<{ tapeFile: object }>(near, query, { path: nearPath(file) });
  expect(tapeFile).toEqual({ stage: 'RESTORED', checksum: checksumOf(bytes) });
}

const filesOf = (directory: string) => [...contents.keys()].filter((file) => file.startsWith(`/arc/${directory}/`));

const ask = (directory: string) =>
  made(near, { quota: 'ann', files: filesOf(directory).map(nearPath), retention: '2099-01-01T00:00:00Z' });

/** Adds a file of zeros that takes a while to read from the far tape. */
async function addLong(file: string, size: number): Promise<void> {
  const copy = path.join(far.site.dataDir, 'library/LONG/00000001');
  mkdirSync(path.dirname(copy), { recursive: true });
  writeFileSync(copy, '');
  truncateSync(copy, size);
  await far.site.run(['import', '-'], JSON.stringify({ path: file, size, stage: 'T', volume: 'LONG', position: 1 }));
}

/** Returns the problem of the far library that the near site shows to operators. */
async function readProblem(): Promise<string | null> {
  const query = '{ libraries(first: 10) { edges { node { name staging { problem } } } } }';
  type Library = { name: string; staging: { problem: string | null } | null };
  const { libraries } = await askData<{ libraries: Edges<Library> }>(near, query);
  return libraries.edges.find(({ node }) => node.name === 'far')?.node.staging?.problem ?? null;
}

/** Waits until the far site recalls files, and the near site has the id of the stage request. */
const waitForAsked = () =>
  waitFor('the far one to have been asked', async () => {
    const isNamed = await near.site.query('SELECT FROM staging WHERE remote_id IS NOT NULL');
    return isNamed.length > 0 && (await far.site.readKept()).recalls > 0;
  });

/** Expects that the far site keeps none of the files that the near site has on disk. */
async function expectReleased(): Promise<void> {
  await far.site.waitForNothing();
  await waitFor('the near engine to keep nothing', async () => {
    const { recalls, staged } = await near.site.readKept();
    return recalls === 0 && staged === 0;
  });
}

test('files are restored from the far tapes and released there, and those that it does not have fail with its error', async () => {
  const known = filesOf('good');
  const files = ['/there/bad/none', '/there/bad/directory', ...known.map(nearPath)];
  const view = await waitForState(near, await made(near, { quota: 'ann', files }), 'PARTIAL');
  const byPath = new Map(view.files.map(({ path: file, ...requestFile }) => [file, requestFile]));
  const failed = { state: 'FAILED', errorClass: 'PERMANENT' };
  expect(byPath.get('/there/bad/none')).toMatchObject({ ...failed, error: expect.stringMatching(/no such file/) });
  expect(byPath.get('/there/bad/directory')).toMatchObject({
    ...failed,
    error: expect.stringMatching(/is a directory/),
  });
  expect([view.filesTotal, view.filesFailed]).toEqual([5, 2]);
  for (const file of known) await expectRestored(file);
  await expectReleased();
});

test('files without room in the far quota wait with that reason, and are restored once there is room', async () => {
  await far.site.run(['quota', 'set', 'near.example.org', '--size', '300000']);
  const id = await ask('full');
  const tries = await waitFor('each file to have the reason', async () => {
    const found = Object.values(await readTries(near, id));
    return found.every(({ lastErrorClass }) => lastErrorClass === 'SPACE') && found;
  });
  expect(tries).toHaveLength(3);
  for (const { state, attempts, lastError, nextTryAt } of tries) {
    const expected = ['WAITING', 0, expect.stringMatching(/the quota has no room for the file/), expect.any(String)];
    expect([state, attempts, lastError, nextTryAt]).toEqual(expected);
  }
  const query =
    'query ($id: Int!) { request(requestId: $id) { waiting { parts { edges { node { reason explanation fileCount } } } } } }';
  const { request } = await askData<{ request: { waiting: object } }>(near, query, { id });
  // not SPACE, because the near restore disks have room
  const part = {
    reason: 'RETRY',
    explanation: expect.stringMatching(/the quota has no room for the file/),
    fileCount: 3,
  };
  expect(request.waiting).toEqual({ parts: { edges: [{ node: part }] } });
  await far.site.waitForNothing();
  await far.site.run(['quota', 'set', 'near.example.org', '--size', String(QUOTA)]);
  await waitForState(near, id, 'COMPLETED');
  for (const file of filesOf('full')) await expectRestored(file);
  await expectReleased();
});

test('files that are cancelled while the far gateway is down are released there when it is back', async () => {
  await far.stopEngine();
  const id = await ask('late');
  await waitForAsked();
  await far.loseGateway();
  await cancel(near, id);
  await waitFor('the problem to be reported', async () => /cannot be reached/.test((await readProblem()) ?? ''));
  expect((await far.site.readKept()).requestFiles).toBe(1);
  await far.startGateway();
  await far.site.waitForNothing();
  await waitFor('the problem to be over', async () => (await readProblem()) === null);
  await far.startEngine();
});

test('a remote gateway that stops in the middle of a file delays the restore, and fails no file', async () => {
  const lost = far.loseGatewayAfter(2_000_000);
  const id = await ask('broken');
  await lost;
  await waitFor('the problem to be reported', async () => /cannot be reached/.test((await readProblem()) ?? ''));
  expect(await viewRequest(near, id)).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
  await far.startGateway();
  await waitForState(near, id, 'COMPLETED');
  for (const file of filesOf('broken')) await expectRestored(file);
  await expectReleased();
});

test('after a kill of the far engine in the middle of a restore, the next one completes it', async () => {
  const size = 60_000_000;
  await addLong('/arc/long/file', size);
  await addRows([rowOf('/arc/long/file', size)]);
  let id = 0;
  const isRead = async () => (await far.site.query(`SELECT FROM recall WHERE state = 'RUNNING'`)).length === 1;
  await far.whileEngineIsKilled(async () => {
    id = await made(near, { quota: 'ann', files: ['/there/long/file'] });
    await waitFor('it to be read there', isRead);
  });
  // the kill interrupted the recall
  expect(await far.site.query(`SELECT FROM recall WHERE state = 'RUNNING'`)).toHaveLength(1);
  expect(await viewRequest(near, id)).toMatchObject({ filesOnDisk: 0, filesFailed: 0 });
  await far.startEngine();
  await waitForState(near, id, 'COMPLETED');
  const restored = readFileSync(path.join(near.site.restoreDir, '/there/long/file'));
  expect(restored.equals(Buffer.alloc(size))).toBe(true);
  await expectReleased();
});

test('doctor finds nothing at either site', async () => {
  for (const site of [far.site, near.site]) expect(await site.run(['doctor'])).toMatch(/: no findings\n$/);
});

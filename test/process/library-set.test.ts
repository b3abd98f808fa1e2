/** Libraries that are changed in the middle of their work. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readRestored } from '../support/engine-watch.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { startS3Server } from '../support/s3-server.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const home = makeTempDir('library-set');
const env: Record<string, string> = {};

beforeAll(async () => {
  app = await startApp({ backend: createMemoryBackend(), engine: { idleMs: 200, env } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo', drives: 2, depthFiles: 2 });
});
afterEach(() => {
  system.onRead = async (_path, bytes) => bytes;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
  rmSync(home, { recursive: true, force: true });
});

const SET = `mutation ($input: SetLibraryInput!) { result: setLibrary(input: $input) {
  __typename ... on Library { name kind settings drives depthFiles depthBytes } ... on Failure { message }
} }`;

async function set(input: { name: string } & Record<string, unknown>): Promise<object> {
  const { settings, ...rest } = input;
  const given = { ...rest, ...(settings !== undefined && { settings: JSON.stringify(settings) }) };
  return (await askData<{ result: object }>(app, SET, { input: given })).result;
}

const add = async (input: object) =>
  await askData(app, 'mutation ($input: AddLibraryInput!) { addLibrary(input: $input) { __typename } }', { input });

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

async function drivesOf(library: string): Promise<{ name: string; isClaimed: boolean }[]> {
  type Drives = { drives: Edges<{ name: string; isClaimed: boolean }> };
  const { drives } = await askData<Drives>(app, '{ drives { edges { node { name isClaimed } } } }');
  return drives.edges.map(({ node }) => node).filter(({ name }) => name.startsWith(`${library}-`));
}

const untilDrives = (library: string, names: string[]) =>
  waitFor(`the drives of ${library} to be ${names}`, async () => {
    const drives = await drivesOf(library);
    return drives.map(({ name }) => name).join() === names.join() && drives.every(({ isClaimed }) => isClaimed);
  });

test('a library is read where it is set to be, by drives as many as it is set to have', async () => {
  const folder = path.join(home, 'new/E1');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, '00000001'), 'of the east');
  await add({ name: 'east', kind: 'directory', settings: JSON.stringify({ folder: path.join(home, 'old') }) });
  const row = { path: '/east/1', volume: 'E1', library: 'east', size: 11n, checksum: checksumOf('of the east') };
  await addFiles(app.ctx, [row]);
  const id = await ask('/east/');
  await waitFor('it to be looked for in vain', async () => {
    const { rows } = await app.ctx.db.pool.query(`SELECT FROM recall WHERE error IS NOT NULL`);
    return rows.length > 0;
  });
  expect(await set({ name: 'east', settings: { folder: path.join(home, 'new') }, drives: 3 })).toEqual({
    ...{ __typename: 'Library', name: 'east', kind: 'directory', drives: 3, depthFiles: null, depthBytes: null },
    settings: JSON.stringify({ folder: path.join(home, 'new') }),
  });
  await untilDrives('east', ['east-1', 'east-2', 'east-3']);
  await waitForState(app, id, 'COMPLETED');
  expect(String(readRestored(app, '/east/1'))).toBe('of the east');
  await set({ name: 'east', drives: 1 });
  await untilDrives('east', ['east-1']);
});

test('nothing else changes than what is given, and nothing where something is refused', async () => {
  await add({ name: 'plain', kind: 'directory', settings: '{"folder":"/tapes"}', drives: 4 });
  const as = { __typename: 'Library', name: 'plain', kind: 'directory', depthFiles: null, depthBytes: null };
  expect(await set({ name: 'plain' })).toEqual({ ...as, settings: '{"folder":"/tapes"}', drives: 4 });
  expect(await set({ name: 'plain', kind: 'directory', drives: null })).toMatchObject({ drives: 4 });
  expect(await set({ name: 'plain', kind: 'ltfs', drives: 5 })).toEqual({
    __typename: 'InvalidInput',
    message: expect.stringMatching(
      /^kind must stay "directory", not become "ltfs": what is on its volumes could not be /,
    ),
  });
  expect(await set({ name: 'plain', depthFiles: 5, drives: 5 })).toMatchObject({
    message: expect.stringMatching(/^depthFiles is of libraries that stage files, /),
  });
  expect(await set({ name: 'plain', settings: { folder: '' }, drives: 5 })).toMatchObject({
    message: expect.stringMatching(/^settings\.folder must be given/),
  });
  expect(await set({ name: 'directory', drives: 5 })).toMatchObject({
    message: 'name must not be "directory": it is the first library, of which TAPE_BACKEND and DRIVES tell what it is',
  });
  expect(await set({ name: 'plain' })).toMatchObject({ drives: 4, settings: '{"folder":"/tapes"}' });
});

test('a deeper library is asked for more at once', async () => {
  const files = Array.from({ length: 5 }, (_, n) => ({ path: `/deep/${n}` }));
  await addRemote(app.ctx, system, { library: 'silo', files });
  const id = await ask('/deep/');
  await waitFor('two to be asked for', async () => Object.keys(await readStates(app.ctx)).length === 2);
  expect(await set({ name: 'silo', depthFiles: 5 })).toMatchObject({ depthFiles: 5 });
  const areAsked = (states: string[]) => states.length === 5 && states.every((state) => state === 'ASKED');
  await waitFor('all to be asked for', async () => areAsked(Object.values(await readStates(app.ctx))));
  system.arrive(files.map((file) => file.path));
  await waitForState(app, id, 'COMPLETED');
});

test('a file that is read while its library is set is read to its end, once', async () => {
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/held/1' }, { path: '/held/2' }] });
  const [begun, gate] = [createGate(), createGate()];
  system.onStaged = (paths) => system.arrive(paths);
  system.onRead = async (_path, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  system.log.length = 0;
  const id = await ask('/held/1');
  await begun.opened;
  await set({ name: 'silo', drives: 3, settings: { waitMinutes: 5 } });
  // one of them by those that read it as it was, the others by those that came after
  await untilDrives('silo', ['silo-1', 'silo-2', 'silo-3']);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesOnDisk: 0 });
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  expect(system.log.filter(({ what }) => what === 'read').length).toBe(1);
  await waitForState(app, await ask('/held/2'), 'COMPLETED');
});

test('what a library was sent is counted, also by those that it had before it was set', async () => {
  const server = await startS3Server();
  const { accessKeyId, secretAccessKey, region } = server.account;
  Object.assign(env, { S3_KEY: accessKeyId, S3_SECRET: secretAccessKey });
  const settings = {
    ...{ bucket: server.bucket, region, endpoint: server.url, forcePathStyle: true },
    ...{ accessKeyIdEnv: 'S3_KEY', secretAccessKeyEnv: 'S3_SECRET', pollSeconds: 1, pollSecondsMost: 1 },
  };
  await add({ name: 'glacier', kind: 's3', settings: JSON.stringify(settings) });
  const restore = async (name: string) => {
    server.store.put(name, Buffer.from('of the ice'));
    const row = { path: `/${name}`, size: 10n, volume: 'G1', library: 'glacier', checksum: checksumOf('of the ice') };
    await addFiles(app.ctx, [row]);
    const id = await ask(`/${name}`);
    await waitFor('it to be asked for', async () => (await readStates(app.ctx))[`/${name}`] === 'ASKED');
    server.store.arrive([name]);
    await waitForState(app, id, 'COMPLETED');
  };
  type Usage = { request: string; sent: string; bytes: string }[];
  const readUsage = async () => {
    type Libraries = { libraries: Edges<{ name: string; usage: Usage }> };
    const query = '{ libraries { edges { node { name usage { request sent bytes } } } } }';
    const { libraries } = await askData<Libraries>(app, query);
    return libraries.edges.find(({ node }) => node.name === 'glacier')?.node.usage ?? [];
  };
  const untilCounted = () =>
    waitFor('all requests to be counted', async () => {
      const counted = (await readUsage()).map(({ request, sent }) => [request, Number(sent)]);
      const asked = [...new Set(server.asked.map(({ operation }) => operation))].sort();
      return JSON.stringify(counted) === JSON.stringify(asked.map((name) => [name, server.count(name)]));
    });
  await restore('ice-1');
  expect(await set({ name: 'glacier', settings: { days: 9 } })).toMatchObject({ __typename: 'Library' });
  await restore('ice-2');
  await set({ name: 'glacier', settings: { days: null } });
  await untilCounted();
  const bytes = (await readUsage()).find(({ request }) => request === 'GetObject')?.bytes;
  expect(bytes).toBe('20');
  expect(server.asked.filter(({ operation }) => operation === 'RestoreObject').length).toBe(2);
  await server.close();
});

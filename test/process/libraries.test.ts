/** Several tape systems at once: each with its volumes and drives, and none in the way of another. */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { hashTree } from '../support/server.js';
import { readSuspensions, resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let serial = 0;
/** Of the first library. */
const backend = createMemoryBackend();
const { onRead } = backend;
const home = makeTempDir('libraries');
const folderOf = (library: string) => path.join(home, library);

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  for (const name of ['east', 'west']) await add(name);
});
beforeEach(() => {
  serial++;
});
afterEach(() => {
  backend.onRead = onRead;
});
afterAll(async () => {
  await app.close();
  rmSync(home, { recursive: true, force: true });
});

const ADD = `mutation ($input: AddLibraryInput!) { result: addLibrary(input: $input) {
  __typename ... on Library { name kind contract settings drives depthFiles depthBytes volumes suspension { mode } } ... on Failure { message }
} }`;

async function add(name: string, drives?: number): Promise<object> {
  mkdirSync(folderOf(name));
  const settings = JSON.stringify({ folder: folderOf(name) });
  const input = { name, kind: 'directory', settings, drives };
  return (await askData<{ result: object }>(app, ADD, { input })).result;
}

/** Files with real bytes on a new volume of a directory library. @returns what their paths begin with */
async function fill(library: string, count = 1): Promise<string> {
  const volume = `${library.toUpperCase()}${serial}`;
  const files = Array.from({ length: count }, (_, n) => ({
    path: `/${library}/${serial}/${n}`,
    text: `${volume} ${n}`,
  }));
  mkdirSync(path.join(folderOf(library), volume));
  for (const [n, { text }] of files.entries()) {
    writeFileSync(path.join(folderOf(library), volume, String(n + 1).padStart(8, '0')), text);
  }
  await addFiles(
    app.ctx,
    files.map(({ path, text }) => ({
      ...{ path, volume, library },
      size: BigInt(text.length),
      checksum: checksumOf(text),
    })),
  );
  return `/${library}/${serial}/`;
}

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

interface Part {
  reason: string;
  explanation: string;
}

async function readParts(id: number): Promise<Part[]> {
  const query = `{ request(id: ${id}) { waiting { parts { edges { node { reason explanation } } } } } }`;
  const { request } = await askData<{ request: { waiting: { parts: Edges<Part> } | null } }>(app, query);
  return request.waiting?.parts.edges.map(({ node }) => node) ?? [];
}

test('files of several libraries are restored by one engine, none of which waits for another', async () => {
  const reads = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/first/held', volume: 'FIRST' }]);
  const held = await ask('/first/held');
  await reads.begun();
  const [east, west] = [await fill('east', 3), await fill('west', 3)];
  const ids = [await ask(east), await ask(west)];
  for (const id of ids) await waitForState(app, id, 'COMPLETED');
  expect(await viewRequest(app, held)).toMatchObject({ state: 'RESTORING', filesOnDisk: 0 });
  expect(hashTree(app.restoreDir)).toMatchObject({
    [`${east}2`]: checksumOf(`EAST${serial} 2`).slice('sha256:'.length),
    [`${west}0`]: checksumOf(`WEST${serial} 0`).slice('sha256:'.length),
  });
  reads.open();
  await waitForState(app, held, 'COMPLETED');
});

test('one that is away holds up no other and no volume, and is read when it is there again', async () => {
  const [east, west] = [await fill('east'), await fill('west')];
  const away = `${folderOf('west')}-away`;
  renameSync(folderOf('west'), away);
  const waiting = await ask(west);
  const [part] = await waitFor('the library to be looked for', async () => {
    const parts = await readParts(waiting);
    return parts[0]?.reason === 'RETRY' ? parts : undefined;
  });
  expect(part?.explanation).toContain(
    `the library ${folderOf('west')}, which should have the volume WEST${serial}, is not there`,
  );
  await waitForState(app, await ask(east), 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
  renameSync(away, folderOf('west'));
  await waitForState(app, waiting, 'COMPLETED');
});

test('one that is held waits and says so, the plan has no drive for it, and others go on', async () => {
  const [east, west] = [await fill('east'), await fill('west')];
  expect(await suspend(app, { kind: 'BACKEND', name: 'west', mode: 'HELD', reason: 'a new robot' })).toMatchObject({
    __typename: 'Suspension',
  });
  const waiting = await ask(west);
  await waitForState(app, await ask(east), 'COMPLETED');
  expect(await readParts(waiting)).toMatchObject([{ reason: 'NO_DRIVE' }]);
  type PlanView = {
    drives: { name: string; library: string; isOpen: boolean }[];
    queue: Edges<{ volume: string; library: string; drive: string | null }>;
  };
  const fields = 'drives { name library isOpen } queue { edges { node { volume library drive } } }';
  const { plan } = await askData<{ plan: PlanView }>(app, `{ plan { ${fields} } }`);
  expect(plan.drives.filter(({ isOpen }) => !isOpen).map(({ name }) => name)).toEqual(['west-1', 'west-2']);
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([{ volume: `WEST${serial}`, library: 'west', drive: null }]);
  const shown = await askData(app, '{ libraries { edges { node { name suspension { mode reason } } } } }');
  expect(shown).toMatchObject({
    libraries: {
      edges: [
        { node: { name: 'directory', suspension: null } },
        { node: { name: 'east', suspension: null } },
        { node: { name: 'west', suspension: { mode: 'HELD', reason: 'a new robot' } } },
      ],
    },
  });
  await resume(app, 'BACKEND', 'west');
  await waitForState(app, waiting, 'COMPLETED');
});

test('while the first one is held, the others go on', async () => {
  await suspend(app, { kind: 'BACKEND', name: 'directory', mode: 'HELD' });
  await addTaped(app.ctx, backend, [{ path: '/first/suspended', volume: 'FIRST', position: 7n }]);
  const waiting = await ask('/first/suspended');
  await waitForState(app, await ask(await fill('east')), 'COMPLETED');
  expect(await readParts(waiting)).toMatchObject([{ reason: 'NO_DRIVE' }]);
  await resume(app, 'BACKEND', 'directory');
  await waitForState(app, waiting, 'COMPLETED');
});

test('no drive takes a volume of another library, whoever says so', async () => {
  await fill('east');
  const mount = `UPDATE drive SET volume_id = (SELECT id FROM volume WHERE name = 'EAST${serial}') WHERE name = 'drive-1'`;
  // what programs know that have one library only: another drive has the volume
  await expect(app.ctx.db.pool.query(mount)).rejects.toMatchObject({ code: '23505' });
});

test('a volume shows its library, and an import that says another one is refused', async () => {
  await fill('east');
  const row = { path: `/moved/${serial}`, volume: `EAST${serial}` };
  await expect(addFiles(app.ctx, [{ ...row, library: 'west' }])).rejects.toThrow(
    `line 1: volume "EAST${serial}" is in library "east", not in "west"`,
  );
  await expect(addFiles(app.ctx, [{ ...row, volume: 'NEW1', library: 'nowhere' }])).rejects.toThrow(
    'line 1: there is no library "nowhere"; there are directory, east, west',
  );
  const mixed = [
    { path: '/mixed/1', volume: 'NEW2', library: 'east' },
    { path: '/mixed/2', volume: 'NEW2', library: 'directory' },
  ];
  await expect(addFiles(app.ctx, mixed)).rejects.toThrow(
    'line 2: volume "NEW2" is in library "east", not in "directory"',
  );
  await addFiles(app.ctx, [row, { path: '/first/new', volume: 'NEW3' }]);
  const query = '{ volumes(first: 1000) { edges { node { name library { name volumes } } } } }';
  const { volumes } = await askData<{ volumes: Edges<{ name: string; library: { name: string } }> }>(app, query);
  const libraries = new Map(volumes.edges.map(({ node }) => [node.name, node.library.name]));
  expect([libraries.get(`EAST${serial}`), libraries.get('NEW3'), libraries.get('NEW2')]).toEqual([
    'east',
    'directory',
    undefined,
  ]);
});

const REMOVE = `mutation ($name: String!) { result: removeLibrary(name: $name) {
  __typename ... on RemovedLibrary { name drives volumes } ... on Failure { message }
} }`;

test('one that has files is not removed, and one without is, with its drives and empty volumes', async () => {
  const refused = await askData(app, REMOVE, { name: 'east' });
  expect(refused).toMatchObject({
    result: {
      __typename: 'InUse',
      message: expect.stringMatching(
        /^the library "east" has \d+ files of \d+ bytes on \d+ volumes, and 0 recalls from it: /,
      ),
    },
  });
  expect(await add('spare', 3)).toMatchObject({ __typename: 'Library', name: 'spare', drives: 3, volumes: 0 });
  const drivesOf = async () =>
    (
      await askData<{ drives: Edges<{ name: string; isClaimed: boolean }> }>(
        app,
        '{ drives { edges { node { name isClaimed } } } }',
      )
    ).drives.edges
      .map(({ node }) => node)
      .filter(({ name }) => name.startsWith('spare-'));
  await waitFor('the engine to take its drives', async () => (await drivesOf()).every(({ isClaimed }) => isClaimed));
  await app.ctx.db.pool.query(
    `INSERT INTO volume (name, library_id) SELECT 'EMPTY', id FROM library WHERE name = 'spare'`,
  );
  await suspend(app, { kind: 'BACKEND', name: 'spare', mode: 'DRAINING' });
  expect(await askData(app, REMOVE, { name: 'spare' })).toEqual({
    result: { __typename: 'RemovedLibrary', name: 'spare', drives: 3, volumes: 1 },
  });
  expect([await drivesOf(), await readSuspensions(app)]).toEqual([[], []]);
  await waitForState(app, await ask(await fill('east')), 'COMPLETED');
});

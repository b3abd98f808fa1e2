/**
 * Several libraries with their own volumes and drives do not delay one another. Settings of a library can change while
 * it is in use.
 */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { readSiteFigures } from '../../src/domain/site/figures.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readRestored } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { addSecret, LIBRARY_ENV } from '../support/library-dir.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { mutate } from '../support/payloads.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { type S3Operation, startS3Server } from '../support/s3-server.js';
import { hashTree } from '../support/server.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { readSuspensions, resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let serial = 0;
/** The tape system of the first library. */
const library = createMemoryLibrary();
const { onRead } = library;
const home = makeTempDir('libraries');
/** Environment variables to which settings of libraries refer. */
const env: Record<string, string> = { ...LIBRARY_ENV };
const directoryOf = (library: string) => path.join(home, library);

beforeAll(async () => {
  app = await startApp({ library, config: { drives: 1 }, engine: { idleMs: 200, env } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  for (const name of ['east', 'west']) await add(name);
});
beforeEach(() => {
  serial++;
});
afterEach(() => {
  library.onRead = onRead;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
  rmSync(home, { recursive: true, force: true });
});

const FIELDS = '__typename name type settings { name value } driveCount depthFiles depthBytes';

const listSettings = (settings: object) => Object.entries(settings).map(([name, value]) => ({ name, value }));

/** Adds or changes a library. @returns the library, or the error */
function change(field: 'addLibrary' | 'updateLibrary', input: { settings?: object }, fields = FIELDS): Promise<object> {
  const { settings, ...rest } = input;
  const given = { ...rest, ...(settings !== undefined && { settings: listSettings(settings) }) };
  return mutate(app, field, given, `library { ${fields} }`);
}

const addLibrary = (input: { name: string; type: string; settings: object; driveCount?: number }) =>
  change('addLibrary', input, `${FIELDS} contract volumeCount suspension { mode }`);

async function add(name: string, driveCount?: number): Promise<object> {
  mkdirSync(directoryOf(name));
  const settings = { directory: directoryOf(name) };
  return await addLibrary({ name, type: 'DIRECTORY', settings, ...(driveCount !== undefined && { driveCount }) });
}

/**
 * Adds files with real bytes on a new volume of a directory library. @returns the directory of the volume
 * @param directory current directory of the library, if the library is away
 */
async function fill(library: string, count = 1, directory = directoryOf(library)): Promise<string> {
  const volume = `${library.toUpperCase()}${serial}`;
  const files = Array.from({ length: count }, (_, n) => ({
    path: `/${library}/${serial}/${n}`,
    text: `${volume} ${n}`,
  }));
  mkdirSync(path.join(directory, volume));
  for (const [n, { text }] of files.entries()) {
    writeFileSync(path.join(directory, volume, String(n + 1).padStart(8, '0')), text);
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
  const query = `{ request(requestId: ${id}) { waiting { parts { edges { node { reason explanation } } } } } }`;
  const { request } = await askData<{ request: { waiting: { parts: Edges<Part> } | null } }>(app, query);
  return request.waiting?.parts.edges.map(({ node }) => node) ?? [];
}

async function readProblem(name: string): Promise<string | null | undefined> {
  type View = { libraries: Edges<{ name: string; problem: string | null }> };
  const { libraries } = await askData<View>(app, '{ libraries { edges { node { name problem } } } }');
  return libraries.edges.find(({ node }) => node.name === name)?.node.problem;
}

const readHasProblem = async (name: string) =>
  (await readSiteFigures(app.ctx)).libraries.find(({ library }) => library === name)?.hasProblem;

const run = async (...args: string[]) =>
  (await runCli(args, { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } })).stdout;

async function readDrives(library: string): Promise<{ name: string; isClaimed: boolean }[]> {
  type Drives = { drives: Edges<{ name: string; isClaimed: boolean }> };
  const { drives } = await askData<Drives>(app, '{ drives { edges { node { name isClaimed } } } }');
  return drives.edges.map(({ node }) => node).filter(({ name }) => name.startsWith(`${library}-`));
}

/** Waits until the engine uses this many drives of a library. */
const waitForDrives = (library: string, count: number) =>
  waitFor(`${count} drives of ${library}`, async () => {
    const drives = await readDrives(library);
    const names = Array.from({ length: count }, (_, n) => `${library}-${n + 1}`);
    return drives.map(({ name }) => name).join() === names.join() && drives.every(({ isClaimed }) => isClaimed);
  });

test('one engine restores files of several libraries, and no library waits for another', async () => {
  const reads = holdReads(library);
  await addTaped(app.ctx, library, [{ path: '/first/held', volume: 'FIRST' }]);
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

test('a library that is away delays no other, suspends no volume, and is read when it is back', async () => {
  const [east, west] = [await fill('east'), await fill('west')];
  const away = `${directoryOf('west')}-away`;
  renameSync(directoryOf('west'), away);
  const waiting = await ask(west);
  const [part] = await waitFor('the library to be looked for', async () => {
    const parts = await readParts(waiting);
    return parts[0]?.reason === 'RETRY' ? parts : undefined;
  });
  expect(part?.explanation).toContain(
    `the library ${directoryOf('west')}, which should contain the volume WEST${serial}, does not exist`,
  );
  await waitForState(app, await ask(east), 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);

  const problem = expect.stringContaining(`the library ${directoryOf('west')}, which should contain the volume`);
  await waitFor('the failure', async () => (await readProblem('west')) !== null);
  expect(await readProblem('west')).toEqual(problem);
  expect(await readHasProblem('west')).toBe(true);
  const listed = await run('library', 'list');
  expect(listed).toMatch(/^west +directory .* failed: the library .* does not exist: ENOENT/m);
  expect(listed).toMatch(/^east .* in service$/m);
  // the engine releases the drives during the pause
  const row = new RegExp(`^- +WEST${serial} .* alice +- +- +- +library west has failed: the library `, 'm');
  const plan = await waitFor('the volume between two attempts', async () => {
    const shown = await run('plan');
    return row.test(shown) ? shown : undefined;
  });
  expect(plan).toMatch(/^west-1 .* the library has failed\nwest-2 .* the library has failed$/m);
  serial++;
  const other = await ask(await fill('west', 1, away));
  const failed = await waitFor('the reason', async () => {
    const [part] = await readParts(other);
    return part?.reason === 'LIBRARY_FAILED' ? part : undefined;
  });
  expect(failed.explanation).toContain(`library west has failed: the library ${directoryOf('west')}`);
  expect(await run('plan', String(other))).toContain('; end unknown: library west has failed: the library ');

  renameSync(away, directoryOf('west'));
  for (const id of [waiting, other]) await waitForState(app, id, 'COMPLETED');
  await waitFor('the failure to be cleared', async () => (await readProblem('west')) === null);
  expect(await readHasProblem('west')).toBe(false);
});

test('a suspended library has no drive in the plan, its requests say so, and other libraries work', async () => {
  const [east, west] = [await fill('east'), await fill('west')];
  expect(await suspend(app, { kind: 'LIBRARY', name: 'west', mode: 'IMMEDIATE', reason: 'a new robot' })).toMatchObject(
    {
      __typename: 'Suspension',
    },
  );
  const waiting = await ask(west);
  await waitForState(app, await ask(east), 'COMPLETED');
  expect(await readParts(waiting)).toMatchObject([{ reason: 'NO_DRIVE' }]);
  type PlanView = {
    drives: { name: string; libraryName: string; isOpen: boolean }[];
    queue: Edges<{ volumeName: string; libraryName: string; driveName: string | null }>;
  };
  const fields = 'drives { name libraryName isOpen } queue { edges { node { volumeName libraryName driveName } } }';
  const { plan } = await askData<{ plan: PlanView }>(app, `{ plan { ${fields} } }`);
  expect(plan.drives.filter(({ isOpen }) => !isOpen).map(({ name }) => name)).toEqual(['west-1', 'west-2']);
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([
    { volumeName: `WEST${serial}`, libraryName: 'west', driveName: null },
  ]);
  const shown = await askData(app, '{ libraries { edges { node { name suspension { mode reason } } } } }');
  expect(shown).toMatchObject({
    libraries: {
      edges: [
        { node: { name: 'directory', suspension: null } },
        { node: { name: 'east', suspension: null } },
        { node: { name: 'west', suspension: { mode: 'IMMEDIATE', reason: 'a new robot' } } },
      ],
    },
  });
  await resume(app, 'LIBRARY', 'west');
  await waitForState(app, waiting, 'COMPLETED');
});

test('other libraries work while the first one is suspended', async () => {
  await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'IMMEDIATE' });
  await addTaped(app.ctx, library, [{ path: '/first/suspended', volume: 'FIRST', position: 7n }]);
  const waiting = await ask('/first/suspended');
  await waitForState(app, await ask(await fill('east')), 'COMPLETED');
  expect(await readParts(waiting)).toMatchObject([{ reason: 'NO_DRIVE' }]);
  await resume(app, 'LIBRARY', 'directory');
  await waitForState(app, waiting, 'COMPLETED');
});

test('the database refuses a volume of another library in a drive', async () => {
  await fill('east');
  const mount = `UPDATE drive SET volume_id = (SELECT id FROM volume WHERE name = 'EAST${serial}') WHERE name = 'drive-1'`;
  await expect(app.ctx.db.pool.query(mount)).rejects.toMatchObject({ code: '23505' });
});

test('a volume shows its library, and an import that names another library is refused', async () => {
  await fill('east');
  const row = { path: `/moved/${serial}`, volume: `EAST${serial}` };
  await expect(addFiles(app.ctx, [{ ...row, library: 'west' }])).rejects.toThrow(
    `line 1: volume "EAST${serial}" is in library "east", not in "west"`,
  );
  await expect(addFiles(app.ctx, [{ ...row, volume: 'NEW1', library: 'nowhere' }])).rejects.toThrow(
    'line 1: there is no library "nowhere"; the libraries are directory, east, west',
  );
  const mixed = [
    { path: '/mixed/1', volume: 'NEW2', library: 'east' },
    { path: '/mixed/2', volume: 'NEW2', library: 'directory' },
  ];
  await expect(addFiles(app.ctx, mixed)).rejects.toThrow(
    'line 2: volume "NEW2" is in library "east", not in "directory"',
  );
  await addFiles(app.ctx, [row, { path: '/first/new', volume: 'NEW3' }]);
  const query = '{ volumes(first: 1000) { edges { node { name library { name volumeCount } } } } }';
  const { volumes } = await askData<{ volumes: Edges<{ name: string; library: { name: string } }> }>(app, query);
  const libraries = new Map(volumes.edges.map(({ node }) => [node.name, node.library.name]));
  expect([libraries.get(`EAST${serial}`), libraries.get('NEW3'), libraries.get('NEW2')]).toEqual([
    'east',
    'directory',
    undefined,
  ]);
});

const remove = (name: string) =>
  mutate(app, 'removeLibrary', { name }, 'removed { __typename name driveCount volumeCount }');

test('a library with files is not removed, and one without is removed with its drives and empty volumes', async () => {
  expect(await remove('east')).toMatchObject({
    __typename: 'InUse',
    message: expect.stringMatching(
      /^library "east" contains \d+ files \(\d+ bytes in total\) on \d+ volumes, and has 0 recalls: /,
    ),
  });
  expect(await add('spare', 3)).toMatchObject({ __typename: 'Library', name: 'spare', driveCount: 3, volumeCount: 0 });
  await waitForDrives('spare', 3);
  await app.ctx.db.pool.query(
    `INSERT INTO volume (name, library_id) SELECT 'EMPTY', id FROM library WHERE name = 'spare'`,
  );
  await suspend(app, { kind: 'LIBRARY', name: 'spare', mode: 'DRAINING' });
  expect(await remove('spare')).toEqual({ __typename: 'RemovedLibrary', name: 'spare', driveCount: 3, volumeCount: 1 });
  expect([await readDrives('spare'), await readSuspensions(app)]).toEqual([[], []]);
  await waitForState(app, await ask(await fill('east')), 'COMPLETED');
});

const set = (input: { name: string; settings?: object } & Record<string, unknown>) => change('updateLibrary', input);

test('a library is read at the place, and by as many drives, as its changed settings say', async () => {
  const directory = path.join(home, 'new');
  mkdirSync(path.join(directory, 'M1'), { recursive: true });
  writeFileSync(path.join(directory, 'M1/00000001'), 'of the east');
  await addLibrary({ name: 'moved', type: 'DIRECTORY', settings: { directory: path.join(home, 'old') } });
  const row = { path: '/moved-to/1', volume: 'M1', library: 'moved', size: 11n, checksum: checksumOf('of the east') };
  await addFiles(app.ctx, [row]);
  const id = await ask('/moved-to/');
  await waitFor('a failure', async () => {
    const { rowCount } = await app.ctx.db.pool.query('SELECT FROM recall WHERE error IS NOT NULL');
    return rowCount === 1;
  });
  expect(await set({ name: 'moved', settings: { directory }, driveCount: 3 })).toEqual({
    ...{ __typename: 'Library', name: 'moved', type: 'DIRECTORY', driveCount: 3, depthFiles: null, depthBytes: null },
    settings: [{ name: 'directory', value: directory }],
  });
  await waitForDrives('moved', 3);
  await waitForState(app, id, 'COMPLETED');
  expect(String(readRestored(app, '/moved-to/1'))).toBe('of the east');
  await set({ name: 'moved', driveCount: 1 });
  await waitForDrives('moved', 1);
});

test('a change of a library changes only the given settings, and none if one is refused', async () => {
  await addLibrary({ name: 'plain', type: 'DIRECTORY', settings: { directory: '/tapes' }, driveCount: 4 });
  const settings = [{ name: 'directory', value: '/tapes' }];
  const as = { __typename: 'Library', name: 'plain', type: 'DIRECTORY', depthFiles: null, depthBytes: null };
  expect(await set({ name: 'plain' })).toEqual({ ...as, settings, driveCount: 4 });
  expect(await set({ name: 'plain', expectedType: 'DIRECTORY', driveCount: null })).toMatchObject({ driveCount: 4 });
  expect(await set({ name: 'plain', expectedType: 'LTFS', driveCount: 5 })).toEqual({
    __typename: 'InvalidInput',
    message: expect.stringMatching(
      /^expectedType must remain "directory", not "ltfs": the volumes of the library would become unreadable/,
    ),
  });
  expect(await set({ name: 'plain', depthFiles: 5, driveCount: 5 })).toMatchObject({
    message: expect.stringMatching(
      /^depthFiles must not be set to \d+: the setting applies only to staging libraries, /,
    ),
  });
  expect(await set({ name: 'plain', settings: { directory: '' }, driveCount: 5 })).toMatchObject({
    message: expect.stringMatching(/^settings\.directory must be given/),
  });
  expect(await set({ name: 'directory', driveCount: 5 })).toMatchObject({
    message: 'name must not be "directory": the setting DRIVES configures the first library',
  });
  expect(await set({ name: 'plain' })).toMatchObject({ driveCount: 4, settings });
});

test('a library with a greater depth is asked for more files', async () => {
  const system = await addMemoryLibrary(app.ctx, { name: 'deep', depthFiles: 2 });
  const files = Array.from({ length: 5 }, (_, n) => ({ path: `/deep/${n}` }));
  await addRemote(app.ctx, system, { library: 'deep', files });
  const id = await ask('/deep/');
  await waitFor('two to be asked for', async () => Object.keys(await readStates(app.ctx)).length === 2);
  expect(await set({ name: 'deep', depthFiles: 5 })).toMatchObject({ depthFiles: 5 });
  const areAsked = (states: string[]) => states.length === 5 && states.every((state) => state === 'ASKED');
  await waitFor('all to be asked for', async () => areAsked(Object.values(await readStates(app.ctx))));
  system.arrive(files.map((file) => file.path));
  await waitForState(app, id, 'COMPLETED');
});

test('a read continues while its library changes, and is not repeated', async () => {
  const system = await addMemoryLibrary(app.ctx, { name: 'silo', drives: 2 });
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/held/1' }, { path: '/held/2' }] });
  const [begun, gate] = [createGate(), createGate()];
  system.onStaged = (paths) => system.arrive(paths);
  system.onRead = async () => {
    begun.open();
    await gate.opened;
  };
  const id = await ask('/held/1');
  await begun.opened;
  await set({ name: 'silo', driveCount: 3, settings: { waitMinutes: '5' } });
  await waitForDrives('silo', 3);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesOnDisk: 0 });
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  expect(system.log.filter(({ what }) => what === 'read').length).toBe(1);
  await waitForState(app, await ask('/held/2'), 'COMPLETED');
});

test('requests to a library are counted, also those before its settings changed', async () => {
  const server = await startS3Server();
  const { accessKeyId, secretAccessKey, region } = server.account;
  const keys = `[default]\naws_access_key_id=${accessKeyId}\naws_secret_access_key=${secretAccessKey}\n`;
  const settings = {
    ...{ bucket: server.bucket, region, endpoint: server.url, forcePathStyle: 'true' },
    ...{ credentialsFile: addSecret(keys), pollSeconds: '1', pollSecondsMost: '1' },
  };
  await addLibrary({ name: 'glacier', type: 'S3', settings });
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
  /** Returns, for each operation, the counted requests minus the requests that the server received. */
  const readSurplus = async () => {
    const counted = new Map((await readUsage()).map(({ request, sent }) => [request as S3Operation, Number(sent)]));
    const asked = new Set([...counted.keys(), ...server.asked.map(({ operation }) => operation)]);
    return [...asked].map((name) => [name, (counted.get(name) ?? 0) - server.count(name)] as const);
  };
  // a request that a change of settings aborts is counted, but may not reach the server
  const isComplete = (more: number) => more >= 0 && more <= 2;
  const untilCounted = async () => {
    let surplus: Awaited<ReturnType<typeof readSurplus>> = [];
    const isCounted = async () => {
      surplus = await readSurplus();
      return surplus.every(([, more]) => isComplete(more));
    };
    await waitFor('all requests to be counted', isCounted).catch(() => {}); // the next line shows the missing requests
    expect(surplus.filter(([, more]) => !isComplete(more))).toEqual([]);
  };
  await restore('ice-1');
  expect(await set({ name: 'glacier', settings: { days: '9' } })).toMatchObject({ __typename: 'Library' });
  await restore('ice-2');
  await set({ name: 'glacier', settings: { days: null } });
  await untilCounted();
  const bytes = (await readUsage()).find(({ request }) => request === 'GetObject')?.bytes;
  expect(bytes).toBe('20');
  expect(server.asked.filter(({ operation }) => operation === 'RestoreObject').length).toBe(2);
  await server.close();
});

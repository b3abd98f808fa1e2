/** Files that are renamed while they are restored and on disk: where their copies are, and what becomes of the paths that they had. */
import { existsSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { forgetFiles } from '../../src/operations/catalogue/forgetting.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { dieAfterPlacing, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, listTree, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { send } from '../support/http.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote } from '../support/staging.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const { onRead } = backend;
const linkRoot = makeTempDir();
/** Folders of links stay, and one is where a link is to be. */
const isFolderOfLinks = /^link-stuck: .*\/nest2\/x$/;

beforeAll(async () => {
  app = await startApp({ backend, config: { linkRoot } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  backend.onRead = onRead;
  expect((await findFaults(app)).filter((fault) => !isFolderOfLinks.test(fault))).toEqual([]);
});
afterAll(async () => {
  await cleanUp();
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
  rmSync(linkRoot, { recursive: true, force: true });
});

async function findFaults({ ctx }: TestApp): Promise<string[]> {
  const faults: string[] = [];
  await examine(ctx, { repair: false, checksums: true, adopt: false }, ({ kind, thing }) =>
    faults.push(`${kind}: ${thing}`),
  );
  return faults;
}

const ask = (files: string[], of = app) => makeRequest(of, { quota: 'alice', files, retention: '2099-01-01' });
const rename = (from: string, to: string) => renameFiles(app.ctx, { from, to });
const below = (folder: string) => listTree(app.restoreDir).filter((name) => name.startsWith(folder));

/** Where it can be read, as clients are told. */
async function placeOf(file: string, of = app): Promise<string | null> {
  const query = 'query ($path: String!) { tapeFile(path: $path) { restoredPath } }';
  const { tapeFile } = await askData<{ tapeFile: { restoredPath: string | null } }>(of, query, { path: file });
  return tapeFile.restoredPath;
}

async function readPlaced(file: string): Promise<Buffer> {
  return readFileSync((await placeOf(file)) ?? '');
}

/** Also one that is on its way off. */
async function hasCopy(file: string): Promise<boolean> {
  const query = 'SELECT FROM tape_file WHERE path = $1 AND disk_id IS NOT NULL';
  return (await app.ctx.db.pool.query(query, [file])).rowCount === 1;
}

const waitForGone = (file: string) =>
  waitFor(`${file} to leave`, async () => {
    await ring(app, 'event');
    return (await readStage(app, file)) === 'T' && (await hasCopy(file)) === false;
  });
const linkAt = (file: string) => path.join(linkRoot, file);
const waitForLink = (file: string) => waitFor(`a link at ${file}`, async () => existsSync(linkAt(file)));

test('a copy stays where it is when its file is renamed, is linked at the new path, served by it, and leaves with its request', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/stay/a' }]);
  const id = await ask(['/stay/a']);
  await waitForState(app, id, 'COMPLETED');
  await waitForLink('/stay/a');
  await rename('/stay/a', '/moved/b');
  expect(await placeOf('/moved/b')).toBe(`${app.restoreDir}/stay/a`);
  expect(await readPlaced('/moved/b')).toEqual(Buffer.from(contents.get('/stay/a') ?? []));
  await waitForLink('/moved/b');
  await waitFor('the link of before to go', async () => !existsSync(linkAt('/stay/a')));
  expect(readlinkSync(linkAt('/moved/b'))).toBe(`${app.restoreDir}/stay/a`);
  const { status, text } = await send(app, '/webdav/moved/b');
  expect([status, text.length > 0]).toEqual([200, true]);
  // another request has it at once
  const other = await ask(['/moved/b']);
  await waitForState(app, other, 'COMPLETED');
  expect(await findFaults(app)).toEqual([]);
  await cancel(app, id);
  await cancel(app, other);
  await waitForGone('/moved/b');
  expect([below('stay'), below('moved')]).toEqual([[], []]);
  await waitFor('its link to go', async () => !existsSync(linkAt('/moved/b')));
  // from tape again, it is at its new path
  const again = await ask(['/moved/b']);
  await waitForState(app, again, 'COMPLETED');
  expect(await placeOf('/moved/b')).toBe(`${app.restoreDir}/moved/b`);
  await cancel(app, again);
  await waitForGone('/moved/b');
});

test('a file that is renamed while a drive reads it is put where it was to be put', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/read/a', volume: 'R1' }]);
  const gate = createGate();
  let isReading = false;
  backend.onRead = async (_volume, _position, bytes) => {
    isReading = true;
    await gate.opened;
    return bytes;
  };
  const id = await ask(['/read/a']);
  await waitFor('a read', async () => isReading);
  await rename('/read/', '/done/deep/');
  gate.open();
  const { holds } = await waitForState(app, id, 'COMPLETED');
  expect(holds.map((hold) => hold.path)).toEqual(['/done/deep/a']);
  expect(await placeOf('/done/deep/a')).toBe(`${app.restoreDir}/read/a`);
  expect(await readPlaced('/done/deep/a')).toEqual(Buffer.from(contents.get('/read/a') ?? []));
  await cancel(app, id);
  await waitForGone('/done/deep/a');
});

test('a new file of the path of before is restored beside the copy that stands there, and later at its path', async () => {
  const old = await addTaped(app.ctx, backend, [{ path: '/best/latest', volume: 'B1' }]);
  const first = await ask(['/best/latest']);
  await waitForState(app, first, 'COMPLETED');
  await rename('/best/latest', '/best/v1');
  const fresh = await addTaped(app.ctx, backend, [{ path: '/best/latest', volume: 'B2' }]);
  const second = await ask(['/best/latest']);
  await waitForState(app, second, 'COMPLETED');
  expect(await readPlaced('/best/v1')).toEqual(Buffer.from(old.get('/best/latest') ?? []));
  expect(await readPlaced('/best/latest')).toEqual(Buffer.from(fresh.get('/best/latest') ?? []));
  expect(await placeOf('/best/latest')).toMatch(/\/\.tapegate-renamed\/\d+\/latest$/);
  expect(await findFaults(app)).toEqual([]);
  await cancel(app, first);
  await waitForGone('/best/v1');
  await cancel(app, second);
  await waitForGone('/best/latest');
  const third = await ask(['/best/latest', '/best/v1']);
  await waitForState(app, third, 'COMPLETED');
  expect(below('best').sort()).toEqual(['best', 'best/latest', 'best/v1']);
  await cancel(app, third);
  await waitForGone('/best/latest');
  await waitForGone('/best/v1');
  expect(below('.tapegate-renamed')).toEqual([]);
});

test.each([
  ['below', '/nest1/x', '/nest1/away', '/nest1/x/y'],
  ['above', '/nest2/x/y', '/nest2/away', '/nest2/x'],
])('a new file %s the place of a renamed copy is restored as well', async (_where, before, after, fresh) => {
  await addTaped(app.ctx, backend, [{ path: before, volume: 'N1' }]);
  const first = await ask([before]);
  await waitForState(app, first, 'COMPLETED');
  await rename(before, after);
  const contents = await addTaped(app.ctx, backend, [{ path: fresh, volume: 'N2' }]);
  const second = await ask([fresh]);
  await waitForState(app, second, 'COMPLETED');
  expect(await readPlaced(fresh)).toEqual(Buffer.from(contents.get(fresh) ?? []));
  await cancel(app, first);
  await cancel(app, second);
  await waitForGone(after);
  await waitForGone(fresh);
});

test('names go round in a circle, and each file keeps its bytes', async () => {
  const contents = await addTaped(app.ctx, backend, [
    { path: '/swap/a', volume: 'S1' },
    { path: '/swap/b', volume: 'S1', position: 2n },
  ]);
  const id = await ask(['/swap/a', '/swap/b']);
  await waitForState(app, id, 'COMPLETED');
  await rename('/swap/a', '/swap/c');
  await rename('/swap/b', '/swap/a');
  await rename('/swap/c', '/swap/b');
  expect(await readPlaced('/swap/a')).toEqual(Buffer.from(contents.get('/swap/b') ?? []));
  expect(await readPlaced('/swap/b')).toEqual(Buffer.from(contents.get('/swap/a') ?? []));
  expect(await findFaults(app)).toEqual([]);
  await cancel(app, id);
  await waitForGone('/swap/a');
  await waitForGone('/swap/b');
});

test('what an engine has left of a file that was renamed since is found where it was put', async () => {
  const idle = await startIdleApp();
  try {
    const contents = await addTaped(idle.ctx, backend, [{ path: '/left/a', volume: 'L1' }]);
    const id = await ask(['/left/a'], idle);
    await dieAfterPlacing(idle, '/left/a', contents.get('/left/a') ?? new Uint8Array());
    await renameFiles(idle.ctx, { from: '/left/a', to: '/right/a' });
    await withEngine(idle, backend, async () => {
      await waitForState(idle, id, 'COMPLETED');
    });
    const place = (await placeOf('/right/a', idle)) ?? '';
    expect(readFileSync(place)).toEqual(Buffer.from(contents.get('/left/a') ?? []));
    expect(await findFaults(idle)).toEqual([]);
  } finally {
    await idle.close();
  }
});

test('a library that goes by names is asked by those that its files have there', async () => {
  const system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  system.onStaged = (paths) => system.arrive(paths);
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/silo/a', size: 1000 }] });
  await rename('/silo/a', '/elsewhere/a');
  const id = await ask(['/elsewhere/a']);
  await waitForState(app, id, 'COMPLETED');
  expect(await placeOf('/elsewhere/a')).toBe(`${app.restoreDir}/elsewhere/a`);
  await cancel(app, id);
  await waitForGone('/elsewhere/a');
  await waitFor('the library to be told', async () => system.disk.size === 0);
});

test('what is withdrawn is forgotten once its copy has left, by the commands that operators type', async () => {
  const plain = await startApp({ backend });
  try {
    await addQuota(plain.ctx, 'alice', 10n ** 9n);
    await forgetByCommands(plain);
  } finally {
    await plain.close();
  }
});

async function forgetByCommands(plain: TestApp): Promise<void> {
  await addTaped(plain.ctx, backend, [{ path: '/bye/a', volume: 'F1' }]);
  const id = await ask(['/bye/a'], plain);
  await waitForState(plain, id, 'COMPLETED');
  const dir = makeDataDir();
  const place = { DATA_DIR: path.join(dir, 'none'), HOME: dir };
  const env = { env: { TAPEGATE_URL: plain.url, TAPEGATE_TOKEN: plain.token, ...place } };
  const renamed = await runCli(['rename', '/bye/a', '/bye/b'], env);
  expect(renamed.stderr).toBe('');
  expect(renamed.stdout).toBe('1 file, 1.00 kB, renamed\n1 live request is concerned\n');
  await withdrawFiles(plain.ctx, { path: '/bye/b' });
  const busy = await runCli(['forget', '/bye/'], env);
  expect([busy.code, busy.stderr]).toEqual([1, `tapegate: "/bye/b" cannot be forgotten yet: request ${id} has it\n`]);
  await cancel(plain, id);
  await waitFor('its copy to leave', async () => {
    await ring(plain, 'event');
    return await forgetFiles(plain.ctx, { path: '/bye/b', isDryRun: true }).then(
      () => true,
      () => false,
    );
  });
  expect((await runCli(['forget', '/bye/'], env)).stdout).toBe('1 file, 1.00 kB, forgotten\n');
  expect((await runCli(['rename', '/bye/b', '/bye/c'], env)).stderr).toContain('there is no file "/bye/b"');
}

/**
 * No file fails because its volume is away. Failed files are tried again when their owner or an operator retries them.
 */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cancel, retry } from '../support/mutations.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const clock = createClock();
const libraryDir = makeTempDir('library');
const library = createDirectoryLibrary(libraryDir);
const mountVolume = library.mount;
let mounts = 0;
library.mount = (...args) => {
  mounts++;
  return mountVolume(...args);
};

const app = useApp({ library, now: clock.now }, async () => {
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
});
afterAll(cleanUp);

async function fillVolume(volume: string, count: number): Promise<string> {
  const directory = path.join(libraryDir, volume);
  mkdirSync(directory);
  const rows = Array.from({ length: count }, (_, n) => {
    writeFileSync(path.join(directory, String(n + 1).padStart(8, '0')), `file ${n}`);
    return { path: `/${volume}/${n}`, volume, position: BigInt(n + 1), size: BigInt(`file ${n}`.length) };
  });
  await addFiles(app.ctx, rows);
  return directory;
}

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

async function waitForHeld(volume: string): Promise<string> {
  const held = await waitFor(`${volume} to be held`, async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return (await readSuspensions(app)).find(({ name }) => name === volume);
  });
  return held.reason;
}

test('no file of a volume that is away fails, however often the volume is resumed', async () => {
  const directory = await fillVolume('AWAY', 12);
  renameSync(directory, `${directory}-out`);
  const id = await ask('/AWAY/');
  for (let times = 0; times < 2; times++) {
    expect(await waitForHeld('AWAY')).toContain('mounting failed 3 times: the library has no volume AWAY');
    const tries = Object.values(await readTries(app, id));
    expect(tries.map(({ state, attempts }) => [state, attempts])).toEqual(Array(12).fill(['WAITING', 0]));
    await resume(app, 'VOLUME', 'AWAY');
  }
  await waitForHeld('AWAY');
  renameSync(`${directory}-out`, directory);
  await resume(app, 'VOLUME', 'AWAY');
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 12, filesFailed: 0 });
});

test('an empty library directory, which may be unmounted, is reported, and no volume is suspended', async () => {
  await fillVolume('EMPTY', 5);
  renameSync(libraryDir, `${libraryDir}-out`);
  mkdirSync(libraryDir);
  mounts = 0;
  const id = await ask('/EMPTY/');
  await waitFor('more mounts than hold a volume', async () => {
    clock.advance(600);
    await ring(app, 'recall');
    expect(await readSuspensions(app)).toEqual([]);
    return mounts > 3;
  });
  const tries = Object.values(await readTries(app, id));
  for (const { state, attempts, lastError } of tries) {
    expect([state, attempts, lastError]).toEqual(['WAITING', 0, expect.stringContaining('contains no volumes')]);
  }
  rmSync(libraryDir, { recursive: true, force: true });
  renameSync(`${libraryDir}-out`, libraryDir);
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
});

test('a missing file fails alone, and no file fails when the whole volume disappears', async () => {
  const directory = await fillVolume('LEAVES', 12);
  const file = path.join(directory, '00000002');
  renameSync(file, `${file}-later`);
  const id = await ask('/LEAVES/');
  await waitFor('the other files', async () => (await viewRequest(app, id)).filesOnDisk === 11);
  await cancel(app, id);
  await waitFor('the copies to go', async () => !(await viewRequest(app, id)).files.some((h) => h.stage !== 'ONTAPE'));
  renameSync(directory, `${directory}-gone`);
  const again = await ask('/LEAVES/');
  await waitForHeld('LEAVES');
  expect(await viewRequest(app, again)).toMatchObject({ filesFailed: 0, filesOnDisk: 0 });
  renameSync(`${directory}-gone`, directory);
  renameSync(`${file}-later`, file);
  await resume(app, 'VOLUME', 'LEAVES');
  await waitThroughPauses(app, clock, again, 'COMPLETED');
});

/** Creates a request in which one file has failed and one file is on disk. */
async function failOne(volume: string): Promise<{ id: number; mend: () => void }> {
  const directory = await fillVolume(volume, 2);
  const file = path.join(directory, '00000001');
  renameSync(file, `${file}-out`);
  const id = await ask(`/${volume}/`);
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  return { id, mend: () => renameSync(`${file}-out`, file) };
}

test('failed files are tried again at a retry by their owner', async () => {
  const { id, mend } = await failOne('FAILED');
  expect((await readTries(app, id))['/FAILED/0']).toMatchObject({ state: 'FAILED', lastErrorClass: 'PERMANENT' });
  expect(await retry(app, { requestId: id, expectedQuota: 'alice' })).toMatchObject({
    __typename: 'Request',
    requestId: id,
  });
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  mend();
  const said = await runCli(['retry', String(id)], { env });
  expect(said).toEqual({
    code: 0,
    stdout: `request ${id} is restoring: 1 of 2 files on disk, 1 waiting, 0 failed\n`,
    stderr: '',
  });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  const { stdout } = await runCli(['retry', String(id), '--quota', 'alice', '--json'], { env });
  const files = { filesTotal: 2, filesOnDisk: 2, filesFailed: 0 };
  expect(JSON.parse(stdout)).toEqual({ requestId: id, state: 'COMPLETED', ...files });
});

test('a failed file that another request needs as well is restored for both after a retry', async () => {
  const { id, mend } = await failOne('SHARED');
  const bob = await makeRequest(app, { quota: 'bob', patterns: '/SHARED/', retention: '2099-01-01' });
  await waitThroughPauses(app, clock, bob, 'PARTIAL');
  mend();
  await retry(app, { requestId: id });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(await viewRequest(app, bob)).toMatchObject({ state: 'COMPLETED', filesFailed: 0 });
});

test("a retry of an unknown, ended or other user's request is refused and changes nothing", async () => {
  const { id } = await failOne('REFUSED');
  const outcome = async (input: object) => {
    const { __typename, message } = await retry(app, input);
    return [__typename, message];
  };
  expect(await outcome({ requestId: 99_999 })).toEqual([
    'NotFound',
    'there is no request 99999, or you are not allowed to see it',
  ]);
  expect(await outcome({ requestId: id, expectedQuota: 'bob' })).toEqual([
    'WrongQuota',
    `request ${id} belongs to quota "alice", not to "bob"`,
  ]);
  expect(await outcome({ requestId: id, expectedQuota: 'nobody' })).toEqual([
    'UnknownUser',
    'there is no quota for user "nobody"',
  ]);
  expect(await outcome({ requestId: id, expectedQuota: 'a\0' })).toEqual([
    'InvalidInput',
    expect.stringContaining('NUL'),
  ]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'PARTIAL', filesFailed: 1 });
  await cancel(app, id);
  expect(await outcome({ requestId: id })).toEqual(['InvalidInput', expect.stringContaining('has ended')]);
  expect((await viewRequest(app, id)).state).toBe('CANCELLED');
});

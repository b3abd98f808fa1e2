/** The engine of a real server: a process for each drive and one for the passes, and what becomes of those that hang. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, expect, test } from 'vitest';
import { listEngineProcesses, waitForGone } from '../support/engine-processes.js';
import { askData } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { cleanUp, kill, makeDataDir, type Running, runCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, endLeases, hashTree, hashVolumes, readFiles, waitForEnd } from '../support/server.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const parts = (server: { pid: number }) =>
  listEngineProcesses(server)
    .map(({ part }) => part)
    .sort();

/** A file system of its own that can be frozen, as root where loop devices are to be had: what writes to it hangs. */
function mountFreezable(): { dir: string; freeze(): void; thaw(): void; remove(): void } | undefined {
  const home = makeDataDir();
  const [image, dir] = [path.join(home, 'image'), path.join(home, 'disk')];
  const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'ignore' });
  let isFrozen = false;
  try {
    writeFileSync(image, '');
    truncateSync(image, 64 * 1024 * 1024);
    run('mkfs.ext4', '-q', image);
    mkdirSync(dir);
    run('mount', '-o', 'loop', image, dir);
    run('fsfreeze', '--freeze', dir);
    run('fsfreeze', '--unfreeze', dir);
  } catch {
    if (existsSync(dir)) execFileSync('umount', ['-q', dir], { stdio: 'ignore' });
    return undefined;
  }
  const thaw = () => {
    if (isFrozen) run('fsfreeze', '--unfreeze', dir);
    isFrozen = false;
  };
  return {
    dir,
    thaw,
    freeze: () => {
      run('fsfreeze', '--freeze', dir);
      isFrozen = true;
    },
    remove: () => {
      thaw();
      run('umount', '-l', dir);
    },
  };
}

let freezable: ReturnType<typeof mountFreezable>;

afterEach(() => {
  freezable?.remove();
  freezable = undefined;
});
afterAll(() => cleanUp());

/** Without waiting for its output to be closed, which a process that hangs in the kernel keeps open. */
async function end(server: Running): Promise<number | null> {
  const ended = once(server.child, 'exit');
  server.child.kill('SIGTERM');
  const [code] = await ended;
  return code;
}

const LONG_BYTES = 100_000_000;

/** A file that takes a while, of which the recall is in hand. */
async function requestLong(dataDir: string, gateway: Gateway): Promise<number> {
  const volume = path.join(dataDir, 'library/LONG');
  mkdirSync(volume, { recursive: true });
  writeFileSync(path.join(volume, '00000001'), 'begin');
  truncateSync(path.join(volume, '00000001'), LONG_BYTES);
  const env = { DATA_DIR: dataDir };
  const row = { path: '/long/file', size: LONG_BYTES, stage: 'T', volume: 'LONG', position: 1 };
  expect(await runCli(['import', '-'], { env, stdin: JSON.stringify(row) })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'long', '--size', '1G'], { env })).toMatchObject({ code: 0 });
  const id = await makeRequest(gateway, { quota: 'long', files: ['/long/file'] });
  await waitFor('a recall in hand', async () => (await readFiles(gateway, '/long/'))[0]?.stage === 'RESTORING');
  return id;
}

test('a disk that hangs is held with the reason, files go elsewhere, and neither the stop nor the rest waits for it', {
  timeout: 180_000,
}, async ({ skip }) => {
  freezable = mountFreezable();
  // where no file system can be frozen, nothing that hangs can be had without a kernel module
  if (!freezable) return skip();
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, DISK_TIMEOUT: '2', DRIVES: '2', LOG_LEVEL: 'fatal' };
  const server = await startServer('start', { env });
  expect(parts(server)).toEqual(['drive', 'drive', 'passes']);
  const restore = path.join(dataDir, 'restore');
  expect(await runCli(['disk', 'add', restore, '--size', '20M'], { env })).toMatchObject({ code: 0 });
  expect(await runCli(['disk', 'add', freezable.dir, '--size', '1G'], { env })).toMatchObject({ code: 0 });
  // it has the most room, but a pass that looked at it just before it was marked holds it for a moment
  for (let month = 1; Object.keys(hashTree(freezable.dir)).length === 0; month++) {
    await waitFor('the disks to be in service', async () => (await readSuspensions(server)).length === 0);
    const one = `/demo/ocean/2023/sst_20230${month}`;
    await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: one }));
  }
  freezable.freeze();
  const id = await makeRequest(server, { quota: 'alice', patterns: DEMO });
  const held = await waitFor('the disk to be held', async () =>
    (await readSuspensions(server)).find(({ kind, reason }) => kind === 'DISK' && /answered/.test(reason ?? '')),
  );
  expect(held).toMatchObject({
    name: freezable.dir,
    mode: 'HELD',
    reason: `the restore disk ${freezable.dir} has not answered for 2 s`,
  });
  await waitForEnd(server, id);
  expect(hashTree(restore)).toMatchObject(await hashVolumes(server, dataDir, DEMO));
  await waitFor('all processes', async () => parts(server).length === 3);
  expect(await end(server)).toBe(0);

  const next = await startServer('start', { env });
  const other = await makeRequest(next, { quota: 'alice', patterns: '/demo/ocean/2025/sst_202501' });
  await waitForEnd(next, other);
  freezable.thaw();
  await waitFor('the disk to be in service again', async () => (await readSuspensions(next)).length === 0, 60_000);
  expect(await end(next)).toBe(0);
});

test('processes that are killed or stand still are ended and started again, and the others work on meanwhile', {
  timeout: 180_000,
}, async () => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, LOG_LEVEL: 'error' } });
  const drives = () => listEngineProcesses(server).filter(({ part }) => part === 'drive');
  const restore = async (patterns: string) =>
    waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns }));

  const killed = drives();
  expect(killed).toHaveLength(2);
  for (const { pid } of killed) process.kill(pid, 'SIGKILL');
  await waitForGone(killed);
  await endLeases(dataDir);
  await restore('/demo/ocean/2023');
  await waitFor('two drives', async () => drives().length === 2);
  expect(server.stderr()).toContain('an engine process is started again: it has ended with SIGKILL');

  const id = await requestLong(dataDir, server);
  const [one, other] = drives();
  for (const stopped of [one, other]) process.kill(stopped?.pid ?? 0, 'SIGSTOP');
  await waitForGone(drives());
  await endLeases(dataDir);
  await waitForEnd(server, id);
  expect(hashTree(path.join(dataDir, 'restore'))).toMatchObject(await hashVolumes(server, dataDir, '/long/'));
  await waitFor('the drives of ended processes to be forgotten', async () => {
    const { drives: known } = await askData<{ drives: { totalCount: number } }>(server, '{ drives { totalCount } }');
    return known.totalCount === 2;
  });

  await waitFor('two drives', async () => drives().length === 2);
  process.kill(drives()[0]?.pid ?? 0, 'SIGSTOP');
  await restore(DEMO);
  const all = listEngineProcesses(server);
  for (const { pid, part } of all) if (part === 'passes') process.kill(pid, 'SIGSTOP');
  expect((await stop(server)).code).toBe(0);
  await waitForGone(all);
});

test('processes end with a server that is killed, and with one that is told to stop twice', async () => {
  const env = { DATA_DIR: makeDataDir(), DEMO: 'off' };
  const killed = await startServer('start', { env });
  const first = listEngineProcesses(killed);
  expect(first).toHaveLength(3);
  await kill(killed);
  await waitForGone(first);

  const server = await startServer('start', { env });
  const second = listEngineProcesses(server);
  for (const { pid } of second) process.kill(pid, 'SIGTERM'); // as a service manager does, to each of a group
  server.child.kill('SIGTERM');
  expect(await server.ended).toMatchObject({ code: 0, stderr: '' });
  await waitForGone(second);
});

import { mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { askData } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { takePort } from '../support/ports.js';
import {
  cleanUp,
  kill,
  makeDataDir,
  READY,
  type Running,
  runCli,
  runProgram,
  serverPid,
  startCli,
  startProcess,
  startServer,
  stop,
} from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, hashTree, hashVolumes, isReady, readFiles, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

test('a server is waited for until it has said all, also where that comes line by line', () => {
  const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8');
  const [, said = ''] = /\$ npm start\n(Tapegate is ready[\s\S]*?)```/.exec(readme) ?? [];
  const lines = `${said}\n`.split(/(?<=\n)/);
  const isWhole = lines.map((_, n) => READY.test(lines.slice(0, n + 1).join('')));
  expect(isWhole).toEqual(lines.map((_, n) => n === lines.length - 1));
});

test('the line that a first start prints, pasted, restores what is on the volumes', async () => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir } });
  expect(await isReady(server)).toBe(true);
  const line = /^ {2}(TAPEGATE_URL=.*)$/m.exec(server.stdout())?.[1] ?? '';
  const pasted = await startProcess('/bin/sh', ['-c', line], { cwd: packageRoot, env: { HOME: dataDir } }).ended;
  expect(pasted.code).toBe(0);
  expect(pasted.stdout).toContain('request 1 is completed: 8 files on disk, 12.0 MB');
  const onTape = await hashVolumes(server, dataDir, DEMO);
  expect(Object.keys(onTape)).toHaveLength(8);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);

  expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a second start finds everything as it was, and makes no second demo', async () => {
  const dataDir = makeDataDir();
  const first = await startServer('start', { env: { DATA_DIR: dataDir } });
  const before = await readFiles(first, '');
  await waitForEnd(first, await makeRequest(first, { quota: 'alice', patterns: DEMO }));
  await stop(first);

  const second = await startServer('start', { env: { DATA_DIR: dataDir } });
  const after = await readFiles(second, '');
  await stop(second);
  expect(first.stdout()).toContain('A demo archive was made');
  expect(second.stdout()).not.toContain('demo');
  expect(before).toHaveLength(24);
  expect(after).toEqual(before.map((file) => (file.path.startsWith(DEMO) ? { ...file, stage: 'RESTORED' } : file)));
});

test('a start whose port is taken keeps nothing from the next one: that says how to try the demo, until somebody asked', async () => {
  const dataDir = makeDataDir();
  const { port, letGo } = await takePort();
  const failed = await runProgram(['start'], { env: { DATA_DIR: dataDir, PORT: String(port), LOG_LEVEL: 'warn' } });
  await letGo();
  expect(failed).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: cannot listen on port ${port} of 127.0.0.1 (PORT, HOST): another process has the port\n`,
  });
  const hint =
    /archive.*: 24 files on 3 volumes, users alice and bob\. In another terminal, try:\n\n {2}TAPEGATE_URL=\S+ npx tapegate request --quota alice /;
  const second = await startServer('start', { env: { DATA_DIR: dataDir } });
  expect(await readFiles(second, '')).toHaveLength(24);
  const id = await makeRequest(second, { quota: 'alice', patterns: DEMO });
  await waitForEnd(second, id);
  await stop(second);
  expect(second.stdout()).toMatch(hint);
  const third = await startServer('start', { env: { DATA_DIR: dataDir } });
  await stop(third);
  expect(third.stdout()).not.toContain('demo');
});

test('a demo whose making was killed is made whole by the next start', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn' };
  const killed = startCli(['start'], { env });
  await waitFor('the first volume', async () => {
    const names = await Promise.resolve()
      .then(() => readdirSync(path.join(dataDir, 'library/TG0001')))
      .catch(() => []);
    return names.length > 2;
  });
  await kill(killed);
  const server = await startServer('start', { env });
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: '/demo/' }));
  const onTape = await hashVolumes(server, dataDir, '/demo/');
  await stop(server);
  expect(server.stdout()).toContain('A demo archive was made');
  expect(Object.keys(onTape)).toHaveLength(24);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
});

test('DEMO=off makes no demo, and ENGINE=off recalls nothing', async () => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, DEMO: 'off', ENGINE: 'off' } });
  const files = await readFiles(server, '');
  const { drives } = await askData<{ drives: unknown }>(server, '{ drives { totalCount } }');
  await stop(server);
  expect(files).toEqual([]);
  expect(drives).toEqual({ totalCount: 0 });
});

const LONG_BYTES = 400_000_000;

/** Puts a file on tape that takes a while to restore, and asks for it. Resolves when its recall is in hand. */
async function requestLongFile(dataDir: string, gateway: Gateway): Promise<number> {
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

test('a process that is killed loses nothing: the next one attaches and finishes what was being restored', {
  timeout: 120_000,
}, async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, DEMO: 'off' };
  const first = await startServer('start', { env });
  const id = await requestLongFile(dataDir, first);
  const database = serverPid(dataDir);
  await kill(first);
  expect(serverPid(dataDir)).toBe(database);

  const second = await startServer('start', { env });
  expect(serverPid(dataDir)).toBe(database);
  await waitForEnd(second, id);
  const onTape = await hashVolumes(second, dataDir, '/long/');
  await stop(second);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(serverPid(dataDir)).toBeUndefined();
});

test('when PostgreSQL is killed, the process comes back to ready by itself and finishes what it has in hand', {
  timeout: 120_000,
}, async () => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, DEMO: 'off', LOG_LEVEL: 'silent' } });
  const id = await requestLongFile(dataDir, server);
  const killed = serverPid(dataDir) ?? 0;
  process.kill(killed, 'SIGKILL');
  await waitFor('the process to be ready again', async () => {
    if (server.child.exitCode !== null) throw new Error(`it has ended: ${server.stderr()}`);
    return ![undefined, killed].includes(serverPid(dataDir)) && (await isReady(server));
  });
  await waitForEnd(server, id);
  const onTape = await hashVolumes(server, dataDir, '/long/');
  expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(serverPid(dataDir)).toBeUndefined();
});

test('gateway and engine apart restore a request together, and who leaves first takes nothing along', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir };
  const demo = await startServer('start', { env: { ...env, ENGINE: 'off' } });
  const gateway = await startServer('serve', { env });
  expect(await stop(demo)).toMatchObject({ code: 0, stderr: '' });
  const id = await makeRequest(gateway, { quota: 'alice', patterns: DEMO });
  const engine = startCli(['work'], { env: { ...env, LOG_LEVEL: 'warn' } });
  await engine.waitForOutput(/engine is working/);
  await waitForEnd(gateway, id);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(await hashVolumes(gateway, dataDir, DEMO));

  expect(await stop(engine)).toMatchObject({ code: 0, stderr: '' });
  expect(await isReady(gateway)).toBe(true);
  expect(await stop(gateway)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('start and start at once on an empty folder, serve and work beside them share one server and one demo', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir };
  const servers = await Promise.all(['start', 'start'].map((command) => startServer(command, { env, initdb: true })));
  const engine = startCli(['work'], { env: { ...env, LOG_LEVEL: 'warn' } });
  servers.push(await startServer('serve', { env }));
  await engine.waitForOutput(/engine is working/);
  const urls = servers.map((server) => server);
  expect(await Promise.all(urls.map(isReady))).toEqual([true, true, true]);
  expect(servers.filter((server) => server.stdout().includes('A demo archive was made'))).toHaveLength(1);
  const ids = await Promise.all(
    servers.map((server, index) => makeRequest(server, { quota: 'alice', patterns: `/demo/ocean/202${3 + index}` })),
  );
  await Promise.all(ids.map((id, index) => waitForEnd(servers.at(index - 1) as Gateway, id)));
  const onTape = await hashVolumes(servers[0] as Gateway, dataDir, '/demo/');
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(Object.keys(onTape)).toHaveLength(24);

  const ended = await Promise.all([engine, ...servers].map((running: Running) => stop(running)));
  expect(ended.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(4).fill({ code: 0, stderr: '' }));
  expect(serverPid(dataDir)).toBeUndefined();
});

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('%s, twice in a moment, ends it in good order', async (signal) => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, DEMO: 'off' } });
  server.child.kill(signal);
  server.child.kill(signal);
  expect(await server.ended).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a signal during the start is obeyed once it is ready', async () => {
  const dataDir = makeDataDir();
  const starting = startCli(['start'], { env: { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn' } });
  await waitFor('the server', async () => serverPid(dataDir));
  expect(await stop(starting)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

/** `start`, `serve` and `work` as processes: what a first start makes, who shares it, and what signals and kills leave. */
import { mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { askData } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { takePort } from '../support/ports.js';
import {
  cleanUp,
  copyDatabase,
  kill,
  makeDataDir,
  READY,
  type Running,
  runCli,
  runProgram,
  serveHere,
  serverPid,
  startCli,
  startProcess,
  startServer,
  stop,
} from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, endLeases, hashTree, hashVolumes, isReady, readFiles, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';
import { workHere } from '../support/work.js';

afterAll(cleanUp);

test('a server is waited for until it has said all, also where that comes line by line', () => {
  const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8');
  const [, said = ''] = /\$ npm start\n(Tapegate is ready[\s\S]*?)```/.exec(readme) ?? [];
  const lines = `${said}\n`.split(/(?<=\n)/);
  const isWhole = lines.map((_, n) => READY.test(lines.slice(0, n + 1).join('')));
  expect(isWhole).toEqual(lines.map((_, n) => n === lines.length - 1));
});

/** Ends it as a Ctrl-C does that npm passes on: the signal comes twice in a moment. */
async function endBy(signal: NodeJS.Signals, running: Running): Promise<void> {
  running.child.kill(signal);
  running.child.kill(signal);
  expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
}

const hint =
  /archive.*: 24 files on 3 volumes, users alice and bob\. In another terminal, try:\n\n {2}(TAPEGATE_URL=\S+ npx tapegate request --quota alice .*)\n/;

test('after a start that could not listen, the next one prints a line that restores from the demo, and later ones do not', async () => {
  const dataDir = makeDataDir();
  const { port, letGo } = await takePort();
  const failed = await runProgram(['start'], {
    env: { DATA_DIR: dataDir, ENGINE: 'off', PORT: String(port), LOG_LEVEL: 'warn' },
  });
  await letGo();
  expect(failed).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: cannot listen on port ${port} of 127.0.0.1 (PORT, HOST): another process has the port\n`,
  });
  expect(serverPid(dataDir)).toBeUndefined();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, DRIVES: '1' } });
  expect(await isReady(server)).toBe(true);
  const before = await readFiles(server, '');
  expect(before).toHaveLength(24);
  const line = hint.exec(server.stdout())?.[1] ?? '';
  const pasted = await startProcess('/bin/sh', ['-c', line], { cwd: packageRoot, env: { HOME: dataDir } }).ended;
  expect(pasted.code).toBe(0);
  expect(pasted.stdout).toContain('request 1 is completed: 8 files on disk, 12.0 MB');
  const onTape = await hashVolumes(server, dataDir, DEMO);
  expect(Object.keys(onTape)).toHaveLength(8);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  await endBy('SIGHUP', server);
  expect(serverPid(dataDir)).toBeUndefined();

  const later = await serveHere({ DATA_DIR: dataDir, ENGINE: 'off' }, { command: 'start' });
  const after = await readFiles(later, '');
  await later.stop();
  expect(later.stdout()).not.toContain('demo');
  expect(after).toEqual(before.map((file) => (file.path.startsWith(DEMO) ? { ...file, stage: 'RESTORED' } : file)));
});

test('a demo whose making was killed is made whole by the next start', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, ENGINE: 'off' };
  copyDatabase({ env });
  const killed = startCli(['start'], { env: { ...env, PORT: '0', LOG_LEVEL: 'warn' } });
  await waitFor('the first volume', async () => {
    const names = await Promise.resolve()
      .then(() => readdirSync(path.join(dataDir, 'library/TG0001')))
      .catch(() => []);
    return names.length > 2;
  });
  await kill(killed);
  const server = await serveHere(env, { command: 'start' });
  expect(server.stdout()).toContain('A demo archive was made');
  const engine = await workHere(env);
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: '/demo/' }));
  await engine.stop();
  const onTape = await hashVolumes(server, dataDir, '/demo/');
  await server.stop();
  expect(Object.keys(onTape)).toHaveLength(24);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
});

test('DEMO=off makes no demo, and ENGINE=off recalls nothing', async () => {
  const server = await serveHere({ DATA_DIR: makeDataDir(), DEMO: 'off', ENGINE: 'off' }, { command: 'start' });
  const files = await readFiles(server, '');
  const { drives } = await askData<{ drives: unknown }>(server, '{ drives { totalCount } }');
  await server.stop();
  expect(files).toEqual([]);
  expect(drives).toEqual({ totalCount: 0 });
});

const LONG_BYTES = 400_000_000;

/** Puts a file on a volume that takes a while to restore, and asks for it. Resolves when its recall is in hand. */
async function requestLongFile(dataDir: string, gateway: Gateway, volume: string): Promise<number> {
  const place = path.join(dataDir, 'library', volume);
  const file = `/long/${volume}`;
  mkdirSync(place, { recursive: true });
  writeFileSync(path.join(place, '00000001'), 'begin');
  truncateSync(path.join(place, '00000001'), LONG_BYTES);
  const env = { DATA_DIR: dataDir };
  const row = { path: file, size: LONG_BYTES, stage: 'T', volume, position: 1 };
  expect(await runCli(['import', '-'], { env, stdin: JSON.stringify(row) })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'long', '--size', '1G'], { env })).toMatchObject({ code: 0 });
  const id = await makeRequest(gateway, { quota: 'long', files: [file] });
  await waitFor('a recall in hand', async () => (await readFiles(gateway, file))[0]?.stage === 'RESTORING');
  return id;
}

test('what is being restored while the process, or PostgreSQL, is killed is finished afterwards', {
  timeout: 120_000,
}, async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, DEMO: 'off', LOG_LEVEL: 'silent', DRIVES: '1' };
  const first = await startServer('start', { env });
  const one = await requestLongFile(dataDir, first, 'ONE');
  const database = serverPid(dataDir);
  await kill(first);
  expect(serverPid(dataDir)).toBe(database);

  const second = await startServer('start', { env });
  expect(serverPid(dataDir)).toBe(database); // the process has attached to the server that was left
  await endLeases(dataDir);
  await waitForEnd(second, one);

  const two = await requestLongFile(dataDir, second, 'TWO');
  process.kill(database ?? 0, 'SIGKILL');
  await waitFor('the process to be ready again', async () => {
    if (second.child.exitCode !== null) throw new Error(`it has ended: ${second.stderr()}`);
    return ![undefined, database].includes(serverPid(dataDir)) && (await isReady(second));
  });
  await endLeases(dataDir);
  await waitForEnd(second, two);
  const onTape = await hashVolumes(second, dataDir, '/long/');
  await endBy('SIGINT', second);
  expect(Object.keys(onTape)).toHaveLength(2);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(serverPid(dataDir)).toBeUndefined();
});

test('several that start at once on an empty folder, serve and work beside them share one server and one demo', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, ENGINE: 'off' };
  const starts = await Promise.all(
    ['start', 'start', 'start'].map((command) => startServer(command, { env, initdb: true })),
  );
  const [first, ...others] = starts as [Running & Gateway, ...(Running & Gateway)[]];
  expect(starts.filter((server) => server.stdout().includes('A demo archive was made'))).toHaveLength(1);
  const gateway = await serveHere(env);
  expect(await Promise.all([...starts, gateway].map(isReady))).toEqual([true, true, true, true]);
  await endBy('SIGTERM', first); // who leaves first takes nothing along
  const engine = startCli(['work'], { env: { ...env, LOG_LEVEL: 'warn' } });
  await engine.waitForOutput(/engine is working/);
  const servers: Gateway[] = [...others, gateway];
  const ids = await Promise.all(
    servers.map((server, n) => makeRequest(server, { quota: 'alice', patterns: `/demo/ocean/202${3 + n}` })),
  );
  await Promise.all(ids.map((id, n) => waitForEnd(servers.at(n - 1) as Gateway, id)));
  const onTape = await hashVolumes(gateway, dataDir, '/demo/');
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(Object.keys(onTape)).toHaveLength(24);

  for (const running of [engine, ...others]) expect(await stop(running)).toMatchObject({ code: 0, stderr: '' });
  expect(await isReady(gateway)).toBe(true);
  expect(await gateway.stop()).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
  expect(readdirSync(dataDir).sort()).toEqual(['library', 'operator.token', 'postgres', 'restore']);
});

test('a signal during the start is obeyed once it is ready', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn', DEMO: 'off', ENGINE: 'off' };
  const starting = startCli(['start'], { env });
  await waitFor('the server', async () => serverPid(dataDir));
  expect(await stop(starting)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

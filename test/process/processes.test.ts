/**
 * `start`, `serve` and `work` as processes: the first start, a shared database, and the effects of signals and kills.
 */
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { startEmbedded } from '../../src/db/embedded/embedded.js';
import { NPX } from '../support/console-session.js';
import { holdRecall } from '../support/held-recall.js';
import type { Gateway } from '../support/http.js';
import { takePort } from '../support/ports.js';
import {
  cleanUp,
  copyDatabase,
  kill,
  makeDataDir,
  type Running,
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

/** Stops a process as Ctrl-C in npm does, which sends the signal twice. */
async function endBy(signal: NodeJS.Signals, running: Running): Promise<void> {
  running.child.kill(signal);
  running.child.kill(signal);
  expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
}

const hint =
  /archive.*: 24 files on 3 volumes, users alice and bob\. In another terminal, try:\n\n {2}(DATA_DIR=\S+ tapegate request --quota alice .*)\n/;

test('the first start that can listen prints a command that restores from the demo, and later ones do not', async () => {
  const dataDir = makeDataDir();
  const { port, letGo } = await takePort();
  const failed = await runProgram(['start'], {
    env: { DATA_DIR: dataDir, ENGINE: 'off', PORT: String(port), LOG_LEVEL: 'warn' },
  });
  await letGo();
  expect(failed).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: cannot listen on 127.0.0.1, port ${port} (PORT, HOST): another process uses the port\n`,
  });
  expect(serverPid(dataDir)).toBeUndefined();
  const server = await startServer('start', { env: { DATA_DIR: dataDir, DRIVES: '1' } });
  expect(await isReady(server)).toBe(true);
  const before = await readFiles(server, '');
  expect(before).toHaveLength(24);
  const line = hint.exec(server.stdout())?.[1] ?? '';
  const pasted = await startProcess('bash', ['--norc', '-c', `${NPX}\n${line}`], { env: { HOME: dataDir } }).ended;
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

test('a start completes a demo whose creation was killed', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, ENGINE: 'off' };
  copyDatabase({ env });
  const embedded = await startEmbedded({ dataDir: path.join(dataDir, 'postgres') });
  const client = new pg.Client(embedded.config('tapegate'));
  await client.connect();
  await client.query('BEGIN; LOCK TABLE tape_file IN EXCLUSIVE MODE');
  const killed = startCli(['start'], { env: { ...env, PORT: '0', LOG_LEVEL: 'warn' } });
  await waitFor('the demo to be on tape, and not in the catalogue', async () => {
    // otherwise the transaction keeps its snapshot of the statistics
    await client.query('SELECT pg_stat_clear_snapshot()');
    const blocked = `SELECT FROM pg_stat_activity WHERE datname = 'tapegate' AND wait_event_type = 'Lock'`;
    return existsSync(path.join(dataDir, 'library/TG0001')) && (await client.query(blocked)).rowCount === 1;
  });
  await kill(killed);
  await client.end();
  await embedded.close();
  const server = await serveHere(env, { command: 'start' });
  expect(server.stdout()).toContain('Created a demo archive');
  const engine = await workHere(env);
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: '/demo/' }));
  await engine.stop();
  const onTape = await hashVolumes(server, dataDir, '/demo/');
  await server.stop();
  expect(Object.keys(onTape)).toHaveLength(24);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
});

test('a recall that was active when the server, or PostgreSQL, was killed is finished afterwards', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, DEMO: 'off', LOG_LEVEL: 'silent', DRIVES: '1' };
  const first = await startServer('start', { env });
  const one = await holdRecall(first, dataDir, 'ONE');
  const database = serverPid(dataDir);
  await kill(first);
  await one.open();
  expect(serverPid(dataDir)).toBe(database);

  const second = await startServer('start', { env });
  expect(serverPid(dataDir)).toBe(database); // the second start uses the running database server
  await endLeases(dataDir);
  await waitForEnd(second, one.id);

  const two = await holdRecall(second, dataDir, 'TWO');
  process.kill(database ?? 0, 'SIGKILL');
  await waitFor('the server to be ready again', async () => {
    if (second.child.exitCode !== null) throw new Error(`it has ended: ${second.stderr()}`);
    return ![undefined, database].includes(serverPid(dataDir)) && (await isReady(second));
  });
  await endLeases(dataDir);
  await waitForEnd(second, two.id);
  const onTape = await hashVolumes(second, dataDir, '/held/');
  await endBy('SIGINT', second);
  expect(Object.keys(onTape)).toHaveLength(2);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(serverPid(dataDir)).toBeUndefined();
});

test('several starts at once on an empty directory, a serve and a work share one database server and one demo', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, ENGINE: 'off' };
  const starts = await Promise.all([1, 2].map(() => startServer('start', { env, initdb: true })));
  const [first, other] = starts as [Running & Gateway, Running & Gateway];
  expect(starts.filter((server) => server.stdout().includes('Created a demo archive'))).toHaveLength(1);
  const gateway = await serveHere(env);
  expect(await Promise.all([...starts, gateway].map(isReady))).toEqual([true, true, true]);
  await endBy('SIGTERM', first); // the other processes keep the database server running
  const engine = startCli(['work'], { env: { ...env, LOG_LEVEL: 'warn' } });
  await engine.waitForOutput(/engine is running/);
  const id = await makeRequest(other, { quota: 'alice', patterns: DEMO });
  await waitForEnd(gateway, id);
  const onTape = await hashVolumes(gateway, dataDir, DEMO);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(Object.keys(onTape)).toHaveLength(8);

  for (const running of [engine, other]) expect(await stop(running)).toMatchObject({ code: 0, stderr: '' });
  expect(await isReady(gateway)).toBe(true);
  expect(await gateway.stop()).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
  expect(readdirSync(dataDir).sort()).toEqual(['library', 'postgres', 'restore']);
});

test('a signal during the start stops the server once it is ready', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn', DEMO: 'off', ENGINE: 'off' };
  copyDatabase({ env });
  const starting = startCli(['start'], { env });
  await waitFor('the server', async () => serverPid(dataDir));
  expect(await stop(starting)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

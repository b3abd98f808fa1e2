/** Where and as whom the program can be started, and what it says where it cannot. */
import { chmodSync, chownSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { takePort } from '../support/ports.js';
import { cleanUp, makeDataDir, runCli, runProgram, serverPid, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, hashTree, hashVolumes, waitForEnd } from '../support/server.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

afterAll(cleanUp);

test('a taken port is told in one line, and nothing is left running', async () => {
  const dataDir = makeDataDir();
  const { port, letGo } = await takePort();
  const env = { DATA_DIR: dataDir, DEMO: 'off', PORT: String(port), LOG_LEVEL: 'warn' };
  const result = await runProgram(['start'], { env });
  await letGo();
  expect(result).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: cannot listen on port ${port} of 127.0.0.1 (PORT, HOST): another process has the port\n`,
  });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a database that does not answer is told in one line', async () => {
  const { port, letGo } = await takePort();
  await letGo();
  const env = { DATABASE_URL: `postgresql://me:secret@localhost:${port}/none`, DATA_DIR: makeDataDir() };
  const result = await runProgram(['work'], { env });
  expect(result).toMatchObject({ code: 4, stdout: '' });
  expect(result.stderr).toMatch(/^tapegate: the database does not answer: connect ECONNREFUSED [^\n]*\n$/);
  expect(result.stderr).not.toContain('secret');
});

test.runIf(isRoot)('another user than root can start it, in a folder of its own', async () => {
  const dataDir = makeDataDir();
  chownSync(dataDir, NOBODY, NOBODY);
  const server = await startServer('start', { env: { DATA_DIR: dataDir }, uid: NOBODY, gid: NOBODY, initdb: true });
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: DEMO }));
  const onTape = await hashVolumes(server, dataDir, DEMO);
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
  expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test.runIf(isRoot)('root can start it in a folder that nobody else can search', async () => {
  const dataDir = makeDataDir();
  chmodSync(dataDir, 0o700);
  const server = await startServer('start', { env: { DATA_DIR: dataDir }, initdb: true });
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: DEMO }));
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(await hashVolumes(server, dataDir, DEMO));
  expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a folder with a very long path works', async () => {
  const dataDir = path.join(makeDataDir(), 'x'.repeat(200), 'y'.repeat(200), 'z'.repeat(200));
  const server = await startServer('start', { env: { DATA_DIR: dataDir }, initdb: true });
  await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: DEMO }));
  expect(hashTree(path.join(dataDir, 'restore'))).toEqual(await hashVolumes(server, dataDir, DEMO));
  expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a DATA_DIR that cannot be made is told in one line', async () => {
  const file = path.join(makeDataDir(), 'file');
  writeFileSync(file, '');
  const result = await runCli(['migrate'], { env: { DATA_DIR: path.join(file, 'data') } });
  const says = `there can be no folder ${path.join(file, 'data')} (DATA_DIR): a part of it is a file`;
  expect(result).toEqual({ code: 1, stdout: '', stderr: `tapegate: ${says}\n` });
});

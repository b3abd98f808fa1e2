/** Working directories and users of the program, and its error message if the database does not answer. */
import { chmodSync, chownSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { takePort } from '../support/ports.js';
import { cleanUp, makeDataDir, runCli, runProgram, serverPid, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, hashTree, hashVolumes, waitForEnd } from '../support/server.js';
import { makeTempDir } from '../support/temp-dir.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

afterAll(cleanUp);

test('a database that does not answer is reported in one line', async () => {
  const { port, letGo } = await takePort();
  await letGo();
  const env = { DATABASE_URL: `postgresql://me:secret@localhost:${port}/none`, DATA_DIR: makeTempDir() };
  const result = await runCli(['work'], { env });
  expect(result).toMatchObject({ code: 4, stdout: '' });
  expect(result.stderr).toMatch(/^tapegate: the database does not answer: connect ECONNREFUSED [^\n]*\n$/);
  expect(result.stderr).not.toContain('secret');
});

test.runIf(isRoot)(
  'another user than root can run the program in its own directory, which root can use as well',
  async () => {
    const dataDir = makeDataDir();
    chownSync(dataDir, NOBODY, NOBODY);
    const env = { DATA_DIR: dataDir, LOG_LEVEL: 'warn', DRIVES: '1' };
    const asNobody = { env, uid: NOBODY, gid: NOBODY };
    const server = await startServer('start', { ...asNobody, initdb: true });
    await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: DEMO }));
    const onTape = await hashVolumes(server, dataDir, DEMO);
    expect(hashTree(path.join(dataDir, 'restore'))).toEqual(onTape);
    expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
    expect(serverPid(dataDir)).toBeUndefined();
    expect(await runProgram(['quota', 'set', 'ann', '--size', '1T'], asNobody)).toMatchObject({ code: 0, stderr: '' });
    const { stdout } = await runCli(['quota', 'show', 'ann', '--json'], { env });
    expect(JSON.parse(stdout)).toMatchObject({ user: 'ann' });
  },
);

test.runIf(isRoot)(
  'root can run the program in a directory that no other user can search, however long its path is',
  async () => {
    const hidden = makeDataDir();
    chmodSync(hidden, 0o700);
    const dataDir = path.join(hidden, 'x'.repeat(200), 'y'.repeat(200), 'z'.repeat(200));
    const server = await startServer('start', { env: { DATA_DIR: dataDir, DRIVES: '1' }, initdb: true });
    await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: DEMO }));
    expect(hashTree(path.join(dataDir, 'restore'))).toEqual(await hashVolumes(server, dataDir, DEMO));
    expect(await stop(server)).toMatchObject({ code: 0, stderr: '' });
    expect(serverPid(dataDir)).toBeUndefined();
  },
);

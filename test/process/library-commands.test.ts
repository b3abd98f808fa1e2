/** `tapegate library`, beside the database and from afar, and a server that takes up what is added and leaves what is removed. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { listEngineProcesses } from '../support/engine-processes.js';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { hashTree, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

test('a server takes up a library that is added, restores from it, and leaves one that is removed', async () => {
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, DEMO: 'off', DRIVES: '1', LOG_LEVEL: 'fatal' };
  const server = await startServer('start', { env });
  const countDrives = () => listEngineProcesses(server).filter(({ part }) => part === 'drive').length;
  expect(countDrives()).toBe(1);

  const folder = path.join(dataDir, 'east');
  mkdirSync(path.join(folder, 'E1'), { recursive: true });
  writeFileSync(path.join(folder, 'E1/00000001'), 'of the east');
  const add = ['library', 'add', 'east', '--kind', 'directory', '--set', `folder=${folder}`, '--drives', '1'];
  expect(await runCli(add, { env })).toEqual({
    code: 0,
    stdout: 'library east is added, of the kind directory: 1 drive\n',
    stderr: '',
  });
  const csv = 'path,size,stage,volume,position,library\n/east/1,11,T,E1,1,east\n';
  expect(await runCli(['import', '-'], { env, stdin: csv })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'ann', '--size', '1G'], { env })).toMatchObject({ code: 0 });
  await waitForEnd(server, await makeRequest(server, { quota: 'ann', files: ['/east/1'] }));
  expect(Object.keys(hashTree(path.join(dataDir, 'restore')))).toEqual(['/east/1']);

  const spare = ['library', 'add', 'spare', '--kind', 'directory', '--set', `folder=${folder}`, '--drives', '1'];
  expect(await runCli(spare, { env })).toMatchObject({ code: 0 });
  await waitFor('processes for its drives', async () => countDrives() === 3);
  const before = listEngineProcesses(server).map(({ pid }) => pid);
  expect(await runCli(['library', 'set', 'spare', '--drives', '2', '--set', 'folder=/nowhere'], { env })).toEqual({
    code: 0,
    stdout: 'library spare is changed, of the kind directory: 2 drives\n',
    stderr: '',
  });
  await waitFor('others in their place', async () => {
    const now = listEngineProcesses(server).map(({ pid }) => pid);
    return countDrives() === 4 && now.filter((pid) => before.includes(pid)).length === before.length - 1;
  });
  const afar = { TAPEGATE_URL: server.url, DATA_DIR: makeDataDir() };
  const removed = { code: 0, stdout: 'library spare is removed, with 2 drives and 0 empty volumes\n', stderr: '' };
  expect(await runCli(['library', 'remove', 'spare'], { env })).toEqual(removed);
  await waitFor('the processes to end', async () => countDrives() === 2);

  const table = (await runCli(['library', 'list'], { env })).stdout;
  expect(table).toBe(`LIBRARY    KIND       VOLUMES  DRIVES  DEPTH  SENT  STATE
directory  directory  0        1       -      -     in service
east       directory  1        1       -      -     in service
`);
  // whoever asks a gateway shows who it is: the operator's token of the server's own folder
  const known = { ...afar, TAPEGATE_TOKEN: readFileSync(path.join(dataDir, 'operator.token'), 'utf8').trim() };
  expect((await runCli(['library', 'list'], { env: known })).stdout).toBe(table);
  const json = (await runCli(['library', 'list', '--json'], { env })).stdout;
  expect((await runCli(['library', 'list', '--json'], { env: known })).stdout).toBe(json);
  expect(JSON.parse(json.split('\n')[1] ?? '')).toMatchObject({
    name: 'east',
    settings: { folder },
    contract: 'DRIVE',
  });
  const set = ['library', 'set', 'east', '--drives', '1', '--json'];
  const [here, there] = [await runCli(set, { env }), await runCli(set, { env: known })];
  expect([here.stdout, there.stdout]).toEqual([json.split('\n')[1], json.split('\n')[1]].map((line) => `${line}\n`));
  expect(await runCli(['library', 'set', 'east', '--kind', 's3'], { env: known })).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(
      'kind must stay "directory", not become "s3": what is on its volumes could not be read',
    ),
  });
  expect(await runCli(['library', 'remove', 'east'], { env: known })).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'tapegate: the library "east" has 1 file of 11 bytes on 1 volume, and 0 recalls from it: import what it has with other places first\n',
  });
  expect(await stop(server)).toMatchObject({ code: 0 });
});

test.each([
  [['--set', 'folder'], '--set must be key=value, with a key before the sign'],
  [['--set', '=x'], '--set must be key=value, with a key before the sign'],
  [['--set', 'folder=/a', 'folder=/b'], '--set gives folder twice'],
  [['--set', 'folder=[1'], '--set gives folder a value that begins as JSON, and is none'],
  [['--drives', 'two'], '--drives must be a whole number, not "two"'],
])('options %j are refused before anything is opened', async (options, problem) => {
  const { code, stderr } = await runCli(['library', 'add', 'east', '--kind', 'directory', ...options]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(`${problem}\n`) });
});

test.each([
  [[], 'give what is to change: --set, --drives, --depth-files or --depth-bytes'],
  [['--set', 'folder'], '--set must be key=value, with a key before the sign'],
  [['--drives', 'none'], '--drives must be a whole number, not "none"'],
  [['--depth-files', 'all'], '--depth-files must be a whole number, not "all"'],
  [['--depth-bytes', 'all'], '--depth-bytes must be bytes, such as 500000000, 500M or 10T, not "all"'],
])('a change with %j is refused before anything is opened', async (options, problem) => {
  const { code, stderr } = await runCli(['library', 'set', 'east', ...options]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(`${problem}\n`) });
});

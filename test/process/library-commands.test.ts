/**
 * `tapegate library`, directly on the database and remotely, and a server that starts and stops processes for
 * libraries.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listEngineProcesses } from '../support/engine-processes.js';
import { addSecret, LIBRARY_ENV } from '../support/library-dir.js';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { hashTree, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';
import { WlcgServer } from '../support/wlcg-server.js';

const dataDir = makeDataDir();
const env = { DATA_DIR: dataDir, DEMO: 'off', DRIVES: '1', LOG_LEVEL: 'fatal', ...LIBRARY_ENV };
let server: Awaited<ReturnType<typeof startServer>>;

beforeAll(async () => {
  server = await startServer('start', { env });
});
afterAll(cleanUp);

const listDrives = () => listEngineProcesses(server).flatMap(({ part, pid }) => (part === 'drive' ? [pid] : []));
const done = (stdout: string) => ({ code: 0, stdout, stderr: '' });

test('a server restores from a library that is added, and stops the processes of one that is changed or removed', async () => {
  const directory = path.join(dataDir, 'east');
  mkdirSync(path.join(directory, 'E1'), { recursive: true });
  for (const name of ['00000001', '00000002']) writeFileSync(path.join(directory, 'E1', name), 'of the east');
  const add = (name: string) =>
    runCli(['library', 'add', name, '--type', 'directory', '--set', `directory=${directory}`, '--drives', '1'], {
      env,
    });
  expect(await add('east')).toEqual(done('added library east, type directory: 1 drive\n'));
  const csv = 'path,size,stage,volume,position,library\n/east/1,11,T,E1,1,east\n/east/2,11,T,E1,2,east\n';
  expect(await runCli(['import', '-'], { env, stdin: csv })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'ann', '--size', '1G'], { env })).toMatchObject({ code: 0 });
  await waitForEnd(server, await makeRequest(server, { quota: 'ann', files: ['/east/1'] }));
  expect(Object.keys(hashTree(path.join(dataDir, 'restore')))).toEqual(['/east/1']);

  const before = await waitFor('the drive and a spare process', async () => listDrives().length === 2 && listDrives());
  const change = (drives: string) => runCli(['library', 'set', 'east', '--drives', drives], { env });
  expect(await change('2')).toEqual(done('changed library east, type directory: 2 drives\n'));
  // the spare process stays
  await waitFor('the process of the drive to end', async () => !before.every((pid) => listDrives().includes(pid)));
  await waitForEnd(server, await makeRequest(server, { quota: 'ann', files: ['/east/2'] }));
  expect(Object.keys(hashTree(path.join(dataDir, 'restore')))).toEqual(['/east/1', '/east/2']);
  expect(await change('1')).toMatchObject({ code: 0 });
  expect(await add('north')).toMatchObject({ code: 0 });
  const removed = done('removed library north, with 1 drive and 0 empty volumes\n');
  expect(await runCli(['library', 'remove', 'north'], { env })).toEqual(removed);

  const table = (await runCli(['library', 'list'], { env })).stdout;
  expect(table).toBe(`LIBRARY    TYPE       VOLUMES  DRIVES  DEPTH  SENT  STATE
directory  directory  0        1       -      -     in service
east       directory  1        1       -      -     in service
`);
  const { stdout: token } = await runCli(['token', 'create', 'ops', '--role', 'operator'], { env });
  const remote = { TAPEGATE_URL: server.url, DATA_DIR: makeDataDir(), TAPEGATE_TOKEN: token.trim() };
  expect((await runCli(['library', 'list'], { env: remote })).stdout).toBe(table);
  const json = (await runCli(['library', 'list', '--json'], { env })).stdout;
  expect((await runCli(['library', 'list', '--json'], { env: remote })).stdout).toBe(json);
  const line = json.split('\n')[1] ?? '';
  expect(JSON.parse(line)).toMatchObject({
    ...{ name: 'east', type: 'directory', settings: { directory }, contract: 'DRIVE', driveCount: 1, volumeCount: 1 },
  });
  for (const each of [env, remote])
    expect((await runCli(['library', 'set', 'east', '--drives', '1', '--json'], { env: each })).stdout).toBe(
      `${line}\n`,
    );
  expect(await runCli(['library', 'set', 'east', '--type', 's3'], { env: remote })).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(
      'type must remain "directory", not "s3": the volumes of the library would become unreadable',
    ),
  });
  expect(await runCli(['library', 'remove', 'east'], { env: remote })).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'tapegate: library "east" contains 2 files (22 bytes in total) on 1 volume, and has 0 recalls: import its files with positions in another library first\n',
  });
});

const TOKEN = 'a-token-of-tests';

test('each process of an engine finds the token that settings name', async () => {
  const element = new WlcgServer({ dialect: 'eos', token: TOKEN });
  await element.listen();
  const bytes = randomBytes(1000);
  element.storage.put('/exp/a.nc', bytes);
  element.onCall = (kind, paths) => {
    if (kind === 'stage') setImmediate(() => element.storage.arrive(paths));
    return undefined;
  };
  const options = { env: { ...env, TAPEGATE_URL: server.url } };
  const set = [`url=${element.origin}`, `tokenFile=${addSecret(TOKEN)}`, 'pollLeastSeconds=1'];
  const row = { path: '/exp/a.nc', size: bytes.length, stage: 'T', volume: 'W1', library: 'element' };
  const steps: [string[], string?][] = [
    [['library', 'add', 'element', '--type', 'wlcg', ...set.flatMap((each) => ['--set', each])]],
    [['import', '-'], JSON.stringify(row)],
    [['quota', 'set', 'ada', '--size', '1T']],
    [['request', '--file', row.path, '--quota', 'ada', '--watch']],
  ];
  for (const [args, stdin] of steps)
    expect([args, await runCli(args, stdin ? { ...options, stdin } : options)]).toMatchObject([args, { code: 0 }]);
  expect(readFileSync(path.join(dataDir, 'restore', row.path)).equals(bytes)).toBe(true);
  expect(await stop(server)).toMatchObject({ code: 0 });
  await element.close();
});

const add = ['add', 'east', '--type', 'directory'];
const set = ['set', 'east'];

test.each([
  [[...add, '--set', 'directory'], '--set must be key=value'],
  [[...add, '--set', 'directory=/a', 'directory=/b'], '--set sets directory twice'],
  [[...add, '--set', 'directory=[1'], '--set directory: the value begins like JSON, but is not valid JSON'],
  [[...add, '--drives', 'two'], '--drives must be a whole number, not "two"'],
  [set, 'nothing to change: give --set, --drives, --depth-files or --depth-bytes'],
  [[...set, '--depth-files', 'all'], '--depth-files must be a whole number, not "all"'],
  [
    [...set, '--depth-bytes', 'all'],
    '--depth-bytes must be a number of bytes, such as 500000000, 500M or 10T, not "all"',
  ],
])('library %j is refused before anything is opened', async (args, problem) => {
  const { code, stderr } = await runCli(['library', ...args]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(`${problem}\n`) });
});

/** Which servers commands send the operator's token to. */
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { hostname } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { findListeners } from '../../src/access/gateway-file.js';
import { createDatabase } from '../support/database.js';
import { closeServer, listen } from '../support/ports.js';
import { cleanUp, runCli, serveHere, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';

const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const own = process.getuid?.() ?? 0;

let dir: string;
const app = useApp();
beforeEach(() => {
  dir = makeTempDir();
  chmodSync(dir, 0o755);
  writeFileSync(path.join(dir, 'operator.token'), 'tapegate_secret\n', { mode: 0o600 });
});
afterEach(() => {
  rmSync(dir, { recursive: true });
});
afterAll(cleanUp);

/** A server that prints the Authorization of each request, in a process that may have another user. */
const LISTENER = `
const [host, at, dir] = process.argv.slice(1);
const fs = require('node:fs');
const socketOf = (fd) => { try { return fs.readlinkSync('/proc/self/fd/' + fd).match(/^socket:\\[(.*)\\]$/)?.[1] ?? []; } catch { return []; } };
const noteGateway = (port) => {
  const boot = fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const note = { boot, sockets: fs.readdirSync('/proc/self/fd').flatMap(socketOf), pid: process.pid };
  fs.writeFileSync(dir + '/gateway-' + require('node:os').hostname() + '-' + port + '.json', JSON.stringify(note), { mode: 0o600 });
};
const server = require('node:http').createServer((req, res) => {
  process.stdout.write('asked with ' + (req.headers.authorization ?? 'nothing') + '\\n');
  res.setHeader('Content-Type', 'application/json').end('{"data":{"list":{"edges":[],"pageInfo":{"hasNextPage":false,"endCursor":null}}}}');
});
server.listen(Number(at), host, () => {
  const { port } = server.address();
  if (dir) noteGateway(port);
  process.stdout.write('port ' + port + '\\n');
});`;

/** @param more.noted the DATA_DIR of the gateway that it claims to be */
async function listenAs(uid: number | undefined, host: string, { noted = '', at = 0 } = {}) {
  const running = startProcess(process.execPath, ['-e', LISTENER, host, String(at), noted], {
    ...(uid !== undefined && { uid }),
    cwd: '/',
  });
  const [, port] = await running.waitForOutput(/port (\d+)\n/);
  return { running, port: Number(port) };
}

/** Runs a command against a server. @returns the Authorization that it sends */
async function sentTo(uid: number | undefined, host: string, name: string): Promise<string | undefined> {
  if (uid !== undefined) chmodSync(dir, 0o777);
  const { running, port } = await listenAs(uid, host, { noted: dir });
  expect((await listTokens(`http://${name}:${port}`)).code).toBe(0);
  const [, sent] = await running.waitForOutput(/asked with (.*)\n/);
  running.child.kill('SIGKILL');
  return sent;
}

const listTokens = (url: string, dataDir = dir) =>
  runCli(['token', 'list', '--json'], { env: { TAPEGATE_URL: url, DATA_DIR: dataDir, HOME: dir } });

const ways = [
  ['127.0.0.1', '127.0.0.1'],
  ['0.0.0.0', '127.0.0.1'],
  ['::', '127.0.0.1'],
  ['::1', '[::1]'],
  ['::', '[::1]'],
  ['127.0.0.1', 'localhost'],
];

test.each(ways)('a gateway of this user at %s gets the token at %s', async (host, name) => {
  expect(await sentTo(undefined, host, name)).toBe('Bearer tapegate_secret');
});

test.runIf(isRoot).each(ways)('a server of another user at %s gets no token at %s', async (host, name) => {
  expect(await sentTo(NOBODY, host, name)).toBe('nothing');
});

test.runIf(isRoot)('a command of root sends the token to a server of the owner of the token', async () => {
  chownSync(path.join(dir, 'operator.token'), NOBODY, NOBODY);
  expect(await sentTo(NOBODY, '127.0.0.1', '127.0.0.1')).toBe('Bearer tapegate_secret');
});

test('another server of this user on the port of a stopped gateway, such as a tunnel, gets no token', async () => {
  const dataDir = path.join(dir, 'data');
  const gateway = await serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: dataDir, TAPEGATE_AUTH: 'token' });
  const answer = await listTokens(gateway.url, dataDir);
  expect(answer).toMatchObject({ code: 0, stdout: expect.stringContaining('operator') });
  const at = Number(new URL(gateway.url).port);
  const note = path.join(dataDir, `gateway-${hostname()}-127.0.0.1-${at}.json`);
  const noted = readFileSync(note);
  await gateway.stop();
  writeFileSync(note, noted, { mode: 0o600 }); // as after a kill
  const { running } = await listenAs(undefined, '127.0.0.1', { at });
  await listTokens(gateway.url, dataDir);
  await running.waitForOutput(/asked with nothing\n/);
  running.child.kill('SIGKILL');
});

test('gateways with one DATA_DIR and the same port of two addresses both get the token until they stop', async () => {
  const dataDir = path.join(dir, 'data');
  const serve = (host: string, port: string) =>
    serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: dataDir, TAPEGATE_AUTH: 'token', HOST: host, PORT: port });
  const first = await serve('127.0.0.1', '0');
  const { port } = new URL(first.url);
  const second = await serve('::1', port);
  const codeAt = async (name: string) => (await listTokens(`http://${name}:${port}`, dataDir)).code;
  expect(await Promise.all(['127.0.0.1', '[::1]', 'localhost'].map(codeAt))).toEqual([0, 0, 0]);
  await second.stop();
  expect(await codeAt('127.0.0.1')).toBe(0);
  // the host has another name since
  const note = readdirSync(dataDir).find((name) => name.endsWith(`-${port}.json`)) ?? '';
  renameSync(path.join(dataDir, note), path.join(dataDir, note.replace(hostname(), 'before')));
  expect(await codeAt('127.0.0.1')).toBe(0);
  await first.stop();
});

test('a directory in the place of the token file is ignored', async () => {
  const other = path.join(dir, 'other');
  mkdirSync(path.join(other, 'operator.token'), { recursive: true });
  const { running, port } = await listenAs(undefined, '127.0.0.1');
  expect((await listTokens(`http://127.0.0.1:${port}`, other)).code).toBe(0);
  await running.waitForOutput(/asked with nothing\n/);
});

test('a listener is found at its own address only', async () => {
  const server = createServer();
  const port = await listen(server);
  expect(await findListeners('127.0.0.1', port)).toMatchObject([{ uid: own, socket: expect.stringMatching(/^\d+$/) }]);
  expect(await findListeners('127.0.0.2', port)).toEqual([]);
  expect(await findListeners('::1', port)).toEqual([]);
  await closeServer(server);
});

/** Mounts a file system of 1 MB, if this user may. */
function mountSmall(): string | undefined {
  const place = makeTempDir();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=755', 'tapegate-test', place], { stdio: 'ignore' });
    return place;
  } catch {
    rmSync(place, { recursive: true });
    return undefined;
  }
}

const small = mountSmall();
afterAll(() => {
  if (small === undefined) return;
  execFileSync('umount', ['-l', small]);
  rmSync(small, { recursive: true });
});

test.skipIf(small === undefined)(
  'a gateway whose DATA_DIR is full or read-only starts without a token, and logs why',
  async () => {
    const place = small ?? '';
    const own = await createDatabase();
    const ballast = path.join(place, 'ballast');
    expect(() => writeFileSync(ballast, Buffer.alloc(2_000_000))).toThrow('ENOSPC');
    const remount = (mode: 'ro' | 'rw') => execFileSync('mount', ['-o', `remount,${mode}`, place]);
    const start = async () => {
      const server = await serveHere({ DATABASE_URL: own.url, DATA_DIR: place });
      const { status } = await fetch(`${server.url}/tape_control/api/v1/requests`);
      const { code, stderr } = await server.stop();
      return { status, code, stderr };
    };
    const served = (problem: string) => ({
      status: 200,
      code: 0,
      stderr: expect.stringMatching(new RegExp(`no operator's token is left in DATA_DIR[^\n]*${problem}`)),
    });
    expect(await start()).toEqual(served('ENOSPC'));
    remount('ro');
    expect(await start()).toEqual(served('EROFS'));
    remount('rw');
    const client = new pg.Client(own.connection);
    await client.connect();
    const made = async () => (await client.query(`SELECT FROM api_token WHERE note LIKE 'made at a start%'`)).rowCount;
    expect([await made(), readdirSync(place)]).toEqual([0, ['ballast']]);
    rmSync(ballast);
    expect(await start()).toMatchObject({ status: 200, code: 0, stderr: '' });
    expect([await made(), readdirSync(place)]).toEqual([1, ['operator.token']]);
    await client.end();
    await own.drop();
  },
);

/** To whom commands show the operator's token of a host. */

import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { isListenerOf } from '../../src/access/listeners.js';
import { startApp } from '../support/app.js';
import { cleanUp, makeDataDir, runCli, startProcess, startServer, stop } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const own = process.getuid?.() ?? 0;

let dir: string;
let server: Server | undefined;
beforeEach(() => {
  dir = makeDataDir();
  chmodSync(dir, 0o755);
  writeFileSync(path.join(dir, 'operator.token'), 'tapegate_secret\n', { mode: 0o600 });
});
afterEach(() => {
  server?.close();
  server?.closeAllConnections();
  server = undefined;
});
afterAll(() => cleanUp());

/** Says with which Authorization it was asked; in a process of its own, which may be another user's. */
const LISTENER = `
const [host] = process.argv.slice(1);
const server = require('node:http').createServer((req, res) => {
  process.stdout.write('asked with ' + (req.headers.authorization ?? 'nothing') + '\\n');
  res.setHeader('Content-Type', 'application/json').end('{"data":{"tokens":{"edges":[],"pageInfo":{"hasNextPage":false,"endCursor":null}}}}');
});
server.listen(0, host, () => process.stdout.write('port ' + server.address().port + '\\n'));`;

async function listenAs(uid: number | undefined, host: string) {
  const running = startProcess(process.execPath, ['-e', LISTENER, host], {
    ...(uid !== undefined && { uid }),
    cwd: '/',
  });
  const [, port] = await running.waitForOutput(/port (\d+)\n/);
  return { running, port: Number(port) };
}

async function shownTo(uid: number | undefined, host: string, name: string): Promise<string | undefined> {
  const { running, port } = await listenAs(uid, host);
  const env = { TAPEGATE_URL: `http://${name}:${port}`, DATA_DIR: dir, HOME: dir };
  expect(await runCli(['token', 'list', '--json'], { env })).toMatchObject({ code: 0 });
  running.child.kill('SIGKILL');
  return /asked with (.*)\n/.exec(running.stdout())?.[1];
}

const ways = [
  ['127.0.0.1', '127.0.0.1'],
  ['0.0.0.0', '127.0.0.1'],
  ['::', '127.0.0.1'],
  ['::1', '[::1]'],
  ['::', '[::1]'],
  ['127.0.0.1', 'localhost'],
];

test.each(ways)('a server of ours at %s is shown the token at %s', async (host, name) => {
  expect(await shownTo(undefined, host, name)).toBe('Bearer tapegate_secret');
});

test.runIf(isRoot).each(ways)("another user's server at %s is not shown the token at %s", async (host, name) => {
  expect(await shownTo(NOBODY, host, name)).toBe('nothing');
});

test.runIf(isRoot)('a server that runs as the owner of the token is shown it to root, too', async () => {
  chownSync(path.join(dir, 'operator.token'), NOBODY, NOBODY);
  expect(await shownTo(NOBODY, '127.0.0.1', '127.0.0.1')).toBe('Bearer tapegate_secret');
});

test('what is no file is not waited for', async () => {
  const other = path.join(dir, 'other');
  mkdirSync(path.join(other, 'operator.token'), { recursive: true });
  const { running, port } = await listenAs(undefined, '127.0.0.1');
  const env = { TAPEGATE_URL: `http://127.0.0.1:${port}`, DATA_DIR: other, HOME: dir };
  expect(await runCli(['token', 'list', '--json'], { env })).toMatchObject({ code: 0 });
  expect(running.stdout()).toContain('asked with nothing');
});

test('who listens at one address alone is not met at another, and nobody is where nobody listens', async () => {
  server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server?.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  expect(await isListenerOf('127.0.0.1', port, [own])).toBe(true);
  expect(await isListenerOf('127.0.0.2', port, [own])).toBe(false);
  expect(await isListenerOf('::1', port, [own])).toBe(false);
  if (!isRoot) expect(await isListenerOf('127.0.0.1', port, [own + 1])).toBe(false);
});

/** A file system of 1 MB, where mounting is allowed. */
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
  'a start whose DATA_DIR is full or read-only goes on without a token, says so, and makes none',
  async () => {
    const place = small ?? '';
    const app = await startApp();
    const ballast = path.join(place, 'ballast');
    expect(() => writeFileSync(ballast, Buffer.alloc(2_000_000))).toThrow('ENOSPC');
    const remount = (mode: 'ro' | 'rw') => execFileSync('mount', ['-o', `remount,${mode}`, place]);
    const start = async () => {
      const server = await startServer('serve', { env: { DATABASE_URL: app.databaseUrl, DATA_DIR: place } });
      const { status } = await fetch(`${server.url}/tape_control/api/v1/requests`);
      const { code, stderr } = await stop(server);
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
    const made = () => app.ctx.db.prisma.apiToken.count({ where: { note: { startsWith: 'made at a start' } } });
    expect([await made(), readdirSync(place)]).toEqual([0, ['ballast']]);
    rmSync(ballast);
    expect(await start()).toMatchObject({ status: 200, code: 0, stderr: '' });
    expect([await made(), readdirSync(place)]).toEqual([1, ['operator.token']]);
    await app.close();
  },
);

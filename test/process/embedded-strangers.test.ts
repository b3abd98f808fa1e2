/** The embedded PostgreSQL and other users of its host. The users are real: these tests need root. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findServerUser } from '../../src/database/binaries.js';
import { type Embedded, startEmbedded } from '../../src/database/embedded.js';
import { bundle } from '../support/bundle.js';
import { cleanUp, makeDataDir, serverPid, startProcess } from '../support/process.js';
import { waitFor } from '../support/wait.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

afterAll(cleanUp);

/** A cluster that the tests share. Each leaves it as it was, without a server. */
const dataDir = makeDataDir();
const cluster = path.join(dataDir, 'postgres');

beforeAll(async () => (await startIn(dataDir)).close());

const startIn = (dataDir: string, startTimeoutMs = 60_000): Promise<Embedded> =>
  startEmbedded({ dataDir: path.join(dataDir, 'postgres'), startTimeoutMs });

/** What another user of the host gets who connects as the database's owner. */
async function askAs(user: { uid?: number; gid?: number }, folder: string): Promise<string> {
  const script = `
    const net = require('node:net');
    const socket = net.connect(process.argv[1] + '/.s.PGSQL.5432', () => {
      const body = Buffer.from('user\\0postgres\\0database\\0postgres\\0\\0');
      const head = Buffer.alloc(8);
      head.writeInt32BE(body.length + 8, 0);
      head.writeInt32BE(196608, 4);
      socket.write(Buffer.concat([head, body]));
    });
    socket.on('error', (error) => console.log(error.code));
    // 'R' and 0: it is let in; 'E': an error
    socket.on('data', (data) => {
      console.log(data[0] === 0x52 ? (data.readInt32BE(5) === 0 ? 'let in' : 'asked') : data.toString());
      socket.destroy();
    });`;
  const { stdout } = await startProcess(process.execPath, ['-e', script, folder], { ...user, cwd: '/' }).ended;
  return stdout;
}

/** The rules of older versions. */
const LET_ALL_IN = 'local all all trust\nhost all all 127.0.0.1/32 trust\n';

test.runIf(isRoot)('as root: no other user is let in, not even the one that the server runs as', async () => {
  const server = await startIn(dataDir);
  const user = findServerUser(cluster);
  expect(user.uid).toBeGreaterThan(0);
  expect(await askAs(user, cluster)).toContain('Peer authentication failed');
  expect(await askAs({ uid: NOBODY, gid: NOBODY }, cluster)).not.toContain('let in');
  expect(await askAs({}, cluster)).toBe('let in\n');
  await server.close();
});

test.runIf(isRoot)(
  'as root: a cluster with rules of an older version lets nobody else in, even if its server is already running',
  async () => {
    const rules = path.join(cluster, 'pg_hba.conf');
    const user = findServerUser(cluster);
    writeFileSync(rules, LET_ALL_IN);
    const second = await startIn(dataDir);
    expect(await askAs(user, cluster)).toContain('Peer authentication failed');
    writeFileSync(rules, LET_ALL_IN);
    await second.close();
    const old = await startIn(dataDir);
    writeFileSync(rules, LET_ALL_IN);
    const client = new pg.Client(old.config('postgres'));
    await client.connect();
    await client.query('SELECT pg_reload_conf()');
    await client.end();
    await waitFor('an old server', async () => (await askAs(user, cluster)) === 'let in\n');
    const next = await startIn(dataDir);
    await waitFor('its new rules', async () => (await askAs(user, cluster)) !== 'let in\n');
    await next.close();
    await old.close();
  },
);

test('rules of the operator are left alone', async () => {
  const rules = path.join(cluster, 'pg_hba.conf');
  const before = readFileSync(rules, 'utf8');
  const own = `${before.split('\n').slice(1).join('\n')}local all monitor scram-sha-256\n`;
  writeFileSync(rules, own);
  await (await startIn(dataDir)).close();
  const after = readFileSync(rules, 'utf8');
  writeFileSync(rules, before);
  expect(after).toBe(own);
});

test.runIf(isRoot && process.platform === 'linux')(
  'as root: another user cannot block a start with the directory in /tmp that older versions used',
  async () => {
    const deep = path.join(dataDir, 'x'.repeat(40), 'x'.repeat(40));
    mkdirSync(deep, { recursive: true });
    renameSync(cluster, path.join(deep, 'postgres'));
    const hash = createHash('sha256').update(path.join(deep, 'postgres')).digest('hex').slice(0, 12);
    const squatted = `/tmp/tapegate-${hash}`;
    mkdirSync(squatted);
    chownSync(squatted, NOBODY, NOBODY);
    try {
      const server = await startIn(deep);
      // processes that this one starts find the socket too
      const { host } = server.config('postgres');
      expect(await askAs({}, host ?? '')).toBe('let in\n');
      await server.close();
    } finally {
      rmSync(squatted, { recursive: true });
      renameSync(path.join(deep, 'postgres'), cluster);
    }
  },
);

test.runIf(isRoot)(
  'as root: a link in the place of the server log is refused, and its target is not changed',
  async () => {
    const victim = path.join(dataDir, 'of-root');
    writeFileSync(victim, 'secret', { mode: 0o600 });
    const log = path.join(cluster, 'server.log');
    rmSync(log);
    symlinkSync(victim, log);
    await expect(startIn(dataDir, 2000)).rejects.toThrow(/server\.log is no plain file of its own/);
    rmSync(log);
    expect([readFileSync(victim, 'utf8'), statSync(victim).uid]).toEqual(['secret', 0]);
  },
);

test.each(['postmaster.pid', 'server.log', 'pg_hba.conf'])(
  'a pipe in the place of %s is refused and blocks nothing',
  async (name) => {
    const place = path.join(cluster, name);
    const kept = path.join(dataDir, 'kept');
    if (existsSync(place)) renameSync(place, kept);
    execFileSync('mkfifo', [place]);
    // in another process: this one would block with the pipe
    const starting = startProcess(process.execPath, [await bundle('start-embedded'), cluster]);
    const { code, stderr } = await starting.ended;
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`${name} is no plain file of its own`),
    });
    expect(lstatSync(place).isFIFO()).toBe(true);
    rmSync(place);
    if (existsSync(kept)) renameSync(kept, place);
  },
);

test.runIf(isRoot)(
  'as root: a cluster that another user has put into a directory for all users is not started',
  async () => {
    chmodSync(dataDir, 0o1777);
    renameSync(cluster, `${cluster}-of-a-stranger`);
    execFileSync('cp', ['-a', `${cluster}-of-a-stranger`, cluster]);
    await expect(startIn(dataDir, 2000)).rejects.toThrow('others may write');
    expect(serverPid(dataDir)).toBeUndefined();
  },
);

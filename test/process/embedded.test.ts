/** The embedded PostgreSQL server: created, shared, killed and moved, and protected from other users of the host. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test, vi } from 'vitest';
import { findServerUser } from '../../src/db/embedded/cluster.js';
import { type Embedded, isRunning, startEmbedded } from '../../src/db/embedded/embedded.js';
import { migrate } from '../../src/db/migrate.js';
import { bundle } from '../support/bundle.js';
import { createDatabase, queryOnce } from '../support/database.js';
import {
  cleanUp,
  copyDatabase,
  makeDataDir,
  readServerLog,
  runCli,
  runProgram,
  serveHere,
  serverPid,
  startProcess,
} from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

afterAll(cleanUp);

/** A cluster that all tests share. Each test leaves the cluster unchanged and without a server. */
const dataDir = makeDataDir();

const cluster = path.join(dataDir, 'postgres');

const startIn = (dataDir: string, startTimeoutMs = 60_000): Promise<Embedded> =>
  startEmbedded({ dataDir: path.join(dataDir, 'postgres'), startTimeoutMs });

async function makeDatabase(): Promise<void> {
  const server = await startIn(dataDir);
  await server.ensureDatabase('tapegate');
  await migrate(server.config('tapegate'));
  await server.close();
}

const query = (server: Embedded, text: string) => queryOnce(server.config('postgres'), text);

/** Returns the command line of a process, or an empty string once the process has ended, even as a zombie. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** Kills the server, whose lock file remains. */
async function killServer(): Promise<number> {
  const pid = serverPid(dataDir);
  if (pid === undefined) throw new Error('no server runs');
  process.kill(pid, 'SIGKILL');
  await waitFor('the server to be gone', async () => serverPid(dataDir) !== pid);
  return pid;
}

test('a new cluster is UTF-8 and UTC, listens on a Unix socket only, and stops with its last user', async () => {
  const server = await startIn(dataDir);
  const settings = await query(
    server,
    `SELECT current_setting('listen_addresses') AS listen, current_setting('TimeZone') AS zone, datlocale AS locale,
       pg_encoding_to_char(encoding) AS encoding FROM pg_database WHERE datname = 'postgres'`,
  );
  await server.close();
  expect(settings).toEqual([{ listen: '', zone: 'UTC', locale: 'C.UTF-8', encoding: 'UTF8' }]);
  expect(serverPid(dataDir)).toBeUndefined();
  expect(existsSync(path.join(dataDir, 'postgres/postmaster.pid'))).toBe(false);
  expect(readServerLog(dataDir)).toContain('database system is shut down');
});

test('only the last of several users stops the server', async () => {
  const first = await startIn(dataDir);
  const second = await startIn(dataDir);
  const pid = serverPid(dataDir);
  await first.close();
  expect(serverPid(dataDir)).toBe(pid);
  expect(await query(second, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  await second.close();
  expect(serverPid(dataDir)).toBeUndefined();
});

test('if all users leave at once, one of them stops the server', async () => {
  for (let round = 0; round < 2; round++) {
    const all = await Promise.all(Array.from({ length: 4 }, () => startIn(dataDir)));
    await Promise.all(all.map((server) => server.close()));
    expect(serverPid(dataDir)).toBeUndefined();
  }
});

test('a server that is stopped with SIGTERM is started again for its clients', async () => {
  const server = await startIn(dataDir);
  const pid = serverPid(dataDir);
  if (pid === undefined) throw new Error('no server runs');
  process.kill(pid, 'SIGTERM');
  await waitFor('another server', async () => ![pid, undefined].includes(serverPid(dataDir)));
  const later = await startIn(dataDir);
  await later.close();
  await waitFor('its first client to be back', async () => serverPid(dataDir) !== undefined);
  await server.close();
  expect({ first: commandOf(pid), second: serverPid(dataDir) }).toEqual({ first: '', second: undefined });
});

test('connections that are closing do not keep the server alive', async () => {
  const server = await startIn(dataDir);
  const pool = new pg.Pool({ ...server.config('postgres'), max: 10 });
  // closing clients and their pool may emit an error about the end of the server
  pool.on('connect', (client) => client.on('error', () => {}));
  pool.on('error', () => {});
  await Promise.all(Array.from({ length: 10 }, () => pool.query('SELECT pg_sleep(0.05)')));
  await pool.end();
  await server.close();
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a user who comes while the last one leaves gets a server', async () => {
  let server = await startIn(dataDir);
  for (let round = 0; round < 2; round++) {
    const leaving = server.close();
    server = await startIn(dataDir);
    await leaving;
    expect(await query(server, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  }
  await server.close();
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a killed server restarts with all committed data', async () => {
  const server = await startIn(dataDir);
  await query(server, 'CREATE TABLE kept AS SELECT 1 AS one');
  const killed = await killServer();
  const rows = await waitFor('an answer', () => query(server, 'SELECT one FROM kept').catch(() => undefined));
  expect(rows).toEqual([{ one: 1 }]);
  expect(serverPid(dataDir)).not.toBe(killed);
  await server.close();
  expect(serverPid(dataDir)).toBeUndefined();
});

test('a server that is killed while its only user leaves is not started again', async () => {
  for (let round = 0; round < 2; round++) {
    const server = await startIn(dataDir);
    await killServer();
    await server.close();
    expect(serverPid(dataDir)).toBeUndefined();
  }
});

/** Leaves the lock files of a killed server, with this process id. */
async function leaveLockFile(pid: number): Promise<void> {
  const file = path.join(dataDir, 'postgres/postmaster.pid');
  const server = await startIn(dataDir);
  await server.close();
  const lines = [pid, cluster, 1_700_000_000, 5432, cluster, '', '0 0', 'ready'];
  const { uid, gid } = statSync(path.dirname(file));
  for (const lock of [file, path.join(dataDir, 'postgres/.s.PGSQL.5432.lock')]) {
    writeFileSync(lock, `${lines.join('\n')}\n`, { mode: 0o600 });
    chownSync(lock, uid, gid);
  }
}

const runs = async (dataDir: string) => {
  const server = await startIn(dataDir);
  const rows = await query(server, 'SELECT 1 AS one');
  await server.close();
  return rows;
};

/** Starts a process that ends and stays a zombie until `bury` is called. */
async function startUndead(): Promise<{ pid: number; bury: () => void }> {
  // PostgreSQL assumes that any process of its own user may be a server
  const user = findServerUser(dataDir);
  // the child ends after `exec` has replaced the shell, because a shell would reap the child
  const parent = spawn('sh', ['-c', 'sleep 0.3 & echo $!; exec sleep 600'], {
    ...user,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [said] = await once(parent.stdout, 'data');
  const pid = Number(String(said));
  await waitFor('it to end', async () => commandOf(pid) === '');
  return { pid, bury: () => void parent.kill() };
}

test('lock files of a process that is gone, of another program, or of a zombie are ignored', async () => {
  const gone = startProcess('true', []);
  await gone.ended;
  const { pid, bury } = await startUndead();
  expect(isRunning(pid)).toBe(true);
  for (const each of [gone.pid, process.pid, pid]) {
    await leaveLockFile(each);
    expect([each, await runs(dataDir)]).toEqual([each, [{ one: 1 }]]);
  }
  bury();
});

test('concurrent processes that find the lock files of a dead server share one server', async () => {
  const env = { DATA_DIR: dataDir, LOG_LEVEL: 'warn' };
  await makeDatabase();
  const { pid, bury } = await startUndead();
  await leaveLockFile(pid);
  expect(isRunning(pid)).toBe(true);
  const results = await Promise.all(Array.from({ length: 2 }, () => runProgram(['migrate', '--json'], { env })));
  expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(2).fill({ code: 0, stderr: '' }));
  expect(serverPid(dataDir)).toBeUndefined();
  bury();
});

test('a lock file whose process id is now a server of another directory is ignored', async () => {
  const otherDir = makeDataDir();
  const other = await startIn(otherDir);
  const pid = serverPid(otherDir) ?? 0;
  await leaveLockFile(pid);
  expect(await runs(dataDir)).toEqual([{ one: 1 }]);
  expect(isRunning(pid)).toBe(true);
  await other.close();
});

/** Creates a directory whose path has at least this length. */
function makeDeep(length: number): string {
  let deep = makeTempDir();
  while (deep.length < length) deep = path.join(deep, 'x'.repeat(100));
  mkdirSync(deep, { recursive: true });
  return deep;
}

test('a cluster is created in a directory whose path is too long for PostgreSQL, and an incomplete one is removed', async () => {
  const deep = makeDeep(1500);
  mkdirSync(path.join(deep, 'postgres.init-abcdef/base'), { recursive: true });
  expect(await runs(deep)).toEqual([{ one: 1 }]);
  expect(readdirSync(deep)).toEqual(['postgres']);
});

test.each([
  ['whose path is too long for a socket', makeDeep(200)],
  ['with quotes, spaces and letters of other scripts in its name', path.join(makeTempDir(), `it's "mine" = данные`)],
])('a cluster that is moved to a directory %s works', async (_what, place) => {
  mkdirSync(place, { recursive: true });
  renameSync(cluster, path.join(place, 'postgres'));
  try {
    const server = await startIn(place);
    expect(await query(server, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    // other processes find the socket too
    expect(await askAs({}, String(server.config('postgres').host))).toBe('let in\n');
    await server.close();
  } finally {
    renameSync(path.join(place, 'postgres'), cluster);
  }
});

test.runIf(isRoot)('root may keep its data in a directory that no other user can search', async () => {
  chmodSync(dataDir, 0o700);
  const server = await startIn(dataDir);
  await query(server, 'CREATE TABLE hidden AS SELECT 1 AS one');
  await killServer();
  const rows = await waitFor('an answer', () => query(server, 'SELECT one FROM hidden').catch(() => undefined));
  await server.close();
  expect(serverPid(dataDir)).toBeUndefined();
  chmodSync(dataDir, 0o755);
  expect(rows).toEqual([{ one: 1 }]);
});

test.runIf(isRoot)('the data of another user are refused in one line', async () => {
  await runs(dataDir);
  const result = await runProgram(['quota', 'list'], { env: { DATA_DIR: dataDir }, uid: NOBODY, gid: NOBODY });
  expect(result).toMatchObject({ code: 1, stdout: '' });
  expect(result.stderr).toMatch(/^tapegate: \S+ belongs to another user \(uid \d+\): run Tapegate as that user\n$/);
});

/** Copies the empty cluster, for a test that damages the copy. */
function makeCopy(): { DATA_DIR: string; cluster: string } {
  const DATA_DIR = makeDataDir();
  copyDatabase({ env: { DATA_DIR } });
  return { DATA_DIR, cluster: path.join(DATA_DIR, 'postgres') };
}

const addSetting = (cluster: string, line: string) =>
  appendFileSync(path.join(cluster, 'postgresql.conf'), `${line}\n`);

test.each<[string, (cluster: string) => void, number | null, string]>([
  [
    'a directory that was copied in part',
    (cluster) => {
      for (const name of readdirSync(cluster))
        if (name !== 'PG_VERSION') rmSync(path.join(cluster, name), { recursive: true });
    },
    2,
    'postgres: could not access the server configuration file "CLUSTER/postgresql.conf": No such file or directory',
  ],
  [
    'a wrong setting',
    (cluster) => addSetting(cluster, 'nonsense = 1'),
    1,
    'FATAL: configuration file "CLUSTER/postgresql.conf" contains errors',
  ],
  [
    'a directory that others may search',
    (cluster) => chmodSync(cluster, 0o755),
    1,
    'FATAL: data directory "CLUSTER" has invalid permissions',
  ],
  [
    'a socket that cannot be bound',
    (cluster) => mkdirSync(path.join(cluster, '.s.PGSQL.5432')),
    1,
    'FATAL: could not create any Unix-domain sockets',
  ],
  [
    'a missing checkpoint',
    (cluster) => {
      for (const name of readdirSync(path.join(cluster, 'pg_wal')))
        if (name.length === 24) rmSync(path.join(cluster, 'pg_wal', name));
    },
    1,
    'PANIC: could not locate a valid checkpoint record at',
  ],
  [
    'a log that the server may not write',
    (cluster) => {
      rmSync(path.join(cluster, 'server.log'), { force: true });
      writeFileSync(path.join(cluster, 'server.log'), '', { mode: 0o400 });
    },
    null, // the exit code of the shell
    'server.log: Permission denied',
  ],
])(
  'a server that ends at its start is reported at once, with its exit code, reason and log: %s',
  async (_what, damage, code, reason) => {
    const { DATA_DIR, cluster } = makeCopy();
    damage(cluster);
    // the second start waits for the server of the first start
    const results = await Promise.allSettled([startIn(DATA_DIR), startIn(DATA_DIR)]);
    for (const result of results) {
      const message = result.status === 'rejected' ? String(result.reason.message) : 'started';
      expect(message).toMatch(new RegExp(`^PostgreSQL exited with code ${code ?? '[12]'} during its start: `));
      expect(message).toContain(reason.replace('CLUSTER', cluster));
      expect(message.endsWith(`; see ${cluster}/server.log`)).toBe(true);
    }
  },
  30_000,
);

test('a command reports a server that ends at its start in one line', async () => {
  const { DATA_DIR, cluster } = makeCopy();
  addSetting(cluster, 'nonsense = 1');
  for (const args of [['start'], ['backup', path.join(makeTempDir(), 'backup')]]) {
    const result = await runCli(args, { env: { DATA_DIR, DEMO: 'off', ENGINE: 'off', PORT: '0' } });
    expect(result).toMatchObject({ code: 1, stdout: '' });
    expect(result.stderr).toMatch(/^tapegate: PostgreSQL exited with code 1 during its start: [^\n]*server\.log\n$/);
  }
}, 30_000);

test('a server that is alive keeps its time to start, and is reported with the path of its log after it', async () => {
  const { DATA_DIR, cluster } = makeCopy();
  addSetting(cluster, 'hot_standby = off');
  writeFileSync(path.join(cluster, 'standby.signal'), ''); // the server never leaves recovery
  const user = findServerUser(cluster);
  if (user.uid !== undefined) chownSync(path.join(cluster, 'standby.signal'), user.uid, user.uid);
  await expect(startIn(DATA_DIR, 500)).rejects.toThrow(
    `PostgreSQL did not start within 0.5 seconds; see ${cluster}/server.log`,
  );
  await waitFor('the server, which goes on', async () => serverPid(DATA_DIR));
});

test('a server that cannot restart is reported once, and starts when the cause is gone', async () => {
  const { DATA_DIR, cluster } = makeCopy();
  const settings = path.join(cluster, 'postgresql.conf');
  const before = readFileSync(settings);
  const server = await startIn(DATA_DIR);
  const report = vi.spyOn(console, 'error').mockImplementation(() => {});
  writeFileSync(settings, 'nonsense = 1\n');
  process.kill(serverPid(DATA_DIR) ?? 0, 'SIGKILL');
  const problem = 'FATAL: configuration file';
  await waitFor('two attempts', async () => readServerLog(DATA_DIR).split('contains errors').length > 2);
  writeFileSync(settings, before);
  const rows = await waitFor('an answer', () => query(server, 'SELECT 1 AS one').catch(() => undefined));
  const reports = report.mock.calls.flat().map(String);
  report.mockRestore();
  await server.close();
  expect(rows).toEqual([{ one: 1 }]);
  expect(reports).toEqual([expect.stringContaining(problem)]);
});

test('files that obstruct a database are left alone, and reported with a remedy', async () => {
  const foreign = makeTempDir();
  mkdirSync(path.join(foreign, 'postgres'));
  writeFileSync(path.join(foreign, 'postgres/notes.txt'), 'mine');
  const file = path.join(makeTempDir(), 'ann.token');
  writeFileSync(file, 'secret');
  const flat = makeTempDir();
  writeFileSync(path.join(flat, 'postgres'), 'mine');
  const remedy = 'move the existing file or directory, or set DATA_DIR to another directory';
  const wrong: [string, string][] = [
    [foreign, `${path.join(foreign, 'postgres')} already exists, and is not a database: ${remedy}`],
    [file, `${file} is not a directory: ${remedy}`],
    [
      path.join(file, 'below'),
      `cannot use directory ${path.join(file, 'below')} (DATA_DIR): a component of the path is a file, not a directory`,
    ],
    [flat, `${path.join(flat, 'postgres')} is not a directory: ${remedy}`],
  ];
  for (const [DATA_DIR, message] of wrong) {
    const env = { DATA_DIR, DEMO: 'off', ENGINE: 'off', PORT: '0' };
    for (const command of [['start'], ['quota', 'list']]) {
      expect(await runCli(command, { env })).toEqual({ code: 1, stdout: '', stderr: `tapegate: ${message}\n` });
    }
  }
  expect(readdirSync(foreign)).toEqual(['postgres']);
  expect(readdirSync(path.join(foreign, 'postgres'))).toEqual(['notes.txt']);
});

test('a warning reports a DATA_DIR in which others may write', async () => {
  const database = await createDatabase();
  const DATA_DIR = makeTempDir();
  const warned = async (mode: number) => {
    chmodSync(DATA_DIR, mode);
    const server = await serveHere({ DATABASE_URL: database.url, DATA_DIR });
    return (await server.stop()).stderr.replace(DATA_DIR, 'DATA_DIR');
  };
  const says = 'another user can replace the database and the tapes in DATA_DIR';
  expect(await warned(0o755)).toBe('');
  expect(await warned(0o777)).toContain(`${says}: DATA_DIR: every user may write to the directory (mode 0777)`);
  await database.drop();
});

/** Logs in to the server as its owner, from a process of `user`. @returns `let in`, `asked`, or the error */
async function askAs(user: { uid?: number; gid?: number }, directory: string): Promise<string> {
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
  const { stdout } = await startProcess(process.execPath, ['-e', script, directory], { ...user, cwd: '/' }).ended;
  return stdout;
}

test.runIf(isRoot)('as root: no other user is let in, not even the one that the server runs as', async () => {
  const server = await startIn(dataDir);
  const user = findServerUser(cluster);
  expect(user.uid).toBeGreaterThan(0);
  expect(await askAs(user, cluster)).toContain('Peer authentication failed');
  expect(await askAs({ uid: NOBODY, gid: NOBODY }, cluster)).not.toContain('let in');
  expect(await askAs({}, cluster)).toBe('let in\n');
  await server.close();
});

test('a user who is missing in the map is added, also while the server runs', async () => {
  const map = path.join(cluster, 'pg_ident.conf');
  const before = readFileSync(map, 'utf8');
  const server = await startIn(dataDir);
  writeFileSync(map, '# of an older host\n');
  await query(server, 'SELECT pg_reload_conf()');
  await waitFor('the map to be empty', async () => (await askAs({}, cluster)) !== 'let in\n');
  const next = await startIn(dataDir);
  expect(readFileSync(map, 'utf8').split('\n').sort()).toEqual(
    ['', '# of an older host', ...before.split('\n').filter((line) => line.startsWith('tapegate'))].sort(),
  );
  await next.close();
  await server.close();
});

test('rules of the operator are left alone', async () => {
  const rules = path.join(cluster, 'pg_hba.conf');
  const before = readFileSync(rules, 'utf8');
  const own = `${before}local all monitor scram-sha-256\n`;
  writeFileSync(rules, own);
  await (await startIn(dataDir)).close();
  const after = readFileSync(rules, 'utf8');
  writeFileSync(rules, before);
  expect(after).toBe(own);
});

test.runIf(isRoot)(
  'as root: a link in the place of the server log is refused, and its target is not changed',
  async () => {
    const victim = path.join(dataDir, 'of-root');
    writeFileSync(victim, 'secret', { mode: 0o600 });
    const log = path.join(cluster, 'server.log');
    rmSync(log);
    symlinkSync(victim, log);
    await expect(startIn(dataDir, 2000)).rejects.toThrow(/server\.log is not a regular file/);
    rmSync(log);
    expect([readFileSync(victim, 'utf8'), statSync(victim).uid]).toEqual(['secret', 0]);
  },
);

test.each(['postmaster.pid', 'server.log', 'pg_ident.conf'])(
  'a pipe in the place of %s is refused and blocks nothing',
  async (name) => {
    const place = path.join(cluster, name);
    const kept = path.join(dataDir, 'kept');
    if (existsSync(place)) renameSync(place, kept);
    execFileSync('mkfifo', [place]);
    // in another process, because the pipe would block this process
    const starting = startProcess(process.execPath, [await bundle('start-embedded'), cluster]);
    const { code, stderr } = await starting.ended;
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(`${name} (must be|is not) a regular file`),
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
    await expect(startIn(dataDir, 2000)).rejects.toThrow('other users may write');
    expect(serverPid(dataDir)).toBeUndefined();
  },
);

/** Backups of the embedded database: made during use, killed in the middle, damaged, and restored. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Embedded, startEmbedded } from '../../src/db/embedded/embedded.js';
import { createDatabase, withClient } from '../support/database.js';
import { checksumOf } from '../support/factories.js';
import { type Gateway, send } from '../support/http.js';
import { makeNextProgram } from '../support/next-program.js';
import { cleanUp, type LocalServer, makeDataDir, runCli, serveHere, serverPid, startCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { readFiles, waitForEnd } from '../support/server.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { workHere } from '../support/work.js';

const dataDir = makeDataDir();
const backups = makeTempDir('backups');
const env = { DATA_DIR: dataDir, LOG_LEVEL: 'fatal' };
let server: LocalServer;
let engine: Awaited<ReturnType<typeof workHere>>;

/** Directories of two files each. Every file is on its own volume. */
const directories = ['/before', '/after', '/half'];
const files = directories.flatMap((directory) => [`${directory}/1`, `${directory}/2`]);
const volumeOf = (n: number) => `TG000${n + 1}`;

beforeAll(async () => {
  await startSite();
  for (const user of ['alice', 'bob'])
    expect(await run('quota', 'set', user, '--size', '1T')).toMatchObject({ code: 0 });
  const rows = files.map((file, n) => {
    mkdirSync(path.join(dataDir, 'library', volumeOf(n)), { recursive: true });
    writeFileSync(path.join(dataDir, 'library', volumeOf(n), '00000001'), file);
    const checksum = checksumOf(file);
    return JSON.stringify({ path: file, size: file.length, stage: 'T', volume: volumeOf(n), position: 1, checksum });
  });
  expect(await runCli(['import', '-'], { env, stdin: rows.join('\n') })).toMatchObject({ code: 0 });
  expect(await run('backup', backup('first'))).toMatchObject({ code: 0, stderr: '' });
  execFileSync('cp', ['-a', backup('first'), copy]);
});
afterAll(async () => {
  await stopSite();
  await cleanUp();
  rmSync(backups, { recursive: true });
});

async function startSite(): Promise<void> {
  server = await serveHere({ ...env, ENGINE: 'off', DEMO: 'off' }, { command: 'start' });
  engine = await workHere(env);
}

async function stopSite(): Promise<void> {
  await engine.stop();
  await server.stop();
}

const backup = (name: string) => path.join(backups, name);
/** A copy of the first backup, for tests that damage a backup. */
const copy = backup('copy');
const run = (...args: string[]) => runCli(args, { env });
const loseDatabase = () => rmSync(path.join(dataDir, 'postgres'), { recursive: true });
const attach = (to = dataDir) => startEmbedded({ dataDir: path.join(to, 'postgres') });
const knows = async (gateway: Gateway, id: number) =>
  (await send(gateway, `/tape_control/api/v1/requests/${id}`)).status === 200;

const askServer = (embedded: Embedded, text: string, database = 'tapegate') =>
  withClient(embedded.config(database), async (client) => (await client.query(text)).rows);

async function askOnce(text: string) {
  const embedded = await attach();
  return await askServer(embedded, text).finally(() => embedded.close());
}

async function readNewestEvent(): Promise<bigint> {
  const [row] = await askOnce('SELECT max(last_number)::text AS newest FROM event_batch');
  return BigInt(row.newest);
}

/** After this many checkpoints the server would have recycled the first WAL files of the backup. */
const TURNS = 8;

/** Makes the server switch to new WAL files during a backup. @returns the number of switches */
async function turnLog(embedded: Embedded, isOver: () => boolean): Promise<number> {
  const hasBegun = async () => (await askServer(embedded, 'SELECT FROM pg_replication_slots', 'postgres')).length > 0;
  await waitFor('the backup to begin', async () => isOver() || (await hasBegun()));
  let turns = 0;
  while (!isOver() && turns < TURNS) {
    await askServer(embedded, `SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))`, 'postgres');
    await askServer(embedded, 'SELECT pg_switch_wal()', 'postgres');
    await askServer(embedded, 'CHECKPOINT', 'postgres');
    turns++;
  }
  return turns;
}

test('a backup taken under writes is restored whole, and no id of a lost object is used again', async () => {
  const before = await makeRequest(server, { quota: 'alice', patterns: '/before/' });
  await waitForEnd(server, before);
  // during the backup, one file of this request is restored and the other file is not
  const volume = volumeOf(files.indexOf('/half/2'));
  expect(await run('suspend', 'volume', volume)).toMatchObject({ code: 0 });
  const half = await makeRequest(server, { quota: 'alice', patterns: '/half/' });
  await waitFor('the first file', async () => (await readFiles(server, '/half/1'))[0]?.stage === 'RESTORED');
  const embedded = await attach();
  let isOver = false;
  const made = run('backup', backup('one'), '--json').finally(() => {
    isOver = true;
  });
  const meanwhile: number[] = [];
  const writes = (async () => {
    while (!isOver && meanwhile.length < 100)
      meanwhile.push(await makeRequest(server, { quota: 'bob', files: [`/unknown/${meanwhile.length}`] }));
  })();
  const turns = await turnLog(embedded, () => isOver);
  const { code, stdout, stderr } = await made;
  await writes;
  await embedded.close();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect([turns > 1, meanwhile.length > 1]).toEqual([true, true]);
  const report = { backup: backup('one'), files: expect.any(Number), bytes: expect.any(Number) };
  expect(JSON.parse(stdout)).toMatchObject(report);
  expect(statSync(backup('one')).mode & 0o777).toBe(0o700);

  const after = await makeRequest(server, { quota: 'alice', patterns: '/after/' });
  await waitForEnd(server, after);
  await stopSite();
  const lastEvent = await readNewestEvent();
  loseDatabase();
  const put = await run('restore', backup('one'), '--json');
  expect({ code: put.code, stderr: put.stderr }).toEqual({ code: 0, stderr: '' });
  const { nextRequestId } = JSON.parse(put.stdout);
  expect(readdirSync(dataDir).filter((name) => name.startsWith('restore-'))).toEqual([]);
  expect((await run('doctor', '--adopt')).stderr).toContain(
    'this Tapegate is fenced: the database was restored from a backup',
  );
  expect(await run('takeover', '--yes')).toMatchObject({ code: 0 });
  const doctor = await run('doctor', '--adopt');
  // the doctor removes the two copies of `after`
  expect(doctor.stdout).toMatch(/ \(removed\)\n.* \(removed\)\n.*: 2 findings \(2 \S+\), 2 repaired\n$/);
  const countRestored = 'SELECT coalesce(sum(files_restored), 0)::int AS files FROM site_history';
  const [counted] = await askOnce(countRestored);

  await startSite();
  const newest = meanwhile.at(-1) ?? 0;
  expect([await knows(server, before), await knows(server, after)]).toEqual([true, false]);
  const kept = await Promise.all(meanwhile.map((id) => knows(server, id)));
  // the restored database has all requests up to one moment, and no later request
  expect(kept.lastIndexOf(true)).toBe(kept.filter(Boolean).length - 1);
  const id = await makeRequest(server, { quota: 'alice', patterns: '/after/' });
  expect([id >= nextRequestId, id > Math.max(newest, after) + 100_000]).toEqual([true, true]);
  expect(await run('resume', 'volume', volume)).toMatchObject({ code: 0 });
  for (const each of [id, half]) await waitForEnd(server, each);
  expect((await run('audit', '--json')).stdout).toContain('"operation":"restore"');
  expect((await readNewestEvent()) > lastEvent + 1_000_000n).toBe(true);
  await engine.stop();
  engine = await workHere(env); // a new engine updates the history at once
  await waitFor('the curves to go on', async () => {
    const [row] = await askOnce(countRestored);
    return row.files >= counted.files + 3;
  });
  expect(await run('doctor')).toMatchObject({ code: 0, stdout: expect.stringContaining('no findings') });
});

/** Preloaded script that kills the program before or after a call of `node:fs/promises`. */
const killer = backup('killer.cjs');
writeFileSync(
  killer,
  `const [name, when, end] = process.env.KILL_AT.split(' ');
   const fs = require('node:fs/promises');
   const call = fs[name];
   fs[name] = async (...given) => {
     const isMeant = given.some((each) => String(each).endsWith(end));
     if (isMeant && when === 'before') process.kill(process.pid, 'SIGKILL');
     const result = await call(...given);
     if (isMeant) process.kill(process.pid, 'SIGKILL');
     return result;
   };
   require('node:module').syncBuiltinESMExports();`,
);

async function runUntilKilled(args: string[], killAt: string): Promise<void> {
  const child = startCli(args, { env: { ...env, KILL_AT: killAt, NODE_OPTIONS: `--require ${killer}` } });
  await child.ended;
  expect(child.child.signalCode).toBe('SIGKILL');
}

test('a backup that is killed is complete or not there', async () => {
  for (const [killAt, isThere] of [
    ['mkdtemp after killed.partial-', false],
    ['rename before killed', false],
    ['rename after killed', true],
  ] as const) {
    await runUntilKilled(['backup', backup('killed')], killAt);
    expect([killAt, existsSync(path.join(backup('killed'), 'manifest.json'))]).toEqual([killAt, isThere]);
    expect([killAt, existsSync(backup('killed'))]).toEqual([killAt, isThere]);
  }
});

test('a backup that loses its server leaves no backup, and the next one is complete', async () => {
  const cut = startCli(['backup', backup('cut')], { env });
  await waitFor('the backup to have begun', async () =>
    readdirSync(backups).some((name) => name.startsWith('cut.partial-')),
  );
  process.kill(serverPid(dataDir) ?? 0, 'SIGKILL');
  const { code, stderr } = await cut.ended;
  expect([code, stderr !== '', existsSync(backup('cut'))]).toEqual([1, true, false]);
  await waitFor('the database to be back', async () => serverPid(dataDir) !== undefined);
  expect(await run('backup', backup('next'))).toMatchObject({ code: 0 });
  await waitFor('no slot to be left', async () => (await askOnce('SELECT FROM pg_replication_slots')).length === 0);
});

test('a restore that is killed leaves no database or all of it, and the next one restores all of it', async () => {
  await stopSite();
  expect((await run('restore', backup('first'))).stderr).toContain(
    `there is already a database in ${dataDir}/postgres`,
  );
  const place = path.join(dataDir, 'postgres');
  renameSync(place, `${place}-away`);
  const expectWhole = async () => {
    expect(await askOnce('SELECT count(*)::int AS files FROM tape_file')).toEqual([{ files: files.length }]);
    loseDatabase();
  };
  for (const killAt of ['mkdtemp after restore-', 'rename before /postgres']) {
    await runUntilKilled(['restore', backup('first')], killAt);
    expect([killAt, (await run('doctor')).stderr]).toEqual([killAt, expect.stringContaining('there is no database')]);
  }
  await runUntilKilled(['restore', backup('first')], 'rename after /postgres');
  await expectWhole();
  const next = await run('restore', backup('first'));
  expect({ code: next.code, stderr: next.stderr }).toEqual({ code: 0, stderr: '' });
  await expectWhole();
  for (const name of readdirSync(dataDir))
    if (name.startsWith('restore-')) rmSync(path.join(dataDir, name), { recursive: true });
  renameSync(`${place}-away`, place);
  await startSite();
});

const control = 'postgres/global/pg_control';
const damaged = Buffer.alloc(8192, 1);
const edited = (part: object) => (text: string) => JSON.stringify({ ...JSON.parse(text), ...part });

test.each<[string, (text: string, bytes: Buffer) => string | Uint8Array | undefined, RegExp]>([
  [
    control,
    () => damaged,
    /the backup is damaged: the checksum of \S+pg_control is [0-9a-f]{64} instead of [0-9a-f]{64}/,
  ],
  [control, (_, bytes) => bytes.subarray(0, 100), /pg_control is 100 bytes instead of 8192/],
  [control, () => undefined, /the backup is incomplete: \S+pg_control is missing/],
  ['manifest.json', () => undefined, /is not a complete backup: it has no manifest.json/],
  ['manifest.json', (text) => text.slice(0, -20), /cannot read \S+manifest.json: /],
  ['manifest.json', () => '{}', /it contains no list of files/],
  ['manifest.json', edited({ format: 2 }), / has format 2, but this version of Tapegate supports only format 1/],
  ['manifest.json', edited({ platform: 'aix-ppc' }), /was created on aix-ppc, but this host is \w+-\w+/],
  [
    'manifest.json',
    edited({ postgres: '17.1' }),
    /was made with PostgreSQL 17.1, but this Tapegate includes PostgreSQL 18/,
  ],
  ['manifest.json', edited({ startedAt: 'yesterday' }), /its start time or end time is missing or invalid/],
  ['manifest.json', edited({ endedAt: '1 May (noon)' }), /its start time or end time is missing or invalid/],
  [
    'manifest.json',
    edited({ directories: ['../../etc'] }),
    /"..\/..\/etc" must be a relative path without "\." or "\.\."/,
  ],
  [
    'manifest.json',
    edited({ files: [{ path: '/etc/passwd', size: 1, sha256: '' }] }),
    /"\/etc\/passwd" must be a relative path without "\." or "\.\."/,
  ],
])('a restore refuses a backup that was changed: %s, %j, %s', async (name, change, message) => {
  const file = path.join(copy, name);
  const bytes = readFileSync(file);
  const changed = change(bytes.toString(), bytes);
  if (changed === undefined) rmSync(file);
  else writeFileSync(file, changed);
  const to = makeTempDir();
  const { code, stdout, stderr } = await runCli(['restore', copy], { env: { DATA_DIR: to } });
  writeFileSync(file, bytes);
  expect({ code, stdout, stderr }).toEqual({ code: 1, stdout: '', stderr: expect.stringMatching(message) });
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(readdirSync(to)).toEqual([]);
  rmSync(to, { recursive: true });
});

test('a restore runs no program that the settings of the backup name', async () => {
  const ran = backup('ran');
  const manifest = JSON.parse(readFileSync(path.join(copy, 'manifest.json'), 'utf8'));
  const plant = (name: string, text: string) => {
    writeFileSync(path.join(copy, 'postgres', name), text);
    const sha256 = createHash('sha256').update(text).digest('hex');
    const others = manifest.files.filter((file: { path: string }) => file.path !== name);
    manifest.files = [...others, { path: name, size: text.length, sha256 }];
  };
  plant('postgresql.auto.conf', `archive_mode = 'on'\narchive_command = 'touch ${ran}'\n`);
  plant('postgresql.conf', `include 'more.conf'\nsession_preload_libraries = '${ran}.so'\n`);
  plant('more.conf', `restore_command = 'touch ${ran}'\nssl = on\nssl_passphrase_command = 'touch ${ran}'\n`);
  plant('recovery.signal', '');
  writeFileSync(path.join(copy, 'manifest.json'), JSON.stringify(manifest));
  const to = makeTempDir();
  const put = await runCli(['restore', copy], { env: { DATA_DIR: to } });
  expect({ code: put.code, stderr: put.stderr }).toEqual({ code: 0, stderr: '' });
  const restored = await attach(to);
  const set = await askServer(
    restored,
    `SELECT name, setting FROM pg_settings WHERE sourcefile LIKE '%/more.conf'
       OR name IN ('archive_mode', 'archive_command', 'restore_command', 'session_preload_libraries', 'ssl') ORDER BY 1`,
  );
  expect(set.map(({ name, setting }: { name: string; setting: string }) => `${name}=${setting}`)).toEqual([
    'archive_command=(disabled)',
    'archive_mode=off',
    'restore_command=',
    'session_preload_libraries=',
    'ssl=off',
  ]);
  await askServer(restored, 'SELECT pg_switch_wal()', 'postgres');
  await restored.close();
  expect(existsSync(ran)).toBe(false);
  rmSync(to, { recursive: true });
});

const DATABASE_URL = 'postgresql://nobody@127.0.0.1:1/none';

test.each<[string, string[], number, string, Record<string, string>?]>([
  ['a missing parent directory', ['backup', backup('no/such')], 1, 'there is no directory'],
  ['a target that exists', ['backup', copy], 1, `${copy} already exists: name a new directory`],
  [
    'a target deep in the database',
    ['backup', path.join(dataDir, 'postgres/base/one')],
    1,
    'is inside the database directory',
  ],
  ['no database', ['backup', backup('none')], 1, 'there is no database', { DATA_DIR: `${dataDir}-2` }],
  ['no backup', ['restore'], 2, 'give a backup directory, or set DATABASE_URL and give --as-of'],
  ['--to-url without a backup', ['restore', '--to-url', 'postgresql:///x'], 2, '--to-url needs a backup directory'],
  ['--to-url without a URL', ['restore', backup('none'), '--to-url'], 2, 'give --to-url a URL, or set DATABASE_URL'],
  ['--as-of with a backup', ['restore', backup('none'), '--as-of', '2026-01-01T00:00:00Z'], 2, '--as-of'],
  ['a backup of an external database', ['backup', backup('none')], 1, 'pg_basebackup', { DATABASE_URL }],
  ['a restore to an external database', ['restore', backup('none')], 2, 'DATABASE_URL', { DATABASE_URL }],
])('%s is refused', async (_what, args, code, message, more = {}) => {
  const result = await runCli(args, { env: { ...env, ...more } });
  expect(result).toEqual({ code, stdout: '', stderr: expect.stringContaining(message) });
});

function leapOf(name: string, type: string): number {
  if (name === 'request_id_seq') return 1_000_000 + 20 * 86_400;
  return type === 'integer' ? 100_000 + 86_400 : 1e9 + 1e4 * 86_400;
}

test('a database that was restored with other tools continues with ids beyond all that may have been used', async () => {
  const database = await createDatabase();
  const client = new pg.Client(database.connection);
  await client.connect();
  try {
    const given = { DATABASE_URL: database.url, DATA_DIR: dataDir };
    // the schema of the database is older than the program
    const { ended } = startCli(['restore', '--as-of', '2026-11-21T18:00:00Z'], {
      env: given,
      program: makeNextProgram('ALTER TABLE quota ADD COLUMN of_the_next TEXT'),
    });
    expect(await ended).toMatchObject({ code: 0, stderr: '' });
    expect((await client.query('SELECT of_the_next FROM quota')).rows).toEqual([]);
    const settle = async (...args: string[]) => {
      const { code, stdout, stderr } = await runCli(['restore', ...args], { env: given });
      return [code, code === 0 ? stdout : stderr.trim()];
    };
    const empty = await createDatabase({ empty: true });
    const inEmpty = { env: { ...given, DATABASE_URL: empty.url } };
    const none = await runCli(['restore', '--as-of', '2026-11-21T18:00:00Z'], inEmpty).finally(() => empty.drop());
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('there is no Tapegate database') });
    expect(await settle()).toEqual([2, expect.stringContaining('--as-of must be the time of the restored state')]);
    expect(await settle('--as-of', 'lately')).toEqual([
      2,
      expect.stringContaining('--as-of must be the time of the restored state'),
    ]);
    await client.query(`INSERT INTO running_process (id, kind, host, pid, version, started_at, seen_at, lag_seconds)
      SELECT gen_random_uuid(), 'ENGINE', 'far', 7, '1', t, t, 0 FROM timezone('utc', clock_timestamp()) t`);
    const day = new Date(Date.now() - 86_400_000).toISOString();
    expect(await settle('--as-of', day)).toEqual([
      1,
      expect.stringMatching(/is in use by engine 7 of far: .* wait a minute: a restored dump/),
    ]);
    await client.query('DELETE FROM running_process');
    const read = `SELECT sequencename AS name, data_type::text AS type, coalesce(last_value, 0)::int8::text AS last
      FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1`;
    const sequences = async () => (await client.query(read)).rows;
    const before = await sequences();
    const [code, said] = await settle('--as-of', day, '--json');
    expect(code).toBe(0);
    const after = await sequences();
    for (const [n, { name, type, last }] of after.entries()) {
      const leap = Number(BigInt(last) - BigInt(before[n].last));
      // the audit may have used some more ids
      expect([name, leap >= leapOf(name, type)]).toEqual([name, true]);
    }
    const request = after.find(({ name }) => name === 'request_id_seq');
    expect(JSON.parse(String(said)).nextRequestId).toBe(Number(request.last) + 1);
    const next = async (at: number, asOf: string) => {
      await client.query(`SELECT setval('request_id_seq', ${at})`);
      const [, text] = await settle('--as-of', asOf, '--json');
      return JSON.parse(String(text)).nextRequestId;
    };
    const short = await next(2_147_483_647 - 2_000_000, day);
    expect([short > 2_147_483_647 - 2_000_000 + 20 * 86_400, short < 2_147_483_647]).toEqual([true, true]);
    expect(await next(2_147_483_000, day)).toBeNull();
    expect(await next(2_147_483_647, day)).toBeNull();
    const [, last] = await settle('--as-of', '2026-11-21T20:00:00.25+02:00');
    const asOf = '2026-11-21T18:00:00.250Z';
    expect(last).toContain(`the database in DATABASE_URL is restored to the state of ${asOf}\n`);
    expect(last).toContain('no ids are left for new requests');
    const { rows } = await client.query('SELECT fenced FROM site_identity');
    expect(rows).toEqual([{ fenced: `the database was restored from a backup of ${asOf}` }]);
  } finally {
    await client.end();
    await database.drop();
  }
});

test('a takeover of a restored dump requires a restore that skips ids, or --reuse-ids', async () => {
  const database = await createDatabase();
  const given = { DATABASE_URL: database.url, DATA_DIR: makeTempDir() };
  const command = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli(args, { env: given });
    return [code, stdout + stderr];
  };
  const recreate = () =>
    withClient(database.connection, async (client) => {
      // as pg_restore --clean does
      await client.query(`CREATE TABLE copied (LIKE site_identity INCLUDING ALL);
        INSERT INTO copied SELECT * FROM site_identity; DROP TABLE site_identity; ALTER TABLE copied RENAME TO site_identity`);
    });
  const move = (change: object) =>
    withClient(database.connection, async (client) => {
      await client.query('UPDATE site_identity SET location = location || $1::jsonb', [JSON.stringify(change)]);
    });
  const taken = [0, expect.stringMatching(/taken over: only the database/)];
  try {
    expect(await command('takeover', '--yes')).toEqual([0, expect.stringContaining('there is nothing to take over')]);
    await recreate();
    for (const args of [[], ['--yes']]) {
      expect(await command('takeover', ...args)).toEqual([
        1,
        expect.stringMatching(
          /restored from a dump: first run "tapegate restore --as-of .*": otherwise new requests get the ids of lost/,
        ),
      ]);
    }
    expect(await command('restore', '--as-of', '2026-11-21T18:00:00Z')).toEqual([0, expect.any(String)]);
    expect(await command('takeover', '--yes')).toEqual(taken);
    await recreate();
    expect(await command('takeover', '--yes', '--reuse-ids')).toEqual(taken);
    await move({ system: '1' }); // as pg_upgrade does
    const [code, printed] = await command('takeover', '--yes');
    expect([code, printed]).toEqual(taken);
    expect(printed).toContain('if the database was restored from a dump, first run "tapegate restore --as-of');
  } finally {
    await database.drop();
  }
});

test('a backup is restored to an empty database of a server, with all rows and ids, and to no other', async () => {
  const database = await createDatabase({ empty: true });
  const to = { DATA_DIR: makeDataDir(), DATABASE_URL: database.url };
  const several = database.url.replace('@', '@localhost:9,'); // the first server is down
  const put = await runCli(['restore', backup('first'), '--to-url', several], { env: { DATA_DIR: to.DATA_DIR } });
  expect(put).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/^[^\n]*another server accepts writes now[^\n]*\n$/),
  });
  expect(put.stdout).toContain(`/${database.connection.database} contains the database as of `);
  expect(readdirSync(to.DATA_DIR)).toEqual([]);
  await withClient(database.connection, async (client) => {
    const ask = async (text: string) => (await client.query(text)).rows;
    expect(await ask('SELECT path FROM tape_file ORDER BY path')).toEqual(
      [...files].sort().map((name) => ({ path: name })),
    );
    expect(await ask(`SELECT FROM pg_trigger WHERE tgenabled <> 'O'`)).toEqual([]);
    expect(await ask(`SELECT last_value > 1000000 AS leapt FROM request_id_seq`)).toEqual([{ leapt: true }]);
    expect(await ask('SELECT fenced IS NOT NULL AS fenced FROM site_identity')).toEqual([{ fenced: true }]);
  });
  const quota = await runCli(['quota', 'set', 'carol', '--size', '1T', '--json'], { env: to });
  expect(quota).toMatchObject({ code: 0, stderr: '' });
  expect(
    JSON.parse((await runCli(['quota', 'list', '--json'], { env: to })).stdout.split('\n')[0] ?? ''),
  ).toMatchObject({ user: 'alice' });
  const again = await runCli(['restore', backup('first'), '--to-url', database.url], {
    env: { DATA_DIR: to.DATA_DIR },
  });
  expect(again).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(
      'the target database is not empty: table tape_file contains rows; use an empty database',
    ),
  });
  expect(readdirSync(to.DATA_DIR)).toEqual([]);
  await database.drop();
});

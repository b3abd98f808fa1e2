/** Backups of the embedded database, taken while it is used and killed in the middle, and what comes of those that are put back. */
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { type Embedded, startEmbedded } from '../../src/database/embedded.js';
import { createDatabase } from '../support/database.js';
import { askData } from '../support/graphql.js';
import { type Gateway, send } from '../support/http.js';
import { cleanUp, kill, makeDataDir, runCli, serverPid, startCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

interface Site {
  dataDir: string;
  env: Record<string, string>;
  backup(name: string): string;
}

function makeSite(): Site {
  const dir = makeDataDir();
  const dataDir = path.join(dir, 'data');
  return { dataDir, env: { DATA_DIR: dataDir }, backup: (name) => path.join(dir, name) };
}

const start = ({ env }: Site) => startServer('start', { env });
/** What is left of the site when its database is lost. */
const loseDatabase = ({ dataDir }: Site, as = 'lost') =>
  renameSync(path.join(dataDir, 'postgres'), path.join(dataDir, as));
const askServer = async (server: Embedded, text: string, database = 'tapegate') => {
  const client = new pg.Client(server.config(database));
  await client.connect();
  return await client
    .query(text)
    .then(({ rows }) => rows)
    .finally(() => client.end());
};
const attach = ({ dataDir }: Site) => startEmbedded({ dataDir: path.join(dataDir, 'postgres') });
const knows = async (gateway: Gateway, id: number) =>
  (await send(gateway, `/tape_control/api/v1/requests/${id}`)).status === 200;
const newestEvent = async (site: Site): Promise<bigint> => {
  const server = await attach(site);
  const [row] = await askServer(server, 'SELECT max(last_number)::text AS newest FROM event_batch');
  await server.close();
  return BigInt(row.newest);
};

/** After so many checkpoints the server would have used the first files of the backup's log again. */
const TURNS = 12;

/** Has the server go on to other files of its log during a backup. */
async function turnLog(server: Embedded, isOver: () => boolean): Promise<number> {
  const hasBegun = async () => (await askServer(server, 'SELECT FROM pg_replication_slots', 'postgres')).length > 0;
  await waitFor('the backup to begin', async () => isOver() || (await hasBegun()));
  let turns = 0;
  while (!isOver() && turns < TURNS) {
    await askServer(server, `SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))`, 'postgres');
    await askServer(server, 'SELECT pg_switch_wal()', 'postgres');
    await askServer(server, 'CHECKPOINT', 'postgres');
    turns++;
  }
  return turns;
}

test('a backup of a database that is written comes back whole, and no id of what was lost is given again', async () => {
  const site = makeSite();
  const running = await start(site);
  const before = await makeRequest(running, { quota: 'alice', patterns: DEMO });
  await waitForEnd(running, before);
  const server = await attach(site);
  let isOver = false;
  const backup = runCli(['backup', site.backup('one'), '--json'], { env: site.env }).finally(() => {
    isOver = true;
  });
  const meanwhile: number[] = [];
  const writes = (async () => {
    while (!isOver)
      meanwhile.push(await makeRequest(running, { quota: 'bob', files: [`/unknown/${meanwhile.length}`] }));
  })();
  const turns = await turnLog(server, () => isOver);
  const { code, stdout, stderr } = await backup;
  await writes;
  await server.close();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect([turns > 1, meanwhile.length > 1]).toEqual([true, true]);
  const made = JSON.parse(stdout);
  expect(made).toMatchObject({ backup: site.backup('one'), files: expect.any(Number), bytes: expect.any(Number) });
  expect(statSync(site.backup('one')).mode & 0o777).toBe(0o700);

  const after = await makeRequest(running, { quota: 'alice', patterns: '/demo/ocean/2025' });
  await waitForEnd(running, after);
  await stop(running);
  const lastEvent = await newestEvent(site);
  loseDatabase(site);
  const put = await runCli(['restore', site.backup('one'), '--json'], { env: site.env });
  expect({ code: put.code, stderr: put.stderr }).toEqual({ code: 0, stderr: '' });
  const { nextRequestId } = JSON.parse(put.stdout);
  expect(readdirSync(site.dataDir).filter((name) => name.startsWith('restore-'))).toEqual([]);
  const doctor = await runCli(['doctor', '--adopt'], { env: site.env });
  expect(doctor.stdout).toMatch(/: 8 faults, 8 repaired\n$/); // the copies that came since leave the disk

  const again = await start(site);
  const newest = meanwhile.at(-1) ?? 0;
  expect([await knows(again, before), await knows(again, after)]).toEqual([true, false]);
  const kept = await Promise.all(meanwhile.map((id) => knows(again, id)));
  expect(kept.lastIndexOf(true)).toBe(kept.filter(Boolean).length - 1); // up to some moment all, and then none
  const id = await makeRequest(again, { quota: 'alice', patterns: '/demo/ocean/2025' });
  expect([id >= nextRequestId, id > Math.max(newest, after) + 100_000]).toEqual([true, true]);
  await waitForEnd(again, id);
  const audit = await runCli(['audit', '--json'], { env: { ...site.env, TAPEGATE_URL: again.url } });
  expect(audit.stdout).toContain('"operation":"putBack"');
  await stop(again);
  expect((await newestEvent(site)) > lastEvent + 1_000_000n).toBe(true);
  const clean = await runCli(['doctor'], { env: site.env });
  expect({ code: clean.code, stdout: clean.stdout }).toEqual({
    code: 0,
    stdout: expect.stringContaining('nothing is wrong'),
  });
});

test('what was being restored when the backup was made is restored after it is put back, and curves go on', async () => {
  const site = makeSite();
  const running = await start(site);
  const { stdout: held } = await runCli(['hold', 'volume', 'TG0002'], {
    env: { ...site.env, TAPEGATE_URL: running.url },
  });
  expect(held).toContain('TG0002');
  const id = await makeRequest(running, { quota: 'alice', patterns: '/demo' });
  await waitFor('all but what is held to be restored', async () => {
    const { request } = await askData<{ request: { filesOnDisk: number } }>(
      running,
      `{ request(id: ${id}) { filesOnDisk } }`,
    );
    return request.filesOnDisk >= 8;
  });
  await runCli(['backup', site.backup('one')], { env: site.env });
  await kill(running);
  const pid = serverPid(site.dataDir);
  if (pid !== undefined) process.kill(pid, 'SIGKILL');
  await waitFor('the database to be gone', async () => serverPid(site.dataDir) === undefined);
  loseDatabase(site);
  rmSync(path.join(site.dataDir, 'restore/demo'), { recursive: true, force: true }); // and its disk with it
  expect((await runCli(['restore', site.backup('one')], { env: site.env })).code).toBe(0);
  await runCli(['doctor', '--adopt'], { env: site.env });
  const again = await start(site);
  await runCli(['resume', 'volume', 'TG0002'], { env: { ...site.env, TAPEGATE_URL: again.url } });
  await waitForEnd(again, id);
  const server = await attach(site);
  await waitFor('what was restored to be counted', async () => {
    const [row] = await askServer(server, 'SELECT sum(files_restored)::int AS files FROM site_history');
    return row.files >= 24;
  });
  await server.close();
  await stop(again);
  expect((await runCli(['doctor'], { env: site.env })).stdout).toContain('nothing is wrong');
});

test('a backup that is killed anywhere leaves none, and the next one is whole', async () => {
  const site = makeSite();
  const running = await start(site);
  const first = startCli(['backup', site.backup('whole')], { env: site.env });
  const begun = performance.now();
  await first.ended;
  const whole = performance.now() - begun;
  for (let n = 1; n <= 4; n++) {
    const child = startCli(['backup', site.backup(`killed-${n}`)], { env: site.env });
    await Promise.race([child.ended, new Promise((resolve) => setTimeout(resolve, (whole * n) / 5))]);
    await kill(child);
    const folder = site.backup(`killed-${n}`);
    if (existsSync(folder)) expect(existsSync(path.join(folder, 'manifest.json'))).toBe(true);
  }
  // the server itself dies: the backup says so, and is none
  const child = startCli(['backup', site.backup('cut')], { env: site.env });
  await waitFor('the backup to have begun', async () =>
    readdirSync(path.dirname(site.dataDir)).some((name) => name.startsWith('cut.partial-')),
  );
  const pid = serverPid(site.dataDir) ?? 0;
  process.kill(pid, 'SIGKILL');
  const { code, stderr } = await child.ended;
  expect([code, stderr !== '', existsSync(site.backup('cut'))]).toEqual([1, true, false]);
  await waitFor('the database to be back', async () => serverPid(site.dataDir) !== undefined);
  expect((await runCli(['backup', site.backup('next')], { env: site.env })).code).toBe(0);
  const server = await attach(site);
  const slots = 'SELECT slot_name FROM pg_replication_slots';
  await waitFor(
    'nothing to be kept for those who were killed',
    async () => (await askServer(server, slots)).length === 0,
  );
  await server.close();
  await stop(running);
});

test('a restore that is killed anywhere leaves no database or the whole one', async () => {
  const site = makeSite();
  await stop(await start(site));
  expect((await runCli(['backup', site.backup('one')], { env: site.env })).code).toBe(0);
  loseDatabase(site);
  const place = path.join(site.dataDir, 'postgres');
  const begun = performance.now();
  expect((await runCli(['restore', site.backup('one')], { env: site.env })).code).toBe(0);
  const whole = performance.now() - begun;
  for (let n = 1; n <= 4; n++) {
    rmSync(place, { recursive: true, force: true });
    const child = startCli(['restore', site.backup('one')], { env: site.env });
    await Promise.race([child.ended, new Promise((resolve) => setTimeout(resolve, (whole * n) / 5))]);
    await kill(child);
    await endServersIn(site.dataDir);
    if (existsSync(place)) continue;
    expect((await runCli(['doctor'], { env: site.env })).stderr).toContain('there is no database');
    const next = await runCli(['restore', site.backup('one')], { env: site.env });
    expect({ code: next.code, stderr: next.stderr }).toEqual({ code: 0, stderr: '' });
  }
  expect((await runCli(['doctor'], { env: site.env })).stdout).toContain('nothing is wrong');
});

/** Of restores that were killed. */
async function endServersIn(dataDir: string): Promise<void> {
  for (const name of readdirSync(dataDir)) {
    const pid = name.startsWith('restore-') ? serverPid(path.join(dataDir, name)) : undefined;
    if (pid === undefined) continue;
    process.kill(pid, 'SIGQUIT');
    await waitFor('PostgreSQL to end', async () => serverPid(path.join(dataDir, name)) === undefined);
  }
}

test('nothing is put back of a backup that is not as it was', async () => {
  const site = makeSite();
  await stop(await start(site));
  const target = site.backup('one');
  expect((await runCli(['backup', target], { env: site.env })).code).toBe(0);
  loseDatabase(site);
  const refused = async (change: (copy: string) => void, message: string | RegExp) => {
    const copy = site.backup('copy');
    cpSync(target, copy, { recursive: true });
    change(copy);
    const { code, stdout, stderr } = await runCli(['restore', copy], { env: site.env });
    expect({ code, stdout, stderr }).toEqual({ code: 1, stdout: '', stderr: expect.stringMatching(message) });
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(readdirSync(site.dataDir).sort()).toEqual(['library', 'lost', 'operator.token', 'restore']);
    rmSync(copy, { recursive: true });
  };
  const control = 'postgres/global/pg_control';
  const change = (file: string, edit: (text: string) => string) => (copy: string) =>
    writeFileSync(path.join(copy, file), edit(readFileSync(path.join(copy, file), 'utf8')));
  await refused((copy) => {
    const bytes = readFileSync(path.join(copy, control));
    bytes[4000] = 1;
    writeFileSync(path.join(copy, control), bytes);
  }, /the backup is damaged: \S+pg_control has checksum [0-9a-f]{64}, and had [0-9a-f]{64}/);
  await refused((copy) => truncateSync(path.join(copy, control), 100), /pg_control has 100 bytes, and had 8192/);
  await refused((copy) => rmSync(path.join(copy, control)), /is not whole: \S+pg_control is missing/);
  await refused((copy) => rmSync(path.join(copy, 'manifest.json')), /is no backup: it has no manifest.json/);
  await refused(
    change('manifest.json', (text) => text.slice(0, -20)),
    /manifest.json cannot be read: /,
  );
  await refused(
    change('manifest.json', () => '{}'),
    /it lists no files/,
  );
  const edit = (part: object) => change('manifest.json', (text) => JSON.stringify({ ...JSON.parse(text), ...part }));
  await refused(edit({ format: 2 }), /its format is 2, and this Tapegate knows format 1/);
  await refused(edit({ platform: 'aix-ppc' }), /was made on aix-ppc, and this is \w+-\w+/);
  await refused(edit({ postgres: '17.1' }), /is of PostgreSQL 17.1, and this Tapegate brings 18/);
  await refused(edit({ startedAt: 'yesterday' }), /does not say when it was made/);
  await refused(edit({ folders: ['../../etc'] }), /"..\/..\/etc" is no path below a folder/);
  await refused(edit({ files: [{ path: '/etc/passwd', size: 1, sha256: '' }] }), /"\/etc\/passwd" is no path below/);
});

test('programs that the settings of a backup name are not run', async () => {
  const site = makeSite();
  const running = await start(site);
  const server = await attach(site);
  const ran = site.backup('ran');
  await askServer(server, `ALTER SYSTEM SET archive_mode = 'on'`, 'postgres');
  await askServer(server, `ALTER SYSTEM SET archive_command = 'touch ${ran}'`, 'postgres');
  await server.close();
  await stop(running);
  expect((await runCli(['backup', site.backup('one')], { env: site.env })).code).toBe(0);
  const manifestFile = path.join(site.backup('one'), 'manifest.json');
  const manifest = JSON.parse(readFileSync(manifestFile, 'utf8'));
  const plant = (name: string, text: string) => {
    writeFileSync(path.join(site.backup('one'), 'postgres', name), text);
    const sha256 = createHash('sha256').update(text).digest('hex');
    const others = manifest.files.filter((file: { path: string }) => file.path !== name);
    manifest.files = [...others, { path: name, size: text.length, sha256 }];
  };
  plant('postgresql.conf', `include 'more.conf'\nsession_preload_libraries = '${ran}.so'\n`);
  plant('more.conf', `restore_command = 'touch ${ran}'\nssl = on\nssl_passphrase_command = 'touch ${ran}'\n`);
  plant('recovery.signal', '');
  writeFileSync(manifestFile, JSON.stringify(manifest));
  loseDatabase(site);
  rmSync(ran, { force: true }); // the server whose settings they are may have run it

  const put = await runCli(['restore', site.backup('one')], { env: site.env });
  expect({ code: put.code, stderr: put.stderr }).toEqual({ code: 0, stderr: '' });
  const again = await start(site);
  const restored = await attach(site);
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
  await stop(again);
  expect(existsSync(ran)).toBe(false);
});

test('what stands in the way is told, and left alone', async () => {
  const site = makeSite();
  const running = await start(site);
  const target = site.backup('one');
  const run = async (args: string[], env: Record<string, string> = {}) => {
    const { code, stderr } = await runCli(args, { env: { ...site.env, ...env } });
    return [code, stderr.trim()];
  };
  expect(await run(['backup', site.backup('no/such')])).toEqual([1, expect.stringContaining('there is no folder')]);
  mkdirSync(target);
  expect(await run(['backup', target])).toEqual([1, `tapegate: ${target} is there already: a backup is a new folder`]);
  rmSync(target, { recursive: true });
  for (const within of ['postgres/one', 'postgres/base/one']) {
    const place = path.join(site.dataDir, within);
    expect(await run(['backup', place])).toEqual([1, expect.stringContaining('is within the database')]);
  }
  expect(await run(['backup', target])).toEqual([0, '']);
  const inTheWay = `tapegate: there is a database in ${site.dataDir}/postgres: stop what uses it, and move it away first`;
  expect(await run(['restore', target])).toEqual([1, inTheWay]);
  await stop(running);
  expect(await run(['restore', target])).toEqual([1, inTheWay]);
  expect(await run(['backup', target], { DATA_DIR: `${site.dataDir}-2` })).toEqual([
    1,
    expect.stringContaining('there is no database'),
  ]);
  expect(await run(['restore'])).toEqual([2, 'tapegate: restore which backup? (its folder)']);
  expect(await run(['restore', target, '--as-of', '2026-01-01T00:00Z'])).toEqual([
    2,
    expect.stringContaining('--as-of'),
  ]);
  const DATABASE_URL = 'postgresql://nobody@127.0.0.1:1/none';
  expect(await run(['backup', target], { DATABASE_URL })).toEqual([1, expect.stringContaining('pg_basebackup')]);
  expect(await run(['restore', target], { DATABASE_URL })).toEqual([2, expect.stringContaining('DATABASE_URL')]);
});

function leapOf(name: string, type: string): number {
  if (name === 'request_id_seq') return 1_000_000 + 20 * 86_400;
  return type === 'integer' ? 100_000 + 86_400 : 1e9 + 1e4 * 86_400;
}

test('a database that its own tools have put back goes on with ids beyond all that can have been given', async () => {
  const database = await createDatabase();
  const client = new pg.Client(database.connection);
  await client.connect();
  try {
    const env = { DATABASE_URL: database.url, DATA_DIR: makeDataDir() };
    const run = async (...args: string[]) => {
      const { code, stdout, stderr } = await runCli(['restore', ...args], { env });
      return [code, code === 0 ? stdout : stderr.trim()];
    };
    expect(await run()).toEqual([2, expect.stringContaining('--as-of is to say when')]);
    expect(await run('--as-of', 'lately')).toEqual([2, expect.stringContaining('--as-of is to say when')]);
    await client.query(`INSERT INTO running_process (id, kind, host, pid, version, started_at, seen_at, lag_seconds)
      SELECT gen_random_uuid(), 'ENGINE', 'far', 7, '1', t, t, 0 FROM timezone('utc', clock_timestamp()) t`);
    const day = new Date(Date.now() - 86_400_000).toISOString();
    expect(await run('--as-of', day)).toEqual([1, expect.stringContaining('is used by engine 7 of far')]);
    await client.query('DELETE FROM running_process');
    const sequences = async () =>
      (
        await client.query(`SELECT sequencename AS name, data_type::text AS type, coalesce(last_value, 0)::int8::text AS last FROM pg_sequences
        WHERE schemaname = 'public' ORDER BY 1`)
      ).rows;
    const before = await sequences();
    const [code, said] = await run('--as-of', day, '--json');
    expect(code).toBe(0);
    const after = await sequences();
    for (const [n, { name, type, last }] of after.entries()) {
      const leap = Number(BigInt(last) - BigInt(before[n].last));
      // those of the audit may have gone on by a few
      expect([name, leap >= leapOf(name, type)]).toEqual([name, true]);
    }
    const request = after.find(({ name }) => name === 'request_id_seq');
    expect(JSON.parse(String(said)).nextRequestId).toBe(Number(request.last) + 1);
    const next = async (at: number, asOf: string) => {
      await client.query(`SELECT setval('request_id_seq', ${at})`);
      const [, text] = await run('--as-of', asOf, '--json');
      return JSON.parse(String(text)).nextRequestId;
    };
    const short = await next(2_147_483_647 - 2_000_000, day); // ids for a day, and less than are left out beyond them
    expect([short > 2_147_483_647 - 2_000_000 + 20 * 86_400, short < 2_147_483_647]).toEqual([true, true]);
    expect(await next(2_147_483_000, day)).toBeNull();
    expect(await next(2_147_483_647, day)).toBeNull();
    expect(await run('--as-of', day)).toEqual([0, expect.stringContaining('none can be made: no id is left')]);
  } finally {
    await client.end();
    await database.drop();
  }
});

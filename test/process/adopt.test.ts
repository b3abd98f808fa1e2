/**
 * `tapegate adopt` moves a site from django-nla_control to Tapegate, with its users, requests, files and restored
 * copies.
 */
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parseLines } from '../support/command-results.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { bytesOf, createNlaSite, fillNlaSite, type NlaSite, restored, stageNumbers } from '../support/nla-control.js';
import { cleanUp, type Running, runCli, serveHere, startProcess, stop } from '../support/process.js';
import { makeRequest, read } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { workHere } from '../support/work.js';

const hook = vi.hoisted(() => ({ beforeLink: (): void => {} }));
vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  const link: typeof real.link = async (from, to) => {
    hook.beforeLink();
    await real.link(from, to);
  };
  return { ...real, link };
});

let dir: string;
let site: NlaSite;
let there: TestDatabase;
let here: TestDatabase;
let env: Record<string, string>;
let database: pg.Client;
let ids: Record<string, number>;

beforeEach(async () => {
  there = await createDatabase({ empty: true });
  here = await createDatabase();
  dir = makeTempDir();
  site = await createNlaSite({ connection: there.connection, dir });
  env = {
    DATABASE_URL: here.url,
    DATA_DIR: path.join(dir, 'data'),
    TAPEGATE_LINK_ROOT: site.archive,
    LOG_LEVEL: 'error',
  };
  ids = await fillNlaSite(site);
  database = new pg.Client(here.connection);
  await database.connect();
});
afterEach(async () => {
  await site.close();
  await database.end();
  await there.drop();
  await here.drop();
  rmSync(dir, { recursive: true });
});
afterAll(cleanUp);

const ask = async (text: string, values: unknown[] = []) => (await database.query(text, values)).rows;
const change = (text: string) => site.client.query(text.replace(/(UPDATE|FROM) (\w+)/, '$1 nla_control_$2'));
const lastId = () => ask('SELECT last_value::int AS id FROM request_id_seq');

async function run(...args: string[]) {
  const result = await runCli(['adopt', ...args, '--json'], { env });
  expect(result).toMatchObject({ code: 0, stderr: '' });
  return parseLines(result);
}

interface Difference {
  kind: string;
  object: string;
  here: string;
}

async function adopt(...args: string[]): Promise<{ counts: Record<string, number>; differences: Difference[] }> {
  const lines = await run(...args);
  return { counts: lines.pop(), differences: lines };
}

const adoptSite = (...args: string[]) => adopt(there.url, '--archive-root', site.archive, ...args);
const namesOf = (differences: Difference[]) => differences.map(({ kind, object }) => `${kind} ${object}`);
const nothing = { disks: 0, quotas: 0, files: 0, copies: 0, requests: 0, changed: 0, ended: 0 };

/** Returns all tables except those of the audit, events and processes. */
async function dumpHere(): Promise<unknown> {
  const names = await ask(
    `SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
     AND relname NOT IN ('audit', 'event', 'event_batch', 'running_process', 'site_identity', 'owner_stamp') ORDER BY 1`,
  );
  const tables: Record<string, unknown> = {};
  for (const { name } of names)
    tables[name] = await ask(`SELECT to_jsonb(t) FROM "${name}" t ORDER BY to_jsonb(t)::text`);
  return tables;
}

/** Renames fields to the names in the REST contract. */
function asContract(answer: Record<string, unknown>): Record<string, unknown> {
  const named = Object.entries(answer).map(([name, value]) => [name.replace('storaged_', 'tapestore_'), value]);
  const { requests, ...rest } = Object.fromEntries(named) as Record<string, unknown>;
  return Array.isArray(requests) ? { ...rest, requests: requests.map(asContract) } : rest;
}

test('requests, users and files are answered as by the original', async () => {
  const asked = ['complete', 'pattern', 'waiting', 'beyond', 'over', 'given'].map((name) => `requests/${ids[name]}`);
  asked.push('quota/ada', 'quota/bob', 'files?match=1986', 'files?match=ocean/198');
  const before = new Map<string, Record<string, unknown>>();
  for (const what of asked) before.set(what, asContract(await site.answer(what)));
  await adoptSite();
  const server = await serveHere(env);
  const labelOfGiven = '/badc/ocean/1988/on-disk.nc'; // the contract requires a label for each request
  for (const what of asked) {
    const answer = await read(server, `/${what}`);
    const expected = before.get(what) as Record<string, unknown>;
    if (what.startsWith('files')) {
      // a file at RESTORING (A) is adopted as ONTAPE (T), because Tapegate has not recalled it yet
      const files = (expected.files as { stage: string }[]).map((file) =>
        file.stage === 'A' ? { ...file, stage: 'T' } : file,
      );
      expect({ what, ...answer }).toEqual({ what, ...expected, files });
    } else if (what === `requests/${ids.given}`) {
      expect(answer).toEqual({ ...expected, label: labelOfGiven });
    } else if (what === 'quota/ada') {
      const { used, requests, ...quota } = answer as { used: number; requests: Record<string, unknown>[] };
      const live = (expected.requests as Record<string, unknown>[]).filter(({ id }) => id !== ids.over);
      const labelled = live.map((each) => ({ ...each, label: each.label ?? labelOfGiven }));
      expect({ ...quota, requests }).toEqual({ ...expected, used: undefined, requests: labelled });
      // Tapegate charges a file as soon as a request contains the file
      expect(used).toBeGreaterThanOrEqual(expected.used as number);
    } else expect({ what, ...answer }).toEqual({ what, ...expected });
  }
  const next = await makeRequest(server, { quota: 'ada', files: [restored[0]] });
  expect(next).toBeGreaterThan(Math.max(...Object.values(ids)));
  await server.stop();
});

test('a directory of the source that is replaced during the adoption leads to no other file', async () => {
  const source = path.dirname(readlinkSync(path.join(site.archive, restored[0])));
  const own = statSync(path.join(source, 'a.nc')).ino;
  const foreign = path.join(site.mountpoint, 'foreign');
  mkdirSync(foreign);
  for (const file of restored.slice(0, 2)) writeFileSync(path.join(foreign, path.basename(file)), bytesOf(file));
  hook.beforeLink = () => {
    hook.beforeLink = () => {};
    renameSync(source, `${source}-was`);
    symlinkSync(foreign, source);
  };
  await adoptSite();
  expect(statSync(path.join(site.mountpoint, restored[0])).ino).toBe(own);
});

/** A time that exceeds the range of the database's nanosecond columns. */
const LATE = new Date('2446-05-10T22:38:55Z');

test('copies stay where they are, a second run changes nothing, and a dry run nothing at all', async () => {
  utimesSync(path.join(site.archive, restored[0]), LATE, LATE);
  const inodes = restored.map((file) => statSync(path.join(site.archive, file)).ino);
  const untouched = await dumpHere();
  const trial = await adoptSite('--dry-run');
  expect(await dumpHere()).toEqual(untouched);
  const first = await adoptSite();
  expect(first.counts).toMatchObject({ ...nothing, disks: 1, quotas: 3, files: 7, copies: 3, requests: 6, same: 0 });
  expect(trial).toEqual(first);
  expect(restored.map((file) => statSync(site.mountpoint + file).ino)).toEqual(inodes);
  expect(restored.map((file) => statSync(path.join(site.archive, file)).nlink)).toEqual([2, 2, 2]);
  expect(await used()).toBe(sizeOf(restored));
  const adopted = await dumpHere();
  const second = await adoptSite();
  expect(second.counts).toMatchObject({ ...nothing, same: 9 });
  expect(await dumpHere()).toEqual(adopted);
  const doctor = await runCli(['doctor', '--checksums'], { env });
  expect(doctor.stdout).not.toMatch(/^(copy|quota|request|hold)-/m);
  // each old name stays, because a link at an archive path still points there
  expect(await finish()).toEqual({ told: [], counts: { ...ended, kept: restored.length } });
  for (const file of restored) expect(readFileSync(path.join(site.archive, file), 'utf8')).toBe(bytesOf(file));
});

test('a later run adopts changes, and ends requests that were removed', async () => {
  await adoptSite();
  await change(`UPDATE taperequest SET label = 'another', retention = '2097-01-01' WHERE id = ${ids.waiting}`);
  await change(`UPDATE quota SET size = 123456 WHERE "user" = 'bob'`);
  await change(`DELETE FROM taperequest WHERE id = ${ids.beyond}`);
  await site.restore('/badc/ocean/1987/on tape.nc', bytesOf('/badc/ocean/1987/on tape.nc'));
  const { counts } = await adoptSite();
  expect(counts).toMatchObject({ ...nothing, copies: 1, changed: 2, ended: 1 });
  const rows = await ask('SELECT id, label, retention::text, state, files_on_disk AS files FROM request');
  const find = (name: string) => rows.find(({ id }) => id === ids[name]);
  expect(find('waiting')).toMatchObject({ label: 'another', retention: '2097-01-01 00:00:00', files: 1 });
  expect(find('beyond')).toMatchObject({ state: 'CANCELLED' });
  expect(await ask(`SELECT size FROM quota WHERE "user" = 'bob'`)).toEqual([{ size: '123456' }]);
});

test('a run reports objects that it cannot adopt unchanged, and adopts the rest', async () => {
  writeFileSync(path.join(site.mountpoint, 'archive/spot-1234-ocean/1986/a.nc'), 'shorter');
  rmSync(path.join(site.archive, restored[1]));
  await site.insert('quota', { user: 'ada', size: 1 });
  await site.insert('quota', { user: 'eve', size: -1, email_address: 'no address' });
  await site.insert('tapefile', { logical_path: '/badc/../etc', size: 1, stage: 1 });
  await site.insert('tapefile', { logical_path: restored[0], size: 1, stage: 1 });
  const bad = { quota_id: 2, active_request: false, request_files: '../a\n', request_date: null, retention: null };
  const badId = await site.insert('taperequest', bad);
  const label = `one\u2028two${'é'.repeat(2016)}`;
  await site.client.query('UPDATE nla_control_taperequest SET label = $1 WHERE id = $2', [label, ids.waiting]);
  await site.client.query(`SELECT setval('nla_control_taperequest_id_seq', 2147483647)`);
  const { differences, counts } = await adoptSite();
  expect(counts).toMatchObject({ copies: 1, quotas: 3, requests: 6 });
  expect(namesOf(differences)).toEqual(
    expect.arrayContaining([
      `copy-size ${restored[0]}`,
      `copy-missing ${restored[1]}`,
      'quota-twice ada',
      'quota-refused eve',
      'file-refused /badc/../etc',
      `file-twice ${restored[0]}`,
      'file-deleted /badc/ocean/1988/deleted.nc',
      `request-refused ${badId}`,
      `label ${ids.waiting}`,
      'request-refused 2147483647', // the last id that the original used
    ]),
  );
  const labels = await ask('SELECT label FROM request WHERE id = $1', [ids.waiting]);
  expect(labels).toEqual([{ label: `one two${'é'.repeat(1993)}` }]);
  expect(await lastId()).toEqual([{ id: badId }]); // unused ids remain for new requests
});

test('files whose paths are directories of others are reported and left out, by a dry run too', async () => {
  const file = { size: 1, stage: 1 };
  await site.insert('tapefile', { ...file, logical_path: '/badc/clash' });
  await site.insert('tapefile', { ...file, logical_path: '/badc/clash/new.nc' });
  const untouched = await dumpHere();
  const trial = await adoptSite('--dry-run');
  expect(await dumpHere()).toEqual(untouched);
  expect(await adoptSite()).toEqual(trial);
  expect(trial.counts).toMatchObject({ files: 8, copies: 3, requests: 6 });
  expect(trial.differences.filter(({ kind }) => kind === 'file-refused')).toEqual([
    {
      kind: 'file-refused',
      object: '/badc/clash',
      there: 'ON TAPE, 1 bytes',
      here: 'nothing: "/badc/clash" cannot be a file and also the directory of "/badc/clash/new.nc"',
    },
  ]);
  const paths = await ask(`SELECT path FROM tape_file WHERE path LIKE '/badc/clash%'`);
  expect(paths).toEqual([{ path: '/badc/clash/new.nc' }]);
});

test('a source without a table of nla_control is refused, and nothing is stored', async () => {
  const before = await dumpHere();
  await site.client.query('ALTER TABLE nla_control_taperequest_files RENAME TO other');
  const { code, stderr } = await runCli(['adopt', there.url], { env });
  const message = 'cannot read the database to be adopted: relation "nla_control_taperequest_files" does not exist';
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(message) });
  expect(await dumpHere()).toEqual(before);
});

test('the URL of the source may prefer encryption, and may set the schema of its tables', async () => {
  await site.client.query('CREATE SCHEMA moved; ALTER TABLE nla_control_quota SET SCHEMA moved');
  const url = `${there.url}&sslmode=prefer&options=-c%20search_path%3Dpublic,moved`;
  expect((await adopt(url, '--archive-root', site.archive, '--dry-run')).counts).toMatchObject({ quotas: 3 });
});

test('texts and times are read exactly', async () => {
  await site.client.query("SET TimeZone = 'Asia/Kolkata'");
  await change(`UPDATE taperequest SET retention = '9999-12-31 20:00:00-10' WHERE id = ${ids.waiting}`);
  await change(`UPDATE taperequest SET request_date = '2026-07-01 05:30:00.000001' WHERE id = ${ids.waiting}`);
  await adoptSite();
  expect(await lastId()).toEqual([{ id: ids.tidied }]);
  expect(await ask(`SELECT notes FROM quota WHERE "user" = 'bob'`)).toEqual([
    { notes: 'it\'s \\ a "note",\nin two\r\nlines\u2028\t.' },
  ]);
  const times = 'SELECT retention::text, request_date::text AS date FROM request WHERE id = $1';
  expect(await ask(times, [ids.waiting])).toEqual([
    { retention: '9999-12-31 23:59:59.999999', date: '2026-07-01 00:00:00.000001' },
  ]);
});

test('a removed request that comes back, and an expired one that is prolonged, are live again beyond their quota', async () => {
  await adoptSite();
  const set = 'id, label, quota_id, retention, request_date, active_request, request_files, request_patterns';
  await site.client.query(`CREATE TABLE kept AS SELECT ${set} FROM nla_control_taperequest WHERE id = ${ids.waiting}`);
  await change(`DELETE FROM taperequest WHERE id = ${ids.waiting}`);
  await change(`UPDATE quota SET size = 1 WHERE "user" = 'ada'`);
  expect((await adoptSite()).counts).toMatchObject({ ended: 1 });
  await site.client.query(`INSERT INTO nla_control_taperequest (${set}) SELECT * FROM kept`);
  await change(`UPDATE taperequest SET retention = '2097-01-01' WHERE id = ${ids.over}`);
  const { counts, differences } = await adoptSite();
  expect(counts).toMatchObject({ changed: 2 });
  expect(differences.filter(({ kind }) => kind === 'request-refused')).toEqual([]);
  const query = 'SELECT id, retention::text, state FROM request WHERE id = ANY($1) ORDER BY id';
  const state = expect.not.stringMatching(/CANCELLED|EXPIRED/);
  expect(await ask(query, [[ids.waiting, ids.over]])).toEqual([
    { id: ids.waiting, retention: '2098-12-31 00:00:00', state },
    { id: ids.over, retention: '2097-01-01 00:00:00', state },
  ]);
});

test('a restore disk that Tapegate refuses is reported with its copies, by a dry run too', async () => {
  chmodSync(site.mountpoint, 0o777);
  const trial = await adoptSite('--dry-run');
  expect(await adoptSite()).toEqual(trial);
  expect(namesOf(trial.differences)).toEqual(
    expect.arrayContaining([`disk-refused ${site.mountpoint}`, `copy-disk ${restored[0]}`]),
  );
});

/** Runs `adopt --finish`. */
async function finish() {
  const told = (await run('--finish', '--archive-root', site.archive)) as Difference[];
  return { counts: told.pop(), told };
}

const ended = { names: 0, kept: 0, left: 0, released: 0, bytes: 0 };
const oldName = (file: string) =>
  path.join(site.mountpoint, 'archive/spot-1234-ocean', file.slice('/badc/ocean'.length));
const used = async () => Number((await ask('SELECT used FROM restore_disk'))[0].used);
const sizeOf = (files: readonly string[]) => files.reduce((sum, file) => sum + bytesOf(file).length, 0);

/** Runs an engine during `work`. */
async function whileWorking<T>(work: () => Promise<T>, more = env): Promise<T> {
  const engine = await workHere(more);
  try {
    return await work();
  } finally {
    await engine.stop();
  }
}

const linkOf = (file: string) => path.join(site.archive, file);
const isLinked = (file: string) => readlinkSync(linkOf(file)) === site.mountpoint + file;
const isGone = (file: string) => lstatSync(file, { throwIfNoEntry: false }) === undefined;

test('copies without a request are reported at each run, and are released when the adoption is finished', async () => {
  const unheld = ['/badc/ocean/1990/nobody.nc', '/badc/ocean/1990/refused.nc'] as const;
  for (const file of unheld) {
    await site.insert('tapefile', { logical_path: file, size: bytesOf(file).length, verified: null, stage: 1 });
    await site.restore(file, bytesOf(file));
  }
  const request = { quota_id: 2, active_request: false, request_files: unheld[1], request_patterns: '' };
  const id = await site.insert('taperequest', { ...request, label: '', request_date: null, retention: null });
  const report = async (...args: string[]) =>
    (await adoptSite(...args)).differences.filter(({ kind }) => kind === 'copy-unheld');
  const line = (files: readonly string[]) => ({
    kind: 'copy-unheld',
    object: site.mountpoint,
    there: `${files.length} restored file${files.length === 1 ? '' : 's'} that no request contains, ${sizeOf(files)} bytes in total`,
    here: 'kept until "tapegate adopt --finish" releases the copies',
  });
  expect([await report(), await report()]).toEqual(Array(2).fill([line(unheld)]));
  // now a request contains one of the files
  const asked = { label: 'asked', request_date: '2026-01-02 03:04:05+00', retention: '2098-12-31 00:00:00+00' };
  await change(`DELETE FROM taperequest WHERE id = ${id}`);
  await site.insert('taperequest', { ...request, ...asked });
  const [dropped, kept] = unheld;
  expect(await report()).toEqual([line([dropped])]);
  const all = [...restored, ...unheld];
  await whileWorking(async () => {
    await waitFor('the links to lead to the new names', async () => all.every(isLinked));
    expect(await used()).toBe(sizeOf(all));
    expect(await finish()).toEqual({
      told: [],
      counts: { ...ended, names: all.length, released: 1, bytes: sizeOf([dropped]) },
    });
    await waitFor('the copy to be removed', async () => (await used()) === sizeOf([...restored, kept]));
  });
  expect([oldName(dropped), site.mountpoint + dropped, linkOf(dropped)].map(isGone)).toEqual([true, true, true]);
  expect(readFileSync(linkOf(kept), 'utf8')).toBe(bytesOf(kept));
  const doctor = await runCli(['doctor', '--checksums'], { env });
  expect(doctor.stdout).not.toMatch(/^(copy|link|quota|request|restored|unknown)-/m);
});

test('finish also removes the old names of copies that were removed or restored again, and reports the remaining copies', async () => {
  await adoptSite();
  const [a, b, c] = restored;
  await whileWorking(() => waitFor('the links to lead to the copies', async () => restored.every(isLinked)));
  await database.query(`UPDATE request SET retention = '2026-01-07' WHERE id <> $1`, [ids.pattern]);
  const isDone = async () => (await used()) === sizeOf([c]) && [a, b].map(linkOf).every(isGone);
  await whileWorking(() => waitFor('two copies to leave, and their links', isDone));
  expect([a, b, c].map((file) => existsSync(oldName(file)))).toEqual([true, true, true]);
  // file `b` is restored again
  mkdirSync(path.dirname(site.mountpoint + b), { recursive: true });
  writeFileSync(site.mountpoint + b, bytesOf(b));
  const { ino, mtimeNs, ctimeNs } = statSync(site.mountpoint + b, { bigint: true });
  await database.query(
    `UPDATE tape_file SET stage = 'RESTORED', disk_id = (SELECT id FROM restore_disk), disk_ino = $1, disk_mtime_ns = $2,
       disk_ctime_ns = $3 WHERE path = $4`,
    [ino, mtimeNs, ctimeNs, b],
  );
  await database.query(`INSERT INTO request_file (request_id, file_id, ordinal, size, state)
    SELECT ${ids.pattern}, id, 1000, size, 'ON_DISK' FROM tape_file WHERE path = '${b}'`);
  // file `a` was changed under its old name, and the disk is not mounted for a while
  writeFileSync(oldName(a), 'changed');
  const marker = path.join(site.mountpoint, '.tapegate-disk');
  renameSync(marker, `${marker}.away`);
  const away = await finish();
  expect(away.counts).toEqual({ ...ended, left: 3 });
  expect(away.told.map(({ kind, object, here }) => [kind, object, here.includes('not mounted')])).toEqual(
    restored.map((file) => ['name-left', oldName(file), true]),
  );
  renameSync(`${marker}.away`, marker);
  const { counts, told } = await finish();
  expect(counts).toEqual({ ...ended, names: 2, left: 1 });
  expect(told.map(({ kind, object }) => [kind, object])).toEqual([['name-left', oldName(a)]]);
  expect([a, b, c].map((file) => existsSync(oldName(file)))).toEqual([true, false, false]);
  expect([b, c].map((file) => readFileSync(site.mountpoint + file, 'utf8'))).toEqual([b, c].map(bytesOf));
  rmSync(oldName(a));
  expect((await finish()).counts).toEqual(ended);
  expect(await ask(`SELECT FROM adopted WHERE kind = 'COPY' AND source_path IS NOT NULL`)).toEqual([]);
});

test('finish removes a link to a copy that was released, with its old name', async () => {
  for (const file of restored) utimesSync(path.join(site.archive, file), LATE, LATE);
  await adoptSite();
  await database.query(`UPDATE request SET retention = '2026-01-07' WHERE id <> $1`, [ids.pattern]);
  const [a, b, c] = restored;
  const { TAPEGATE_LINK_ROOT: _, ...unlinked } = env;
  await whileWorking(() => waitFor('two copies to leave', async () => (await used()) === sizeOf([c])), unlinked);
  expect(await finish()).toEqual({ told: [], counts: { ...ended, names: 2, kept: 1 } });
  expect([a, b, c].map(linkOf).map(isGone)).toEqual([true, true, false]);
  expect(readFileSync(linkOf(c), 'utf8')).toBe(bytesOf(c));
});

test('finish keeps the only name of a copy that is already at its place, even if its link went another way', async () => {
  const [alias, file] = [`${site.mountpoint}-by-another-way`, '/badc/own/place.nc'];
  symlinkSync(site.mountpoint, alias);
  await site.client.query('UPDATE nla_control_restoredisk SET mountpoint = $1', [alias]);
  await site.insert('tapefile', {
    ...{ logical_path: file, size: bytesOf(file).length, stage: stageNumbers.R, restore_disk_id: 1 },
  });
  for (const directory of [site.mountpoint, site.archive])
    mkdirSync(path.join(directory, '/badc/own'), { recursive: true });
  writeFileSync(site.mountpoint + file, bytesOf(file));
  symlinkSync(site.mountpoint + file, path.join(site.archive, file));
  await site.client.query(`UPDATE nla_control_taperequest SET request_files = $1 WHERE id = ${ids.waiting}`, [file]);
  await adoptSite();
  rmSync(path.join(site.archive, file));
  expect((await finish()).counts).toEqual({ ...ended, kept: restored.length });
  expect(readFileSync(site.mountpoint + file, 'utf8')).toBe(bytesOf(file));
});

test('a program that opens restored files at their archive paths sees no interruption', async () => {
  const files = restored.slice(0, 2);
  const script = `
    const { readFileSync } = require('node:fs');
    let reads = 0;
    process.on('SIGTERM', () => { console.log('reads ' + reads); process.exit(0); });
    const turn = () => {
      for (const file of ${JSON.stringify(files)}) {
        const text = readFileSync(${JSON.stringify(site.archive)} + file, 'utf8');
        if (text !== 'bytes of ' + file) { console.error('wrong: ' + text); process.exit(1); }
        reads++;
      }
      setTimeout(turn, 1);
    };
    console.log('ready');
    turn();`;
  const program: Running = startProcess(process.execPath, ['-e', script]);
  await program.waitForOutput(/ready/);
  await adoptSite();
  await whileWorking(() => waitFor('the links to lead to the new names', async () => files.every(isLinked)));
  expect(await run('--finish')).toMatchObject([{ left: 0 }]);
  expect(isGone(oldName('/badc/ocean/1986/a.nc'))).toBe(true);
  const { code, stdout } = await stop(program);
  expect(code).toBe(0);
  expect(Number(/reads (\d+)/.exec(stdout)?.[1])).toBeGreaterThan(10);
});

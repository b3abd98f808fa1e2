/** A site of django-nla_control moves in: what both answer before and after, what stays where it is, and who notices nothing. */
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
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import pg from 'pg';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { createNlaSite, dumpNlaSite, type NlaSite, stageNumbers } from '../support/nla-control.js';
import { cleanUp, type Running, runCli, serveHere, startProcess, stop } from '../support/process.js';
import { read } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { workHere } from '../support/work.js';

let dir: string;
let site: NlaSite;
let there: TestDatabase;
let here: TestDatabase;
let env: Record<string, string>;
let database: pg.Client;
const ids: Record<string, number> = {};

const bytesOf = (file: string) => `bytes of ${file}`;
const restored = ['/badc/ocean/1986/a.nc', '/badc/ocean/1986/b.nc', '/badc/ocean/1987/c.nc'];

beforeEach(async () => {
  there = await createDatabase({ empty: true });
  here = await createDatabase();
  dir = makeTempDir();
  site = await createNlaSite({ connection: there.connection, dir });
  env = { DATABASE_URL: here.url, DATA_DIR: path.join(dir, 'data'), LINK_ROOT: site.archive, LOG_LEVEL: 'error' };
  await fill();
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

/** Requests of each kind that the original knows. */
async function fill(): Promise<void> {
  await site.insert('restoredisk', { mountpoint: site.mountpoint, allocated_bytes: 10 ** 9, used_bytes: 0 });
  const quota = (user: string, more = {}) =>
    site.insert('quota', {
      user,
      size: 10 ** 6,
      email_address: `${user}@example.org`,
      notes: `notes of ${user}`,
      ...more,
    });
  await quota('gone'); // so that ids have holes
  await site.client.query('DELETE FROM nla_control_quota');
  const [ada, bob, verify] = [
    await quota('ada'),
    await quota('bob', { size: 10, notes: 'it\'s \\ a "note",\nin two\r\nlines\u2028\t.' }),
    await quota('_VERIFY'),
  ];
  const files: Record<string, number> = {};
  const file = async (
    logicalPath: string,
    stage: keyof typeof stageNumbers,
    verified: string | null = '2017-01-18 16:59:05.244150+00',
  ) => {
    const size = bytesOf(logicalPath).length;
    files[logicalPath] = await site.insert('tapefile', {
      logical_path: logicalPath,
      size,
      verified,
      stage: stageNumbers[stage],
    });
  };
  for (const name of restored) await file(name, 'T');
  for (const name of restored) await site.restore(name, bytesOf(name));
  await file('/badc/ocean/1987/on tape.nc', 'T');
  await file('/badc/ocean/1988/on-its-way.nc', 'A');
  await file('/badc/ocean/1988/on-disk.nc', 'D');
  await file('/badc/ocean/1988/new.nc', 'U', null);
  await file('/badc/ocean/1988/deleted.nc', 'X');
  const request = async (name: string, row: Record<string, unknown>, given: string[] = []) => {
    const id = await site.insert('taperequest', {
      ...{ label: name, quota_id: ada, active_request: true, request_files: '', request_patterns: '' },
      ...{ request_date: '2026-01-02 03:04:05.678901+00', retention: '2098-12-31 00:00:00+00', ...row },
    });
    for (const each of given) await site.insert('taperequest_files', { taperequest_id: id, tapefile_id: files[each] });
    ids[name] = id;
  };
  await request('before', {});
  await site.client.query('DELETE FROM nla_control_taperequest');
  const done = {
    storaged_request_start: '2026-01-02 03:05:00+00',
    storaged_request_end: '2026-01-02 03:06:00.5+00',
    first_files_on_disk: '2026-01-02 03:05:30+00',
    last_files_on_disk: '2026-01-02 03:06:00.25+00',
  };
  const begun = { storaged_request_start: done.storaged_request_start, first_files_on_disk: done.first_files_on_disk };
  const mail = { notify_on_first_file: 'ada@example.org', notify_on_last_file: 'ada@example.org' };
  await request('complete', { ...done, ...mail, request_files: restored.slice(0, 2).join('\n') }, restored.slice(0, 2));
  await request('pattern', { ...mail, ...begun, request_patterns: 'ocean/1987' }, restored.slice(2));
  await request('waiting', { request_files: '/badc/ocean/1987/on tape.nc\n/badc/not/there/yet.nc' });
  await request('beyond', { ...done, quota_id: bob, request_files: restored[0] }, restored.slice(0, 1));
  await request(
    'over',
    { retention: '2026-01-07 00:00:00+00', request_files: restored[2], ...done },
    restored.slice(2),
  );
  await request('given', { ...done, label: null }, ['/badc/ocean/1988/on-disk.nc']);
  await request('checking', { quota_id: verify, request_files: '/badc/ocean/1988/new.nc' });
  await request('tidied', {});
  await site.client.query(`DELETE FROM nla_control_taperequest WHERE id = ${ids.tidied}`);
  await site.client.query(`UPDATE nla_control_tapefile SET restore_disk_id = 1 WHERE stage = 2`);
}

async function adopt(...args: string[]) {
  const { code, stdout, stderr } = await runCli(['adopt', ...args, '--json'], { env });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const counts = lines.pop();
  return { counts, differences: lines as { kind: string; thing: string }[] };
}

/** All that is here, but for who asked, and when what was noted. */
async function dumpHere(): Promise<unknown> {
  const { rows } = await database.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
     AND relname NOT IN ('audit', 'event', 'event_batch', 'running_process') ORDER BY 1`,
  );
  const tables: Record<string, unknown> = {};
  for (const { name } of rows) {
    const { rows: found } = await database.query(
      `SELECT to_jsonb(t) AS row FROM "${name}" t ORDER BY to_jsonb(t)::text`,
    );
    tables[name] = found.map(({ row }) => row);
  }
  return tables;
}

/** What the contract calls otherwise, or answers at all times. */
function asContract(answer: Record<string, unknown>): Record<string, unknown> {
  const named = Object.entries(answer).map(([name, value]) => [name.replace('storaged_', 'tapestore_'), value]);
  const { requests, ...rest } = Object.fromEntries(named) as Record<string, unknown>;
  return Array.isArray(requests) ? { ...rest, requests: requests.map(asContract) } : rest;
}

test('what the original answers of requests, users and files is answered the same after the switch', async () => {
  const asked = ['complete', 'pattern', 'waiting', 'beyond', 'over', 'given'].map((name) => `requests/${ids[name]}`);
  asked.push('quota/ada', 'quota/bob', 'files?match=1986', 'files?match=ocean/198');
  const before = new Map<string, Record<string, unknown>>();
  for (const what of asked) before.set(what, asContract(await site.answer(what)));
  await adopt(there.url, '--archive-root', site.archive);
  const server = await serveHere(env);
  for (const what of asked) {
    const answer = await read(server, `/${what}`);
    const expected = before.get(what) as Record<string, unknown>;
    if (what.startsWith('files')) {
      // a file on its way is on tape until Tapegate turns to it; what was deleted there is not here
      const stages = (expected.files as { stage: string }[]).map((file) => ({
        ...file,
        stage: file.stage === 'A' ? 'T' : file.stage,
      }));
      expect({ what, ...answer }).toEqual({ what, ...expected, files: stages });
    } else if (what === `requests/${ids.given}`) {
      expect(answer).toEqual({ ...expected, label: '/badc/ocean/1988/on-disk.nc' }); // the contract's label of one without
    } else if (what === 'quota/ada') {
      const { used, requests, ...quota } = answer as { used: number; requests: Record<string, unknown>[] };
      const live = (expected.requests as Record<string, unknown>[]).filter(({ id }) => id !== ids.over); // the contract lists those alone
      const labelled = live.map((each) => ({ ...each, label: each.label ?? '/badc/ocean/1988/on-disk.nc' }));
      expect({ ...quota, requests }).toEqual({ ...expected, used: undefined, requests: labelled });
      // what is wanted is charged when it is asked for, and not when it comes
      expect(used).toBeGreaterThanOrEqual(expected.used as number);
    } else expect({ what, ...answer }).toEqual({ what, ...expected });
  }
  const { id: made } = await (async () => {
    const answer = await fetch(`${server.url}/tape_control/api/v1/requests`, {
      method: 'POST',
      body: JSON.stringify([{ quota: 'ada', files: [restored[0]] }]),
    });
    return { id: (await answer.json())[0].req_id as number };
  })();
  expect(made).toBeGreaterThan(Math.max(...Object.values(ids)));
  await server.stop();
});

test('copies are taken over where they are, a second time changes nothing, and a dry run nothing at all', async () => {
  const inodes = restored.map((file) => statSync(path.join(site.archive, file)).ino);
  const untouched = await dumpHere();
  const trial = await adopt(there.url, '--dry-run', '--archive-root', site.archive);
  expect(await dumpHere()).toEqual(untouched);
  const first = await adopt(there.url, '--archive-root', site.archive);
  expect(first.counts).toMatchObject({
    disks: 1,
    quotas: 3,
    files: 7,
    copies: 3,
    requests: 6,
    changed: 0,
    ended: 0,
    same: 0,
  });
  expect(trial.counts).toEqual(first.counts);
  expect(trial.differences).toEqual(first.differences);
  expect(restored.map((file) => statSync(site.mountpoint + file).ino)).toEqual(inodes);
  expect(restored.map((file) => statSync(path.join(site.archive, file)).nlink)).toEqual([2, 2, 2]);
  const { rows } = await database.query('SELECT used FROM restore_disk WHERE mountpoint = $1', [site.mountpoint]);
  expect(Number(rows[0].used)).toBe(restored.reduce((sum, file) => sum + bytesOf(file).length, 0));
  const adopted = await dumpHere();
  const second = await adopt(there.url, '--archive-root', site.archive);
  expect(second.counts).toMatchObject({
    disks: 0,
    quotas: 0,
    files: 0,
    copies: 0,
    requests: 0,
    changed: 0,
    ended: 0,
    same: 9,
  });
  expect(await dumpHere()).toEqual(adopted);
  const doctor = await runCli(['doctor', '--checksums'], { env });
  expect(doctor.stdout).not.toMatch(/^(copy|quota|request|hold)-/m);
});

test('what was changed there since is changed here, and what has gone there ends here', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  await site.client.query(
    `UPDATE nla_control_taperequest SET label = 'another', retention = '2097-01-01' WHERE id = ${ids.waiting}`,
  );
  await site.client.query(`UPDATE nla_control_quota SET size = 123456 WHERE "user" = 'bob'`);
  await site.client.query(`DELETE FROM nla_control_taperequest WHERE id = ${ids.beyond}`);
  await site.restore('/badc/ocean/1987/on tape.nc', bytesOf('/badc/ocean/1987/on tape.nc'));
  const again = await adopt(there.url, '--archive-root', site.archive);
  expect(again.counts).toMatchObject({ copies: 1, changed: 2, ended: 1, requests: 0, quotas: 0 });
  const { rows } = await database.query(
    'SELECT id, label, retention::text, state, files_on_disk AS files FROM request ORDER BY id',
  );
  const find = (name: string) => rows.find(({ id }) => id === ids[name]);
  expect(find('waiting')).toMatchObject({ label: 'another', retention: '2097-01-01 00:00:00', files: 1 });
  expect(find('beyond')).toMatchObject({ state: 'CANCELLED' });
  const quotas = await database.query(`SELECT size FROM quota WHERE "user" = 'bob'`);
  expect(quotas.rows[0].size).toBe('123456');
});

test('what does not agree is told, and stays as it is', async () => {
  writeFileSync(path.join(site.mountpoint, 'archive/spot-1234-ocean/1986/a.nc'), 'shorter');
  rmSync(path.join(site.archive, restored[1] as string));
  await site.insert('quota', { user: 'ada', size: 1 });
  await site.insert('quota', { user: 'eve', size: -1, email_address: 'no address' });
  await site.insert('tapefile', { logical_path: '/badc/../etc', size: 1, stage: 1 });
  await site.insert('tapefile', { logical_path: restored[0], size: 1, stage: 1 });
  await site.insert('taperequest', {
    quota_id: 2,
    active_request: false,
    request_files: '../a\n',
    request_date: null,
    retention: null,
  });
  const { differences, counts } = await adopt(there.url, '--archive-root', site.archive);
  const kinds = differences.map(({ kind, thing }) => `${kind} ${thing}`);
  expect(kinds).toEqual(
    expect.arrayContaining([
      `copy-size ${restored[0]}`,
      `copy-missing ${restored[1]}`,
      'quota-twice ada',
      'quota-refused eve',
      'file-refused /badc/../etc',
      `file-twice ${restored[0]}`,
      'file-deleted /badc/ocean/1988/deleted.nc',
    ]),
  );
  expect(kinds.some((kind) => kind.startsWith('request-refused'))).toBe(true);
  expect(counts).toMatchObject({ copies: 1, quotas: 3 });
});

test.each(['copy', 'mysql'] as const)('a dump (%s) says the same as the database, gzipped too', async (form) => {
  const file = path.join(dir, 'dump.sql.gz');
  writeFileSync(file, gzipSync(await dumpNlaSite(site, form)));
  const { counts } = await adopt(file, '--archive-root', site.archive);
  expect(counts).toMatchObject({ quotas: 3, files: 7, copies: 3, requests: 6 });
  const again = await adopt(there.url, '--archive-root', site.archive);
  expect(again.counts).toMatchObject({ quotas: 0, files: 0, copies: 0, requests: 0, changed: 0, ended: 0, same: 9 });
  const last = await database.query('SELECT last_value AS id FROM request_id_seq');
  expect(Number(last.rows[0].id)).toBe(ids.tidied);
  const { rows } = await database.query(`SELECT notes FROM quota WHERE "user" = 'bob'`);
  expect(rows[0].notes).toBe('it\'s \\ a "note",\nin two\r\nlines\u2028\t.');
});

test('what is no dump, or breaks off, is refused, and nothing is stored', async () => {
  const dump = await dumpNlaSite(site, 'copy');
  const file = path.join(dir, 'dump.sql');
  const before = await dumpHere();
  for (const [text, message] of [
    ['hello\n', 'no table of nla_control'],
    [dump.slice(0, dump.indexOf('\\.') - 20), 'values, not'],
    [dump.slice(0, dump.indexOf('COPY public.nla_control_taperequest ')), 'no table nla_control_taperequest'],
    [dump.slice(0, dump.indexOf('COPY public.nla_control_taperequest_files ')), 'breaks off'],
    [dump.replace('email_address', 'mail'), 'no column email_address'],
  ] as const) {
    writeFileSync(file, text);
    const { code, stderr } = await runCli(['adopt', file], { env });
    expect({ code, isTold: stderr.includes(message), stderr }).toEqual({ code: 1, isTold: true, stderr });
  }
  expect(await dumpHere()).toEqual(before);
});

test('a request that is gone there and there again is here again, and one that is over there and goes on, whatever its quota', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  const set = 'id, label, quota_id, retention, request_date, active_request, request_files, request_patterns';
  await site.client.query(`CREATE TABLE kept AS SELECT ${set} FROM nla_control_taperequest WHERE id = ${ids.waiting}`);
  await site.client.query(`DELETE FROM nla_control_taperequest WHERE id = ${ids.waiting}`);
  await site.client.query(`UPDATE nla_control_quota SET size = 1 WHERE "user" = 'ada'`);
  expect((await adopt(there.url, '--archive-root', site.archive)).counts).toMatchObject({ ended: 1 });
  await site.client.query(`INSERT INTO nla_control_taperequest (${set}) SELECT * FROM kept`);
  await site.client.query(`UPDATE nla_control_taperequest SET retention = '2097-01-01' WHERE id = ${ids.over}`);
  const { counts, differences } = await adopt(there.url, '--archive-root', site.archive);
  expect({ changed: counts.changed, refused: differences.filter(({ kind }) => kind === 'request-refused') }).toEqual({
    changed: 2,
    refused: [],
  });
  const { rows } = await database.query(
    'SELECT id, retention::text, state FROM request WHERE id = ANY($1) ORDER BY id',
    [[ids.waiting, ids.over]],
  );
  expect(rows).toEqual([
    { id: ids.waiting, retention: '2098-12-31 00:00:00', state: expect.not.stringMatching(/CANCELLED|EXPIRED/) },
    { id: ids.over, retention: '2097-01-01 00:00:00', state: expect.not.stringMatching(/CANCELLED|EXPIRED/) },
  ]);
});

test('a label as long as it may be there, or of several lines, costs nothing but what cannot be here', async () => {
  const label = `one\u2028two${'é'.repeat(2016)}`;
  await site.client.query('UPDATE nla_control_taperequest SET label = $1 WHERE id = $2', [label, ids.waiting]);
  const { differences } = await adopt(there.url, '--archive-root', site.archive);
  expect(differences).toContainEqual(expect.objectContaining({ kind: 'label', thing: String(ids.waiting) }));
  const { rows } = await database.query('SELECT label FROM request WHERE id = $1', [ids.waiting]);
  expect(rows).toEqual([{ label: `one two${'é'.repeat(1993)}` }]);
});

test('a dry run tells of a restore disk that cannot be one here, and of its copies', async () => {
  chmodSync(site.mountpoint, 0o777);
  const trial = await adopt(there.url, '--dry-run', '--archive-root', site.archive);
  const real = await adopt(there.url, '--archive-root', site.archive);
  expect(trial).toEqual(real);
  const kinds = trial.differences.map(({ kind, thing }) => `${kind} ${thing}`);
  expect(kinds).toEqual(expect.arrayContaining([`disk-refused ${site.mountpoint}`, `copy-disk ${restored[0]}`]));
});

test('the end of an adoption takes no name away that a link at an archive path leads to', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  const { stdout } = await runCli(['adopt', '--finish', '--archive-root', site.archive, '--json'], { env });
  expect(JSON.parse(stdout)).toEqual({ names: 0, kept: restored.length, left: 0, released: 0, bytes: 0 });
  for (const file of restored) expect(readFileSync(path.join(site.archive, file), 'utf8')).toBe(bytesOf(file));
});

/** What is told of the end, and what it comes to. */
async function finish(more = env) {
  const { code, stdout, stderr } = await runCli(['adopt', '--finish', '--archive-root', site.archive, '--json'], {
    env: more,
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  return { counts: lines.pop(), told: lines as { kind: string; thing: string; here: string }[] };
}

const oldName = (file: string) =>
  path.join(site.mountpoint, 'archive/spot-1234-ocean', file.slice('/badc/ocean'.length));
const used = async () => Number((await database.query('SELECT used FROM restore_disk')).rows[0].used);
const sizeOf = (files: readonly string[]) => files.reduce((sum, file) => sum + bytesOf(file).length, 0);

/** While an engine works. */
async function whileWorking<T>(work: () => Promise<T>, more = env): Promise<T> {
  const engine = await workHere(more);
  try {
    return await work();
  } finally {
    await engine.stop();
  }
}

test('copies that no request has are told at each run, stay until the end, and leave with it', async () => {
  const unheld = ['/badc/ocean/1990/nobody.nc', '/badc/ocean/1990/refused.nc'];
  for (const file of unheld) {
    await site.insert('tapefile', { logical_path: file, size: bytesOf(file).length, verified: null, stage: 1 });
    await site.restore(file, bytesOf(file));
  }
  const request = { quota_id: 2, active_request: false, request_files: unheld[1], request_patterns: '' };
  const id = await site.insert('taperequest', { ...request, label: '', request_date: null, retention: null });
  const told = async (...args: string[]) =>
    (await adopt(there.url, '--archive-root', site.archive, ...args)).differences.filter(
      ({ kind }) => kind === 'copy-unheld',
    );
  const line = (files: string[]) => ({
    kind: 'copy-unheld',
    thing: site.mountpoint,
    there: `${files.length} restored file${files.length === 1 ? '' : 's'} of ${sizeOf(files)} bytes that no request has`,
    here: 'held by nobody; let go by adopt --finish',
  });
  const runs = [await told('--dry-run'), await told(), await told('--dry-run'), await told()];
  expect(runs).toEqual(Array(4).fill([line(unheld)]));
  // one is asked for by then
  const asked = { label: 'asked', request_date: '2026-01-02 03:04:05+00', retention: '2098-12-31 00:00:00+00' };
  await site.client.query(`DELETE FROM nla_control_taperequest WHERE id = ${id}`);
  await site.insert('taperequest', { ...request, ...asked });
  expect([await told('--dry-run'), await told()]).toEqual(Array(2).fill([line(unheld.slice(0, 1))]));
  const all = [...restored, ...unheld];
  await whileWorking(async () => {
    await waitFor('the links to lead to Tapegate’s names', async () =>
      all.every((file) => readlinkSync(path.join(site.archive, file)) === site.mountpoint + file),
    );
    expect(await used()).toBe(sizeOf(all));
    expect(await finish()).toEqual({
      told: [],
      counts: { names: all.length, kept: 0, left: 0, released: 1, bytes: sizeOf(unheld.slice(0, 1)) },
    });
    await waitFor('the copy to leave', async () => (await used()) === sizeOf([...restored, unheld[1] as string]));
  });
  for (const file of [unheld[0] as string].flatMap((name) => [oldName(name), site.mountpoint + name])) {
    expect({ file, isThere: existsSync(file) }).toEqual({ file, isThere: false });
  }
  expect(lstatSync(path.join(site.archive, unheld[0] as string), { throwIfNoEntry: false })).toBeUndefined();
  expect(readFileSync(path.join(site.archive, unheld[1] as string), 'utf8')).toBe(bytesOf(unheld[1] as string));
  const doctor = await runCli(['doctor', '--checksums'], { env });
  expect(doctor.stdout).not.toMatch(/^(copy|link|quota|request|restored|unknown)-/m);
});

test('old names go also of copies that have left, or came again, and what is left of them is told each time', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  const [a, b, c] = restored as [string, string, string];
  const linkOf = (file: string) => path.join(site.archive, file);
  const isLinked = (file: string) => readlinkSync(linkOf(file)) === site.mountpoint + file;
  await whileWorking(() => waitFor('the links to lead to the copies', async () => restored.every(isLinked)));
  await database.query(`UPDATE request SET retention = '2026-01-07' WHERE id <> $1`, [ids.pattern]);
  const areUnlinked = () => [a, b].every((file) => !lstatSync(linkOf(file), { throwIfNoEntry: false }));
  const isDone = async () => (await used()) === sizeOf([c]) && areUnlinked();
  await whileWorking(() => waitFor('two copies to leave, and their links', isDone));
  expect([a, b, c].map((file) => existsSync(oldName(file)))).toEqual([true, true, true]);
  // one comes again
  mkdirSync(path.dirname(site.mountpoint + b), { recursive: true });
  writeFileSync(site.mountpoint + b, bytesOf(b));
  const { ino, mtimeNs, ctimeNs } = statSync(site.mountpoint + b, { bigint: true });
  await database.query(
    `UPDATE tape_file SET stage = 'RESTORED', disk_id = (SELECT id FROM restore_disk), disk_ino = $1, disk_mtime_ns = $2,
       disk_ctime_ns = $3 WHERE path = $4`,
    [ino, mtimeNs, ctimeNs, b],
  );
  await database.query(`INSERT INTO hold (request_id, file_id, ordinal, size, state)
    SELECT ${ids.pattern}, id, 1000, size, 'ON_DISK' FROM tape_file WHERE path = '${b}'`);
  // somebody has changed another one by its old name, and the disk is away for a while
  writeFileSync(oldName(a), 'changed');
  const marker = path.join(site.mountpoint, '.tapegate-disk');
  renameSync(marker, `${marker}.away`);
  const away = await finish();
  expect(away.counts).toEqual({ names: 0, kept: 0, left: 3, released: 0, bytes: 0 });
  expect(away.told.map(({ kind, thing, here }) => [kind, thing, here.includes('not mounted')])).toEqual(
    restored.map((file) => ['name-left', oldName(file), true]),
  );
  renameSync(`${marker}.away`, marker);
  const { counts, told } = await finish();
  expect(counts).toEqual({ names: 2, kept: 0, left: 1, released: 0, bytes: 0 });
  expect(told.map(({ kind, thing }) => [kind, thing])).toEqual([['name-left', oldName(a)]]);
  expect([a, b, c].map((file) => existsSync(oldName(file)))).toEqual([true, false, false]);
  expect([b, c].map((file) => readFileSync(site.mountpoint + file, 'utf8'))).toEqual([b, c].map(bytesOf));
  rmSync(oldName(a));
  expect((await finish()).counts).toEqual({ names: 0, kept: 0, left: 0, released: 0, bytes: 0 });
  const { rows } = await database.query(`SELECT FROM adopted WHERE kind = 'COPY' AND place IS NOT NULL`);
  expect(rows).toEqual([]);
});

test('a link of the system before to a copy that was let go here goes with its old name', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  await database.query(`UPDATE request SET retention = '2026-01-07' WHERE id <> $1`, [ids.pattern]);
  const [a, b, c] = restored as [string, string, string];
  const { LINK_ROOT: _, ...unlinked } = env;
  await whileWorking(() => waitFor('two copies to leave', async () => (await used()) === sizeOf([c])), unlinked);
  expect(await finish()).toEqual({ told: [], counts: { names: 2, kept: 1, left: 0, released: 0, bytes: 0 } });
  const links = [a, b, c].map((file) => lstatSync(path.join(site.archive, file), { throwIfNoEntry: false }));
  expect(links.map((stats) => stats?.isSymbolicLink())).toEqual([undefined, undefined, true]);
  expect(readFileSync(path.join(site.archive, c), 'utf8')).toBe(bytesOf(c));
});

test('a copy that stands where Tapegate has it keeps its only name, by whatever way its link went there', async () => {
  const [alias, file] = [`${site.mountpoint}-by-another-way`, '/badc/own/place.nc'];
  symlinkSync(site.mountpoint, alias);
  await site.client.query('UPDATE nla_control_restoredisk SET mountpoint = $1', [alias]);
  await site.insert('tapefile', {
    ...{ logical_path: file, size: bytesOf(file).length, stage: stageNumbers.R, restore_disk_id: 1 },
  });
  for (const folder of [site.mountpoint, site.archive]) mkdirSync(path.join(folder, '/badc/own'), { recursive: true });
  writeFileSync(site.mountpoint + file, bytesOf(file));
  symlinkSync(site.mountpoint + file, path.join(site.archive, file));
  await site.client.query(`UPDATE nla_control_taperequest SET request_files = $1 WHERE id = ${ids.waiting}`, [file]);
  await adopt(there.url, '--archive-root', site.archive);
  rmSync(path.join(site.archive, file));
  expect((await finish()).counts).toEqual({ names: 0, kept: restored.length, left: 0, released: 0, bytes: 0 });
  expect(readFileSync(site.mountpoint + file, 'utf8')).toBe(bytesOf(file));
});

test('users and requests come from CSV', async () => {
  const [quotas, requests] = [path.join(dir, 'quotas.csv'), path.join(dir, 'requests.csv')];
  writeFileSync(quotas, 'user,size,email\ncleo,1000000,cleo@example.org\n');
  writeFileSync(
    requests,
    'id,quota,label,retention,files\n77,cleo,mine,2098-01-01,"/a/1\n/a/2"\n78,nobody,his,2098-01-01,/a/1\n',
  );
  const { counts, differences } = await adopt('--quotas', quotas, '--requests', requests);
  expect(counts).toMatchObject({ quotas: 1, requests: 1 });
  expect(differences.map(({ kind, thing }) => `${kind} ${thing}`)).toContain('request-refused 78');
  expect((await adopt('--quotas', quotas, '--requests', requests)).counts).toMatchObject({ same: 2, requests: 0 });
  const { rows } = await database.query('SELECT id, label FROM request');
  expect(rows).toEqual([{ id: 77, label: 'mine' }]);
});

test('an id that cannot be one here is told, and leaves ids for new requests', async () => {
  const requests = path.join(dir, 'requests.csv');
  const refused = ['-5', 'abc', '1947483649', '2147483647', '4000000000', '99999999999', '1e3', '7 '];
  const rows = ['77', ...refused].map((id) => `${id},cleo,mine,2098-01-01,2026-01-01,/a/1\n`).join('');
  writeFileSync(
    requests,
    `id,quota,label,retention,request_date,files\n${rows},cleo,without,2098-01-01,2026-01-01,/a/1\n`,
  );
  const quotas = path.join(dir, 'quotas.csv');
  writeFileSync(quotas, 'user,size\ncleo,1000000\n');
  const trial = await adopt('--quotas', quotas, '--requests', requests, '--dry-run');
  const { counts, differences } = await adopt('--quotas', quotas, '--requests', requests);
  expect(trial.differences).toEqual(differences);
  expect(counts).toMatchObject({ quotas: 1, requests: 1, differences: refused.length + 1 });
  expect(differences.map(({ kind, thing }) => `${kind} ${thing}`).sort()).toEqual(
    [...refused, 'no id'].map((id) => `request-refused ${id}`).sort(),
  );
  expect(differences).toContainEqual({
    kind: 'request-refused',
    thing: '2147483647',
    there: 'a request',
    here: 'nothing: it is too large; ids here are numbers from 0 to 1947483648',
  });
});

test('a last id at the end of all ids is told, and leaves ids for new requests', async () => {
  await site.client.query(`SELECT setval('nla_control_taperequest_id_seq', 2147483647)`);
  const { counts, differences } = await adopt(there.url, '--archive-root', site.archive);
  expect(counts).toMatchObject({ requests: 6 });
  expect(differences).toContainEqual(
    expect.objectContaining({
      kind: 'request-refused',
      thing: '2147483647',
      there: 'the last id that was given to a request',
    }),
  );
  const { rows } = await database.query('SELECT last_value AS id FROM request_id_seq');
  expect(Number(rows[0].id)).toBe(ids.checking); // the largest of a request there
});

test('a program that opens restored files at their archive paths notices nothing of the switch', async () => {
  const script = `
    const { readFileSync } = require('node:fs');
    const files = ${JSON.stringify(restored.slice(0, 2))};
    let reads = 0;
    process.on('SIGTERM', () => { console.log('reads ' + reads); process.exit(0); });
    const turn = () => {
      for (const file of files) {
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
  await adopt(there.url, '--archive-root', site.archive);
  const engine = await workHere(env);
  const target = (file: string) => readlinkSync(path.join(site.archive, file));
  await waitFor('the links to lead to Tapegate’s names', async () =>
    restored.slice(0, 2).every((file) => target(file) === site.mountpoint + file),
  );
  const finished = await runCli(['adopt', '--finish', '--json'], { env });
  expect(JSON.parse(finished.stdout)).toMatchObject({ names: expect.any(Number), kept: expect.any(Number), left: 0 });
  expect(existsSync(path.join(site.mountpoint, 'archive/spot-1234-ocean/1986/a.nc'))).toBe(false);
  const { code, stdout } = await stop(program);
  expect(code).toBe(0);
  expect(Number(/reads (\d+)/.exec(stdout)?.[1])).toBeGreaterThan(100);
  expect(restored.slice(0, 2).map((file) => readFileSync(path.join(site.archive, file), 'utf8'))).toEqual(
    restored.slice(0, 2).map(bytesOf),
  );
  await engine.stop();
  const doctor = await runCli(['doctor', '--checksums'], { env });
  expect(doctor.stdout).not.toMatch(/^(copy|link|quota|request)-/m);
});

test('the way back lists what has come about here since', async () => {
  await adopt(there.url, '--archive-root', site.archive);
  const server = await serveHere(env);
  const send = async (method: string, what: string, body: object) => {
    const answer = await fetch(`${server.url}/tape_control/api/v1/${what}`, { method, body: JSON.stringify([body]) });
    return (await answer.json())[0];
  };
  const { req_id: made } = await send('POST', 'requests', {
    quota: 'ada',
    files: ['/badc/ocean/1988/new.nc'],
    label: 'made here',
  });
  await send('PUT', `requests/${ids.complete}`, { quota: 'ada', label: 'changed here' });
  await server.stop();
  const { stdout } = await runCli(['adopt', '--changes', '--json'], { env });
  const changes = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(changes.map(({ kind, thing }) => [kind, thing])).toEqual([
    ['request-changed', String(ids.complete)],
    ['request-made', String(made)],
  ]);
  expect(changes[1].here).toMatchObject({ user: 'ada', files: '/badc/ocean/1988/new.nc', label: 'made here' });
});

/**
 * A site of django-nla_control: its database tables, its restore disk, its archive paths, and the answers of its API.
 */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';

const TABLES = `
CREATE TABLE nla_control_quota (id serial PRIMARY KEY, "user" varchar(2024) NOT NULL, size bigint NOT NULL,
  email_address varchar(2024), notes text);
CREATE TABLE nla_control_restoredisk (id serial PRIMARY KEY, mountpoint varchar(1024) NOT NULL UNIQUE,
  allocated_bytes bigint NOT NULL, used_bytes bigint NOT NULL);
CREATE TABLE nla_control_tapefile (id serial PRIMARY KEY, logical_path varchar(2024) NOT NULL, size bigint NOT NULL,
  verified timestamp with time zone, stage integer NOT NULL,
  restore_disk_id integer REFERENCES nla_control_restoredisk (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE nla_control_taperequest (id serial PRIMARY KEY, label varchar(2024), retention timestamp with time zone,
  request_date timestamp with time zone, active_request boolean NOT NULL, storaged_request_start timestamp with time zone,
  storaged_request_end timestamp with time zone, first_files_on_disk timestamp with time zone,
  last_files_on_disk timestamp with time zone, request_files text NOT NULL, request_patterns varchar(2024),
  notify_on_first_file varchar(2024), notify_on_last_file varchar(2024),
  quota_id integer NOT NULL REFERENCES nla_control_quota (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE nla_control_taperequest_files (id serial PRIMARY KEY, taperequest_id integer NOT NULL, tapefile_id integer NOT NULL,
  UNIQUE (taperequest_id, tapefile_id));
CREATE TABLE nla_control_storagedslot (id serial PRIMARY KEY, pid integer, host_ip varchar(50), request_dir varchar(500),
  tape_request_id integer);
CREATE TABLE django_migrations (id serial PRIMARY KEY, app varchar(255), name varchar(255));
INSERT INTO django_migrations (app, name) VALUES ('nla_control', '0001_initial');`;

export const stageNumbers = { U: 0, T: 1, A: 2, D: 3, X: 4, R: 5 };

type Row = Record<string, unknown>;

export type NlaSite = Awaited<ReturnType<typeof createNlaSite>>;

/** @param at an empty database, and a directory for the site's files */
export async function createNlaSite(at: { connection: pg.ClientConfig; dir: string }) {
  const client = new pg.Client(at.connection);
  await client.connect();
  await client.query("SET TimeZone = 'UTC'");
  await client.query(TABLES);
  const [mountpoint, archive] = [path.join(at.dir, 'restore_1'), path.join(at.dir, 'archive')];
  mkdirSync(mountpoint);
  mkdirSync(archive);
  const insert = async (table: string, row: Row): Promise<number> => {
    const names = Object.keys(row);
    const { rows } = await client.query<{ id: number }>(
      `INSERT INTO nla_control_${table} (${names.map((name) => `"${name}"`).join(', ')})
       VALUES (${names.map((_, n) => `$${n + 1}`).join(', ')}) RETURNING id`,
      Object.values(row),
    );
    return rows[0]?.id as number;
  };
  return {
    client,
    /** Mount point of the restore disk. */
    mountpoint,
    /** Root directory of the archive paths. */
    archive,
    insert,
    /** Writes a restored file to the restore disk, and links the file's archive path to the copy. */
    restore: async (logicalPath: string, bytes: string): Promise<void> => {
      const copy = path.join(mountpoint, 'archive/spot-1234-ocean', logicalPath.slice('/badc/ocean'.length));
      mkdirSync(path.dirname(copy), { recursive: true });
      writeFileSync(copy, bytes);
      mkdirSync(path.dirname(path.join(archive, logicalPath)), { recursive: true });
      symlinkSync(copy, path.join(archive, logicalPath));
      await client.query(
        'UPDATE nla_control_tapefile SET stage = 5, restore_disk_id = (SELECT min(id) FROM nla_control_restoredisk) WHERE logical_path = $1',
        [logicalPath],
      );
    },
    /** Answers a request like the API of nla_control. */
    answer: (what: string) => answer(client, what),
    close: () => client.end(),
  };
}

const ISO = (column: string) => `regexp_replace(to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS.US'), '\\.000000$', '')`;
const TIMES = ['storaged_request_start', 'storaged_request_end', 'first_files_on_disk', 'last_files_on_disk'];
const withoutNull = (row: Row, names: readonly string[]) =>
  Object.fromEntries(Object.entries(row).filter(([name, value]) => value !== null || !names.includes(name)));

/** Answers `requests/N`, `quota/USER` or `files?match=…`. The path has no API prefix. */
async function answer(client: pg.Client, what: string): Promise<Row> {
  const [, id] = /^requests\/(\d+)$/.exec(what) ?? [];
  if (id !== undefined) return await answerRequest(client, Number(id));
  const [, user] = /^quota\/(.+)$/.exec(what) ?? [];
  if (user !== undefined) return await answerQuota(client, user);
  const match = new URLSearchParams(what.slice('files?'.length)).get('match') ?? '';
  const { rows } = await client.query<Row & { stage: number }>(
    `SELECT logical_path AS path, size::int AS size, ${ISO('verified')} AS verified, stage FROM nla_control_tapefile
     WHERE strpos(logical_path, $1) > 0 AND stage <> 4 ORDER BY logical_path`,
    [match],
  );
  const letters = Object.fromEntries(Object.entries(stageNumbers).map(([letter, n]) => [n, letter]));
  return { count: rows.length, files: rows.map((row) => ({ ...row, stage: letters[row.stage] })) };
}

async function answerRequest(client: pg.Client, id: number): Promise<Row> {
  const { rows } = await client.query<Row & { request_files: string; request_patterns: string }>(
    `SELECT r.id, q."user" AS quota, ${ISO('r.retention')} AS retention, ${ISO('r.request_date')} AS request_date, r.request_patterns,
       r.notify_on_first_file, r.notify_on_last_file, r.label, ${TIMES.map((name) => `${ISO(`r.${name}`)} AS ${name}`).join(', ')},
       r.request_files
     FROM nla_control_taperequest r JOIN nla_control_quota q ON q.id = r.quota_id WHERE r.id = $1`,
    [id],
  );
  const [row] = rows;
  if (!row) throw new Error(`no request ${id}`);
  const { request_files, ...rest } = row;
  const matching = await client.query<{ path: string }>(
    `SELECT logical_path AS path FROM nla_control_tapefile WHERE strpos(logical_path, $1) > 0 ORDER BY logical_path`,
    [row.request_patterns],
  );
  const given = await client.query<{ path: string }>(
    `SELECT f.logical_path AS path FROM nla_control_taperequest_files g JOIN nla_control_tapefile f ON f.id = g.tapefile_id
     WHERE g.taperequest_id = $1 ORDER BY f.id`,
    [id],
  );
  const found = row.request_patterns ? matching : given;
  const files =
    !row.request_patterns && request_files ? request_files.split('\n') : found.rows.map((file) => file.path);
  return { ...withoutNull(rest, TIMES), files };
}

async function answerQuota(client: pg.Client, user: string): Promise<Row> {
  const { rows } = await client.query<Row & { id: number }>(
    `SELECT q.id, q."user", q.size::int8::text AS size, q.email_address AS email, q.notes,
       coalesce((SELECT sum(f.size) FROM nla_control_taperequest r JOIN nla_control_taperequest_files g ON g.taperequest_id = r.id
         JOIN nla_control_tapefile f ON f.id = g.tapefile_id WHERE r.quota_id = q.id AND r.retention >= now()), 0)::int AS used
     FROM nla_control_quota q WHERE q."user" = $1`,
    [user],
  );
  const [quota] = rows;
  if (!quota) throw new Error(`no quota of ${user}`);
  const requests = await client.query<Row>(
    `SELECT id, ${ISO('retention')} AS retention, ${ISO('request_date')} AS request_date, label,
       ${TIMES.map((name) => `${ISO(name)} AS ${name}`).join(', ')}
     FROM nla_control_taperequest WHERE quota_id = $1 ORDER BY id`,
    [quota.id],
  );
  return { ...quota, size: Number(quota.size), requests: requests.rows.map((row) => withoutNull(row, TIMES)) };
}

/** Paths of files that the site has restored. */
export const restored = ['/badc/ocean/1986/a.nc', '/badc/ocean/1986/b.nc', '/badc/ocean/1987/c.nc'] as const;
export const bytesOf = (file: string): string => `bytes of ${file}`;

/** Adds requests of each kind to the site. @returns the ids of the requests by name */
export async function fillNlaSite(site: NlaSite): Promise<Record<string, number>> {
  const ids: Record<string, number> = {};
  await site.insert('restoredisk', { mountpoint: site.mountpoint, allocated_bytes: 10 ** 9, used_bytes: 0 });
  const quota = (user: string, more = {}) => {
    const row = { user, size: 10 ** 6, email_address: `${user}@example.org`, notes: `notes of ${user}` };
    return site.insert('quota', { ...row, ...more });
  };
  await quota('gone'); // delete a quota, so that ids have gaps
  await site.client.query('DELETE FROM nla_control_quota');
  const [ada, bob, verify] = [
    await quota('ada'),
    await quota('bob', { size: 10, notes: 'it\'s \\ a "note",\nin two\r\nlines\u2028\t.' }),
    await quota('_VERIFY'),
  ];
  const files: Record<string, number> = {};
  const file = async (path: string, stage: keyof typeof stageNumbers) => {
    const verified = stage === 'U' ? null : '2017-01-18 16:59:05.244150+00';
    const row = { logical_path: path, size: bytesOf(path).length, verified, stage: stageNumbers[stage] };
    files[path] = await site.insert('tapefile', row);
  };
  for (const name of restored) await file(name, 'T');
  for (const name of restored) await site.restore(name, bytesOf(name));
  await file('/badc/ocean/1987/on tape.nc', 'T');
  await file('/badc/ocean/1988/on-its-way.nc', 'A');
  await file('/badc/ocean/1988/on-disk.nc', 'D');
  await file('/badc/ocean/1988/new.nc', 'U');
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
  const over = { ...done, retention: '2026-01-07 00:00:00+00', request_files: restored[2] };
  await request('over', over, restored.slice(2));
  await request('given', { ...done, label: null }, ['/badc/ocean/1988/on-disk.nc']);
  await request('checking', { quota_id: verify, request_files: '/badc/ocean/1988/new.nc' });
  await request('tidied', {});
  await site.client.query(`DELETE FROM nla_control_taperequest WHERE id = ${ids.tidied}`);
  await site.client.query(`UPDATE nla_control_tapefile SET restore_disk_id = 1 WHERE stage = 2`);
  return ids;
}

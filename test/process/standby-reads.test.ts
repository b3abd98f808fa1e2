/** Lists that are read from a standby, including a standby that is behind, silent, gone or promoted. */
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type DatabasePair, startDatabasePair } from '../support/database-pair.js';
import { askData } from '../support/graphql.js';
import { request, send } from '../support/http.js';
import { cleanUp, type LocalServer, makeDataDir, runCli, serveHere } from '../support/process.js';
import { makeRequest, read } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let pair: DatabasePair;
let env: Record<string, string>;
let server: LocalServer;
let other: LocalServer;

beforeAll(async () => {
  const dir = makeDataDir();
  pair = await startDatabasePair(dir, 'tapes', { max_standby_streaming_delay: '100ms' });
  env = {
    DATABASE_URL: pair.primaryUrl,
    TAPEGATE_DATABASE_READ_URL: pair.standbyUrl,
    TAPEGATE_READ_WAIT_MS: '5000', // on a busy machine a standby may be late
    DATA_DIR: path.join(dir, 'data'),
    DEMO: 'off',
  };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'alice', '--size', '1T'], { env })).toMatchObject({ code: 0 });
  await pair.askPrimary(`INSERT INTO tape_file (path, size, stage)
    SELECT '/long/' || repeat('x', 600) || n, n, 'ONTAPE' FROM generate_series(1, 20000) n`);
  server = await serveHere(env);
  other = await serveHere({ ...env, TAPEGATE_READ_WAIT_MS: '0' }); // this gateway does not wait for the standby
  await untilUsed();
}, 120_000);

afterAll(async () => {
  await cleanUp();
  await pair?.close();
});

const standbysOf = async (of = server) =>
  ((await send(of, '/health/ready')).body as { standbys: { used: number; behindBytes: number } }).standbys;
const untilUsed = () =>
  waitFor('lists to be read at the standby', async () => {
    const before = countLists().standby;
    await Promise.all([listIds(), listIds(other)]);
    return countLists().standby === before + 2;
  });
const untilPassedOver = () =>
  waitFor('the standby to be passed over', async () => (await standbysOf()).used === 0, 30_000);

const fields = (name: string) => ({ quota: 'alice', files: [`/standby/${name}`] });

/** Returns the ids in the list of requests. */
async function listIds(of = server): Promise<number[]> {
  const { requests } = await read<{ requests: { id: number }[] }>(of, '/requests');
  return requests.map(({ id }) => id);
}

const LIST = 'FROM request r JOIN quota q';
/** Counts the queries for lists of requests on each server. */
const countLists = () => ({ standby: pair.standby.countOf(LIST), primary: pair.primary.countOf(LIST) });

test('lists are read at the standby, and contain requests made just before at any gateway', async () => {
  const before = countLists();
  for (let n = 0; n < 12; n++) {
    const id = await makeRequest(n % 2 ? server : other, fields(`own-${n}`));
    expect(await listIds(n % 3 ? server : other)).toContain(id);
  }
  expect(countLists().standby).toBeGreaterThan(before.standby);
});

test('lists of files, and counts and pages of GraphQL, are read at the standby', async () => {
  const before = { standby: pair.standby.countOf('tape_file f'), primary: pair.primary.countOf('tape_file f') };
  expect(await read(server, `/files?match=${'x'.repeat(80)}17777`)).toMatchObject({ count: 1 });
  const query = '{ tapeFiles(match: "xx1234", first: 2) { totalCount edges { node { path } } } }';
  expect(await askData(server, query)).toMatchObject({ tapeFiles: { totalCount: 11 } });
  expect(pair.standby.countOf('tape_file f') - before.standby).toBeGreaterThan(2);
  expect(pair.primary.countOf('tape_file f') - before.primary).toBe(0);
});

test('lists are read at the primary while the standby is behind', async () => {
  await pair.askStandby('SELECT pg_wal_replay_pause()');
  const pause = 'SELECT pg_get_wal_replay_pause_state() AS state';
  await waitFor('replaying to pause', async () => (await pair.askStandby(pause))[0]?.state === 'paused');
  const before = countLists();
  const id = await makeRequest(other, fields('not-replayed'));
  expect(await listIds()).toContain(id);
  const after = countLists(); // a slow list may be queried twice
  expect([after.standby, after.primary > before.primary]).toEqual([before.standby, true]);
  await untilPassedOver();
  expect((await standbysOf()).behindBytes).toBeGreaterThan(0);
  await pair.askStandby('SELECT pg_wal_replay_resume()');
  await untilUsed();
});

test('lists are read from the primary while the standby is silent or stopped', async () => {
  pair.standby.freeze();
  expect((await listIds()).length).toBeGreaterThan(10);
  await untilPassedOver();
  pair.standby.thaw();
  await untilUsed();
  await pair.standby.refuse();
  expect((await listIds()).length).toBeGreaterThan(10);
  await untilPassedOver();
  await pair.standby.accept();
  await untilUsed();
});

test('a list that has begun breaks off with its standby', async () => {
  const answer = await request(server, '/tape_control/api/v1/files');
  const reader = answer.body?.getReader();
  expect((await reader?.read())?.value?.length).toBeGreaterThan(0);
  await pair.standby.refuse();
  const rest = async () => {
    while (!(await reader?.read())?.done);
  };
  await expect(rest()).rejects.toThrow();
  await pair.standby.accept();
  await untilUsed();
});

test('a list that is cancelled because it blocks the replay is read at the primary', async () => {
  const waiting = `SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${LIST}%'`;
  const [block, commit] = [await pair.connectPrimary(), () => pair.askPrimary('SELECT pg_switch_wal()')];
  try {
    await block.query('BEGIN; LOCK TABLE quota');
    await commit();
    await pair.catchUp();
    const list = listIds();
    await waitFor('the list to wait at the standby', async () => (await pair.askStandby(waiting))[0]?.n === 1);
    await block.query('LOCK TABLE request');
    await commit();
    await waitFor('the list to wait at the primary', async () => (await pair.askPrimary(waiting))[0]?.n === 1);
    await block.query('ROLLBACK');
    expect((await list).length).toBeGreaterThan(10);
  } finally {
    await block.end();
  }
});

test('the primary and other databases are refused as standbys', async () => {
  for (const [url, problem] of [
    [pair.primaryUrl, 'the server is not a standby'],
    [pair.standbyUrl.replace(/tapes$/, 'postgres'), 'the URL of the standby names database postgres, not tapes'],
  ] as const) {
    const misled = await serveHere({ ...env, TAPEGATE_DATABASE_READ_URL: url });
    await waitFor('its log to say why', async () => misled.stderr().includes(`"problem":"${problem}"`));
    expect((await listIds(misled)).length).toBeGreaterThan(10);
    expect(misled.stderr()).not.toContain('postgres@');
  }
});

test('a promoted standby is no standby, and a standby of the old primary is none of the new one', async () => {
  const left = await pair.addStandby();
  await pair.promote();
  await untilPassedOver();
  const before = countLists();
  const id = await makeRequest(server, fields('promoted'));
  expect(await listIds()).toContain(id);
  expect(countLists().standby).toBe(before.standby);
  expect(server.stderr()).toContain('"problem":"the server is not a standby"');
  const moved = await serveHere({ ...env, DATABASE_URL: pair.standbyUrl, TAPEGATE_DATABASE_READ_URL: left });
  const mine = await makeRequest(moved, fields('on-the-new-timeline'));
  expect(await listIds(moved)).toContain(mine);
  expect(await listIds(moved)).not.toContain(id); // the old primary accepted this request after the promotion
  await waitFor('its log to say why', async () =>
    moved.stderr().includes('"problem":"the standby follows timeline 1, but the primary is on timeline 2"'),
  );
});

/** The history of the site and of quotas, and the list of running processes. */
import { expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { writeHistory } from '../../src/domain/site/curves.js';
import { deleteProcess, recordProcess } from '../../src/domain/site/processes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData } from '../support/graphql.js';
import { useApp } from '../support/use-app.js';

let now = '2026-11-23T10:02:00';
let viewer: { url: string; token: string };
const never = new AbortController().signal;

const app = useApp({ now: () => now }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  await addFiles(app.ctx, [
    { path: '/a/1', size: 700n, stage: 'ONTAPE' },
    { path: '/a/2', size: 300n, stage: 'ONTAPE' },
  ]);
  await app.ctx.db.pool.query(`INSERT INTO drive (name) VALUES ('drive-1')`);
  const { secret } = await createToken(app.ctx, { name: 'auditor', role: 'VIEWER' });
  viewer = { url: app.url, token: secret };
});

const POINT = 'at seconds filesRestored bytesRestored filesFailed filesWaiting oldestSeconds drivesInUse driveCount';
async function readPoints(since = '2026-01-01'): Promise<Record<string, unknown>[]> {
  const query = `query ($since: DateTime!) { history(since: $since) { ${POINT} } }`;
  return (await askData<{ history: Record<string, unknown>[] }>(viewer, query, { since })).history;
}

/** Writes the event that an engine writes after a restore. */
async function restore(path: string, at: string): Promise<void> {
  await app.ctx.db.pool.query(
    `INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
     SELECT $2::timestamp, id, 'RESTORING', 'RESTORED', '{}' FROM tape_file WHERE path = $1`,
    [path, at],
  );
}

test('engines that count at the same time count each file once, in the slot of its time', async () => {
  await writeHistory(app.ctx, never);
  await createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
  await restore('/a/1', '2026-11-23T10:03:10');
  await restore('/a/2', '2026-11-23T10:06:00');
  now = '2026-11-23T10:06:30';
  await Promise.all(Array.from({ length: 4 }, () => writeHistory(app.ctx, never)));
  const none = { seconds: 300, filesFailed: 0, drivesInUse: 0, driveCount: 1 };
  expect(await readPoints()).toEqual([
    { ...none, at: '2026-11-23T10:00:00Z', filesRestored: 1, bytesRestored: '700', filesWaiting: 0, oldestSeconds: 0 },
    {
      ...none,
      at: '2026-11-23T10:05:00Z',
      filesRestored: 1,
      bytesRestored: '300',
      filesWaiting: 2,
      oldestSeconds: 270,
    },
  ]);
});

test('failed files are counted from the progress of their request', async () => {
  const fail = (failed: number) =>
    app.ctx.db.pool.query(
      `INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
       SELECT $1::timestamp, '{}', 1, 'RESTORING', 9, 0, $2, 9, 0`,
      [now, failed],
    );
  now = '2026-11-23T10:11:00';
  for (const failed of [2, 2, 3]) await fail(failed);
  await writeHistory(app.ctx, never);
  await fail(4);
  await writeHistory(app.ctx, never);
  expect((await readPoints('2026-11-23T10:10:00')).map(({ filesFailed }) => filesFailed)).toEqual([4]);
});

test('after two days rows are merged by hour, and after ninety they are removed', async () => {
  now = addSeconds(now, 3 * 24 * 3600);
  await writeHistory(app.ctx, never);
  const points = await readPoints();
  const [hour, present] = [points[0], points.at(-1)];
  expect(hour).toMatchObject({ at: '2026-11-23T10:00:00Z', seconds: 3600, filesRestored: 2, bytesRestored: '1000' });
  expect(hour).toMatchObject({ filesFailed: 4, oldestSeconds: 540, driveCount: 1 });
  expect(present).toMatchObject({ seconds: 300, filesRestored: 0, filesWaiting: 2 });
  // the first point is omitted, because its hour began earlier
  expect(await readPoints('2026-11-23T10:01:00')).toEqual(points.slice(1));
  now = addSeconds(now, 91 * 24 * 3600);
  await writeHistory(app.ctx, never);
  expect(await readPoints()).toHaveLength(1);
});

test('the history of a quota shows its use by the hour, if it changed', async () => {
  const begin = '2026-12-01T10:20:00';
  await addQuota(app.ctx, 'bob', 100n);
  const setUsed = (used: number) => app.ctx.db.pool.query(`UPDATE quota SET used = $1 WHERE "user" = 'bob'`, [used]);
  for (const [hours, used] of [
    [0, 10],
    [0.3, 20], // within the same hour
    [1, 30],
    [2, 30], // nothing has changed
    [30, 0],
  ] as const) {
    now = addSeconds(begin, hours * 3600);
    await setUsed(used);
    await Promise.all([writeHistory(app.ctx, never), writeHistory(app.ctx, never)]);
  }
  const read = async (since: string) => {
    const query = `query ($since: DateTime!) { quota(user: "bob") { history(since: $since) { at used size } } }`;
    const { data, errors } = await ask(viewer, query, { since });
    const { quota } = (data ?? {}) as { quota?: { history: { at: string; used: string; size: string }[] } };
    return errors?.[0]?.message ?? quota?.history.map(({ at, used, size }) => `${at.slice(8, 16)} ${used}/${size}`);
  };
  const later = ['01T11:00 30/100', '02T16:00 0/100', '02T16:20 0/100'];
  expect(await read('2026-11-01')).toEqual(['01T10:00 10/100', ...later]);
  // the first point has the start of the period as its time, and a value recorded earlier
  expect(await read('2026-12-01T10:30:00Z')).toEqual(['01T10:30 10/100', ...later]);
  expect(await read('2027-01-01')).toMatch(/^since must not be in the future/);
  await setUsed(50);
  expect(((await read('2026-12-02T16:10:00Z')) as string[]).at(-1)).toBe('02T16:20 50/100');
  now = addSeconds(now, 91 * 24 * 3600);
  await writeHistory(app.ctx, never);
  expect(await read('2026-11-01')).toHaveLength(2);
});

test('the list of processes shows what they reported, until they end or are silent for a day', async () => {
  const [id, other] = ['3b1f5cfe-0000-4000-8000-000000000001', '3b1f5cfe-0000-4000-8000-000000000002'];
  const own = { host: 'tape-1', pid: 4711, version: '1.2.3' };
  await recordProcess(app.ctx, { ...own, id, kind: 'GATEWAY' });
  await recordProcess(app.ctx, { ...own, id: other, kind: 'ENGINE' });
  await recordProcess(app.ctx, { ...own, id, kind: 'GATEWAY' });
  await app.ctx.db.pool.query(`UPDATE running_process SET seen_at = seen_at - interval '1 hour' WHERE kind = 'ENGINE'`);
  const query = '{ processes { kind host pid version isAlive lagSeconds } }';
  const read = async () => (await askData<{ processes: object[] }>(viewer, query)).processes;
  const told = { ...own, lagSeconds: 0 };
  expect(await read()).toEqual([
    { ...told, kind: 'ENGINE', isAlive: false },
    { ...told, kind: 'GATEWAY', isAlive: true },
  ]);
  await app.ctx.db.pool.query(`UPDATE running_process SET seen_at = seen_at - interval '1 day' WHERE kind = 'ENGINE'`);
  await recordProcess(app.ctx, { ...own, id, kind: 'GATEWAY' });
  expect(await read()).toHaveLength(1);
  await deleteProcess(app.ctx, id);
  expect(await read()).toEqual([]);
});

/**
 * Ended requests: reads of live requests skip files of ended requests, a request can be revived, and the emails lose
 * their text.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { observeTransactions } from '../../src/db/transaction.js';
import { markCleared } from '../../src/domain/disks/removals.js';
import { finishRecalls } from '../../src/domain/recalls/ends.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { pruneEmails } from '../../src/domain/site/pruning.js';
import type { TestApp } from '../support/app.js';
import { claim, startByHand, startIdleApp } from '../support/engine-by-hand.js';
import { addFiles } from '../support/factories.js';
import { made, release, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { keepTables } from '../support/tables.js';
import { countRows } from '../support/writes.js';

let app: TestApp;
let restart: () => Promise<void>;
beforeAll(async () => {
  app = await startIdleApp();
  restart = await keepTables(app.ctx);
});
beforeEach(() => restart());
afterAll(() => app.close());

const sql = async <Row extends object>(text: string, values: unknown[] = []) =>
  (await app.ctx.db.pool.query<Row>(text, values)).rows;

/**
 * Restores a file for all requests that wait for the file.
 * @returns the number of request files that each transaction read
 */
async function restore(file: string): Promise<number[]> {
  const lease = await claim(app);
  const work = await countRows(async () => {
    const [started] = await startByHand(app, lease, [file]);
    const copy = { ino: 1n, mtimeNs: 1n, ctimeNs: 1n, checksum: null };
    await finishRecalls(app.ctx, lease, [{ kind: 'restored', fileId: started?.fileId ?? 0n, ...copy }]);
  });
  expect(work.map(({ transaction }) => transaction)).toEqual(['startRecalls', 'finishRecalls']);
  return work.map(({ read }) => read.request_file ?? 0);
}

/** Adds 299 ended requests that contain the file of request `id`. */
async function addEnded(id: number): Promise<void> {
  await sql(`INSERT INTO request (quota_id, label, request_date, retention, state, files_total, bytes_total, is_released)
    SELECT quota_id, label || n, request_date, retention, 'CANCELLED', 1, 1000, false FROM request, generate_series(2, 300) n WHERE id = ${id}`);
  await sql(`INSERT INTO request_file (request_id, file_id, ordinal, size)
    SELECT r.id, h.file_id, 1, 1000 FROM request r, request_file h WHERE h.request_id = ${id} AND r.id > ${id}`);
}

const revive = (id: number) => update(app, { requestId: id, retention: '2099-01-01T00:00:00Z' });

test('a restore reads no more request files for 300 ended requests of the file than for none', async () => {
  await addFiles(app.ctx, [{ path: '/cost/1' }, { path: '/cost/2' }]);
  for (const file of ['/cost/1', '/cost/2']) {
    const id = await made(app, { quota: 'alice', files: [file] });
    await cancelRequest(app.ctx, id);
    await addEnded(id);
    if (file === '/cost/2')
      for (const { id } of await sql<{ id: number }>('SELECT id FROM request')) await markCleared(app.ctx, id);
    await made(app, { quota: 'alice', files: [file] });
    // without `is_ended` marks, the files of ended requests are read too; the exact number depends on the query plan
    for (const read of await restore(file)) expect(read > 300).toBe(file === '/cost/1');
  }
});

test('a file of a request is looked up by both, however many other requests contain the file', async () => {
  await addFiles(app.ctx, [{ path: '/popular/1' }]);
  const id = await made(app, { quota: 'alice', files: ['/popular/1'] });
  await addEnded(id);
  for (const isKnown of [false, true]) {
    if (isKnown) await sql('ANALYZE request_file');
    await sql(`UPDATE request_file SET is_ended = true WHERE request_id > ${id}`);
    const [work] = await countRows(() => release(app, { requestId: id, paths: ['/popular/1'] }));
    expect(work?.read.request_file).toBeLessThan(20);
  }
});

test('a revived request gets its files like a new one, except those that it released', async () => {
  await addFiles(app.ctx, [{ path: '/revived/1' }, { path: '/revived/2' }]);
  const id = await made(app, { quota: 'alice', files: ['/revived/1', '/revived/2'] });
  const isMarked = async () =>
    (await sql<{ isEnded: boolean }>('SELECT is_ended AS "isEnded" FROM request_file ORDER BY ordinal')).map(
      (row) => row.isEnded,
    );
  await sql(`UPDATE request SET is_released = false`);
  expect(await markCleared(app.ctx, id)).toBe(true);
  expect(await isMarked()).toEqual([false, false]);
  // cancels the request after its files were marked as ended, so the marking must be repeated
  const stop = observeTransactions({
    asks: true,
    onBegin: () => {},
    onStatement: async ({ name }, { text }) => {
      if (name === 'markEnded' && text.startsWith('UPDATE request_file')) await cancelRequest(app.ctx, id);
    },
  });
  expect(await markCleared(app.ctx, id).finally(stop)).toBe(false);
  expect(await markCleared(app.ctx, id)).toBe(true);
  expect(await isMarked()).toEqual([true, true]);
  expect(await revive(id)).toMatchObject({ __typename: 'Request' });
  expect(await isMarked()).toEqual([false, false]);
  await restore('/revived/1');
  await restore('/revived/2');
  expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 2 });
});

test('the files of an ended request are marked in steps, and a later run goes on after a failure', async () => {
  const files = ['/steps/1', '/steps/2', '/steps/3'];
  await addFiles(
    app.ctx,
    files.map((path) => ({ path })),
  );
  const id = await made(app, { quota: 'alice', files });
  await cancelRequest(app.ctx, id);
  await sql('UPDATE request_file SET ordinal = ordinal * 10000');
  const readMarks = () => sql('SELECT is_ended AS "isEnded" FROM request_file ORDER BY ordinal');
  await sql('ALTER TABLE request_file ADD CONSTRAINT broken CHECK (ordinal < 30000 OR NOT is_ended)');
  await expect(markCleared(app.ctx, id)).rejects.toThrow('broken');
  expect(await readMarks()).toEqual([{ isEnded: true }, { isEnded: true }, { isEnded: false }]);
  await sql('ALTER TABLE request_file DROP CONSTRAINT broken');
  expect(await markCleared(app.ctx, id)).toBe(true);
  expect(await readMarks()).toEqual([{ isEnded: true }, { isEnded: true }, { isEnded: true }]);
});

test('a sent email loses its text 30 days after the end of its request, and is not sent again', async () => {
  await addFiles(app.ctx, [{ path: '/mail/1', stage: 'ONDISK' }]);
  const id = await made(app, { quota: 'alice', files: ['/mail/1'], notifyOnFirstFile: 'a@b', notifyOnLastFile: 'a@b' });
  await sql(`UPDATE notification SET state = 'SENT' WHERE kind = 'FIRST_FILE'`);
  const pruneIn = async (days: number) => {
    const later = { ...app.ctx, now: () => addSeconds(app.ctx.now(), days * 86_400) };
    await pruneEmails(later, new AbortController().signal);
    return await sql(`SELECT kind, state, body = '' AS "isEmpty" FROM notification ORDER BY kind`);
  };
  const [first, last] = [
    { kind: 'FIRST_FILE', state: 'SENT' },
    { kind: 'LAST_FILE', state: 'PENDING' },
  ];
  const whole = [
    { ...first, isEmpty: false },
    { ...last, isEmpty: false },
  ];
  expect(await pruneIn(40)).toEqual(whole); // the request is live although its retention has passed
  await cancelRequest(app.ctx, id);
  expect(await pruneIn(29)).toEqual(whole);
  const pruned = [
    { ...first, isEmpty: true },
    { ...last, isEmpty: false },
  ];
  expect(await pruneIn(31)).toEqual(pruned);
  await revive(id);
  expect(await pruneIn(0)).toEqual(pruned);
});

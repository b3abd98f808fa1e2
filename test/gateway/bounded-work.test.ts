/** What changes costs what has changed, and not what there is. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { readUnheld } from '../../src/operations/disks/removals.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { releaseFiles } from '../../src/operations/requests/releases.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { emptyTables } from '../support/tables.js';
import { countRows, type Work } from '../support/writes.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
beforeEach(async () => {
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(() => app.close());

const MANY = 400;
const pathsOf = (folder: string) => Array.from({ length: MANY }, (_, n) => ({ path: `${folder}/${n}` }));
const only = (done: Work[], name: string) => {
  const found = done.filter(({ transaction }) => transaction === name);
  expect(found).toHaveLength(1);
  return found[0] as Work;
};

test('a file that joins a standing request costs one row, however many files wait in there', async () => {
  await addFiles(app.ctx, pathsOf('/standing'));
  await createRequest(app.ctx, { quota: 'alice', pattern: '/standing' });
  const done = only(await countRows(() => addFiles(app.ctx, [{ path: '/standing/new' }])), 'importRows');
  expect(done.written).toMatchObject({ hold: 1, recall: 1, tape_file: 1 });
  expect(done.written.awaited_path ?? 0).toBe(0);
});

test('so does one whose place an import changes', async () => {
  await addFiles(app.ctx, pathsOf('/moved'));
  await createRequest(app.ctx, { quota: 'alice', pattern: '/moved' });
  const done = only(await countRows(() => addFiles(app.ctx, [{ path: '/moved/1', position: 10_000n }])), 'importRows');
  expect(done.written.recall).toBeLessThanOrEqual(2);
  expect(done.written.hold ?? 0).toBe(0);
});

test('paths that a full quota keeps out cost nothing while it is full, and join when there is room', async () => {
  await setQuota(app.ctx, { user: 'alice', size: 2000n });
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/full' });
  await addFiles(app.ctx, pathsOf('/full'));
  expect(await countRows(() => joinAwaited(app.ctx))).toEqual([]);
  await setQuota(app.ctx, { user: 'alice', size: 3000n });
  const done = only(await countRows(() => joinAwaited(app.ctx)), 'joinAwaited');
  expect(done.written).toMatchObject({ hold: 1, recall: 1, awaited_path: 1 });
  expect(await countRows(() => joinAwaited(app.ctx))).toEqual([]);
  const { rows } = await app.ctx.db.pool.query('SELECT files_total FROM request WHERE id = $1', [id]);
  expect(rows).toEqual([{ files_total: 3 }]);
});

test('the end of a large request costs its files, also where PostgreSQL takes the queue for empty', async () => {
  await addFiles(app.ctx, pathsOf('/ended'));
  for (const table of ['recall', 'hold']) await app.ctx.db.pool.query(`VACUUM (ANALYZE) ${table}`);
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/ended' });
  const done = only(await countRows(() => cancelRequest(app.ctx, id)), 'cancelRequest');
  expect(done.written.recall).toBe(MANY);
  expect(done.read.recall ?? 0).toBeLessThan(MANY * 10);
  expect(done.read.hold ?? 0).toBeLessThan(MANY * 10);
});

test('what an ended request held is looked through page by page, each hold once, in rows and in bundles', async () => {
  await addFiles(
    app.ctx,
    pathsOf('/left').map(({ path }, n) => ({ path, stage: n % 2 === 0 ? 'RESTORED' : 'ONTAPE' })),
  );
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/left' });
  const look = async () => {
    let [pages, copies] = [0, 0];
    const seen = new Set<bigint>();
    for (let after: number | undefined = 0; after !== undefined; ) {
      const page: Awaited<ReturnType<typeof readUnheld>> = await readUnheld(app.ctx, {
        requestId: id,
        after,
        limit: 150,
      });
      for (const { fileId } of page.copies) seen.add(fileId);
      pages++;
      copies += page.copies.length;
      after = page.last;
    }
    return { pages, copies, seen: seen.size };
  };
  await releaseFiles(app.ctx, { id, match: '/left/1' }); // 1, 10 to 19 and 100 to 199: half of them are restored
  expect(await look()).toEqual({ pages: 1, copies: 55, seen: 55 });
  await cancelRequest(app.ctx, id);
  const looked = { pages: 3, copies: MANY / 2, seen: MANY / 2 };
  expect(await look()).toEqual(looked);
  await compactRequests({ ...app.ctx, config: { ...app.ctx.config, requestDays: 0 } }, new AbortController().signal);
  const { rows } = await app.ctx.db.pool.query('SELECT form FROM request WHERE id = $1', [id]);
  expect(rows).toEqual([{ form: 'COMPACT' }]);
  expect(await look()).toEqual(looked);
});

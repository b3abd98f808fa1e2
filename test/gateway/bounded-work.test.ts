/** The cost of a change depends on the number of changed rows, not on the number of existing rows. */
import { beforeEach, expect, test } from 'vitest';
import { readUnheld } from '../../src/domain/disks/removals.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, releaseFiles } from '../../src/domain/requests/ends.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { addFiles, addQuota } from '../support/factories.js';
import { emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { countRows, type Work } from '../support/writes.js';

const app = useApp();
beforeEach(async () => {
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});

const MANY = 400;
const pathsOf = (directory: string) => Array.from({ length: MANY }, (_, n) => ({ path: `${directory}/${n}` }));
const only = (done: Work[], name: string) => {
  const found = done.filter(({ transaction }) => transaction === name);
  expect(found).toHaveLength(1);
  return found[0] as Work;
};

test.each([
  ['a new file that joins an open pattern', { path: '/open/new' }, { request_file: 1, recall: 1, tape_file: 1 }, 1],
  [
    'a file whose position an import changes',
    { path: '/open/1', position: 10_000n },
    { request_file: 0, tape_file: 1 },
    2,
  ],
])('%s costs few rows, however many files the request contains', async (_what, file, written, recalls) => {
  await addFiles(app.ctx, pathsOf('/open'));
  await createRequest(app.ctx, { quota: 'alice', pattern: '/open' });
  const done = only(await countRows(() => addFiles(app.ctx, [file])), 'importRows').written;
  expect({ request_file: 0, ...done }).toMatchObject(written);
  expect(done.recall).toBeLessThanOrEqual(recalls);
  expect(done.unresolved_path).toBeUndefined();
});

test('paths that a full quota excludes cost nothing while it is full, and join when there is room', async () => {
  await setQuota(app.ctx, { user: 'alice', size: 2000n });
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/full' });
  await addFiles(app.ctx, pathsOf('/full'));
  expect(await countRows(() => joinUnresolved(app.ctx))).toEqual([]);
  await setQuota(app.ctx, { user: 'alice', size: 3000n });
  const done = only(await countRows(() => joinUnresolved(app.ctx)), 'joinUnresolved');
  expect(done.written).toMatchObject({ request_file: 1, recall: 1, unresolved_path: 1 });
  expect(await countRows(() => joinUnresolved(app.ctx))).toEqual([]);
  const { rows } = await app.ctx.db.pool.query('SELECT files_total FROM request WHERE id = $1', [id]);
  expect(rows).toEqual([{ files_total: 3 }]);
});

test('the end of a large request costs its own files, also if PostgreSQL believes the queue to be empty', async () => {
  await addFiles(app.ctx, pathsOf('/ended'));
  for (const table of ['recall', 'request_file']) await app.ctx.db.pool.query(`VACUUM (ANALYZE) ${table}`);
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/ended' });
  const done = only(await countRows(() => cancelRequest(app.ctx, id)), 'cancelRequest');
  expect(done.written.recall).toBe(MANY);
  expect(done.read.recall ?? 0).toBeLessThan(MANY * 10);
  expect(done.read.request_file ?? 0).toBeLessThan(MANY * 10);
});

test('the removal of copies reads the files of an ended request in pages, each once', async () => {
  await addFiles(
    app.ctx,
    pathsOf('/left').map(({ path }, n) => ({ path, stage: n % 2 === 0 ? 'RESTORED' : 'ONTAPE' })),
  );
  await app.ctx.db.pool.query(
    `WITH d AS (INSERT INTO restore_disk (mountpoint, size) VALUES ('/mnt/r', 1000000) RETURNING id)
     UPDATE tape_file SET disk_id = d.id FROM d WHERE stage = 'RESTORED'`,
  );
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/left' });
  const readCopies = async () => {
    const copies: bigint[] = [];
    let pages = 0;
    for (let after: number | undefined = 0; after !== undefined; pages++) {
      const limits = { requestId: id, after, limit: 150 };
      const page: Awaited<ReturnType<typeof readUnheld>> = await readUnheld(app.ctx, limits);
      copies.push(...page.copies.map(({ fileId }) => fileId));
      after = page.last;
    }
    return { pages, copies: copies.length, files: new Set(copies).size };
  };
  // matches 1, 10 to 19 and 100 to 199; half of these files are restored
  await releaseFiles(app.ctx, { id, match: '/left/1' });
  expect(await readCopies()).toEqual({ pages: 1, copies: 55, files: 55 });
  await cancelRequest(app.ctx, id);
  expect(await readCopies()).toEqual({ pages: 3, copies: MANY / 2, files: MANY / 2 });
});

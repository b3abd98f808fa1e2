import { expect, test } from 'vitest';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cancel, create, made, release, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest, put, readUsed } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';

const app = useApp();

const files = (prefix: string, sizes: Record<string, bigint>) =>
  addFiles(
    app.ctx,
    Object.entries(sizes).map(([name, size]) => ({ path: `${prefix}${name}`, size, stage: 'ONDISK' as const })),
  );
const later = '2999-01-01T00:00:00';

/** Returns the files of a request, and the excluded paths with their reasons. */
async function look(id: number) {
  const { files, unresolved } = await viewRequest(app, id);
  return {
    held: files
      .filter((requestFile) => requestFile.state !== 'RELEASED')
      .map((requestFile) => requestFile.path.replace(/.*\//, '')),
    out: Object.fromEntries(unresolved.map(({ path, reason }) => [path.replace(/.*\//, ''), reason])),
  };
}

test('a request over its own limit is refused with both values, and nothing is stored', async () => {
  await addQuota(app.ctx, 'much', 10_000n);
  await files('/much/', { a: 100n, b: 200n, c: 300n });
  const before = await dumpTables(app.ctx);
  const paths = ['/much/a', '/much/b', '/much/c', '/much/unknown'];
  for (const wish of [{ pattern: '/much/' }, { files: paths }]) {
    expect(await create(app, { quota: 'much', ...wish, maxFiles: 2 })).toEqual({
      __typename: 'InvalidInput',
      field: 'maxFiles',
      message:
        'maxFiles is 2, but the request would contain 3 files; raise the limit, use a more specific pattern, or request a list of files',
    });
    expect(await create(app, { quota: 'much', ...wish, maxBytes: 599 })).toEqual({
      __typename: 'InvalidInput',
      field: 'maxBytes',
      message:
        "maxBytes is 599 bytes, but the total size of the request's files would be 600 bytes; raise the limit, use a more specific pattern, or request a list of files",
    });
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('files may fill both limits, and unresolved paths count once they are known', async () => {
  await addQuota(app.ctx, 'even', 10_000n);
  await files('/even/', { a: 100n, b: 200n });
  const paths = ['/even/a', '/even/b', '/even/c'];
  const full = await create(app, { quota: 'even', files: paths, maxFiles: 2, maxBytes: 300 });
  expect(full).toMatchObject({
    __typename: 'Request',
    filesTotal: 2,
    maxFiles: 2,
    maxBytes: '300',
  });
  const wide = await made(app, { quota: 'even', files: paths, maxFiles: 3 });
  expect(await create(app, { quota: 'even', pattern: '/even/' })).toMatchObject({ maxFiles: null, maxBytes: null });
  await files('/even/', { c: 5n });
  expect(await look(wide)).toEqual({ held: ['a', 'b', 'c'], out: {} });
  expect(await look(full.requestId)).toEqual({ held: ['a', 'b'], out: { c: 'LIMIT' } });
});

test('later files join in order until the limit, and the others are reported and not charged', async () => {
  await addQuota(app.ctx, 'order', 10_000n);
  await files('/order/', { m: 1n });
  const byFiles = await made(app, { quota: 'order', pattern: '/order/', maxFiles: 3 });
  const byBytes = await made(app, { quota: 'order', pattern: '/order/', maxBytes: 111 });
  await files('/order/', { d: 1n, c: 500n, b: 10n, a: 100n });
  expect(await look(byFiles)).toEqual({ held: ['m', 'a', 'b'], out: { c: 'LIMIT', d: 'LIMIT' } });
  // /order/d would fit, but /order/c comes first and does not fit
  expect(await look(byBytes)).toEqual({ held: ['m', 'a', 'b'], out: { c: 'LIMIT', d: 'LIMIT' } });
  expect(await viewRequest(app, byBytes)).toMatchObject({ filesTotal: 3, bytesTotal: '111', filesRefused: 0 });
  expect(await update(app, { requestId: byBytes })).toMatchObject({ filesOverLimit: 2, filesRefused: 0 });
  expect(await readUsed(app, 'order')).toBe(222);
  await joinUnresolved(app.ctx);
  expect(await look(byFiles)).toEqual({ held: ['m', 'a', 'b'], out: { c: 'LIMIT', d: 'LIMIT' } });
  expect(await readUsed(app, 'order')).toBe(222);
});

test('files over the limit of one request leave room for other requests of the user', async () => {
  await addQuota(app.ctx, 'two', 40n);
  const narrow = await made(app, { quota: 'two', pattern: '/two/', maxFiles: 1 });
  const wide = await made(app, { quota: 'two', pattern: '/two/' });
  await files('/two/', { a: 10n, b: 10n, c: 10n });
  expect(await look(narrow)).toEqual({ held: ['a'], out: { b: 'LIMIT', c: 'LIMIT' } });
  expect(await look(wide)).toEqual({ held: ['a', 'b', 'c'], out: {} });
  expect(await readUsed(app, 'two')).toBe(40);
});

test('the reason of an excluded file is the limit if it is reached, else the quota', async () => {
  await addQuota(app.ctx, 'both', 15n);
  const id = await made(app, { quota: 'both', pattern: '/both/', maxFiles: 3 });
  await files('/both/', { a: 10n, b: 10n, c: 1n, d: 1n });
  expect(await look(id)).toEqual({ held: ['a'], out: { b: 'QUOTA_FULL', c: 'QUOTA_FULL', d: 'QUOTA_FULL' } });
  await addQuota(app.ctx, 'both', 1000n);
  await joinUnresolved(app.ctx);
  expect(await look(id)).toEqual({ held: ['a', 'b', 'c'], out: { d: 'LIMIT' } });
  await addQuota(app.ctx, 'both', 21n);
  await update(app, { requestId: id, maxFiles: 4 });
  expect(await look(id)).toEqual({ held: ['a', 'b', 'c'], out: { d: 'QUOTA_FULL' } });
  expect(await readUsed(app, 'both')).toBe(21);
});

test('a higher limit lets files join at once, and one below the current size only stops new ones', async () => {
  await addQuota(app.ctx, 'grow', 10_000n);
  const id = await made(app, { quota: 'grow', pattern: '/grow/', maxFiles: 1, maxBytes: 1000 });
  await files('/grow/', { a: 100n, b: 100n, c: 100n, d: 100n });
  expect(await look(id)).toEqual({ held: ['a'], out: { b: 'LIMIT', c: 'LIMIT', d: 'LIMIT' } });
  expect(await update(app, { requestId: id, maxFiles: 2 })).toMatchObject({
    filesTotal: 2,
    filesOverLimit: 2,
    maxBytes: '1000',
  });
  expect(await update(app, { requestId: id, label: 'other' })).toMatchObject({
    filesTotal: 2,
    maxFiles: 2,
    maxBytes: '1000',
  });
  expect(await update(app, { requestId: id, maxFiles: null, maxBytes: 350 })).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 3,
    filesOverLimit: 1,
    maxFiles: null,
    maxBytes: '350',
  });
  expect(await update(app, { requestId: id, maxFiles: 0, maxBytes: 0 })).toMatchObject({
    filesTotal: 3,
    bytesTotal: '300',
  });
  await files('/grow/', { e: 0n });
  await joinUnresolved(app.ctx);
  expect(await look(id)).toEqual({ held: ['a', 'b', 'c'], out: { d: 'LIMIT', e: 'LIMIT' } });
  expect(await readUsed(app, 'grow')).toBe(300);
  expect(await update(app, { requestId: id, maxFiles: null, maxBytes: null })).toMatchObject({
    filesTotal: 5,
    filesOverLimit: 0,
  });
});

test('a released file makes room for an excluded one', async () => {
  await addQuota(app.ctx, 'swap', 10_000n);
  const id = await made(app, { quota: 'swap', pattern: '/swap/', maxFiles: 2 });
  await files('/swap/', { a: 1n, b: 1n, c: 1n, d: 1n });
  await release(app, { requestId: id, paths: ['/swap/a', '/swap/c'] });
  await joinUnresolved(app.ctx);
  expect(await look(id)).toEqual({ held: ['b', 'd'], out: {} });
});

test('a request that is revived takes new files within its limits', async () => {
  await addQuota(app.ctx, 'again', 10_000n);
  await files('/again/', { a: 10n });
  const id = await made(app, { quota: 'again', pattern: '/again/', maxFiles: 2 });
  await cancel(app, id);
  await files('/again/', { b: 10n, c: 10n });
  expect((await put(app, id, { quota: 'again', retention: later })).status).toBe(200);
  expect(await look(id)).toEqual({ held: ['a', 'b'], out: { c: 'LIMIT' } });
  expect(await readUsed(app, 'again')).toBe(20);
});

test('a request over its limit is revived only with a higher limit', async () => {
  await addQuota(app.ctx, 'over', 10_000n);
  await files('/over/', { a: 10n, b: 10n, c: 10n });
  const id = await made(app, { quota: 'over', pattern: '/over/' });
  await update(app, { requestId: id, maxFiles: 2 });
  await cancel(app, id);
  const before = await dumpTables(app.ctx);
  expect(await update(app, { requestId: id, retention: later })).toEqual({
    __typename: 'InvalidInput',
    field: 'maxFiles',
    message:
      'maxFiles is 2, but the request would contain 3 files; raise the limit, use a more specific pattern, or request a list of files',
  });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(await update(app, { requestId: id, retention: later, maxFiles: 3 })).toMatchObject({
    filesTotal: 3,
    state: 'COMPLETED',
  });
  expect(await readUsed(app, 'over')).toBe(30);
});

test('simultaneous imports do not exceed the limits of a request', async () => {
  await addQuota(app.ctx, 'race', 1_000_000n);
  const limited = await made(app, { quota: 'race', pattern: '/race/', maxFiles: 17 });
  const small = await made(app, { quota: 'race', pattern: '/race/', maxBytes: 1234 });
  await Promise.all(
    Array.from({ length: 10 }, (_, n) =>
      files(`/race/${n}-`, Object.fromEntries(Array.from({ length: 5 }, (_, i) => [String(i), 100n]))),
    ),
  );
  expect(await viewRequest(app, limited)).toMatchObject({ filesTotal: 17, bytesTotal: '1700' });
  expect(await viewRequest(app, small)).toMatchObject({ filesTotal: 12, bytesTotal: '1200' });
  expect([(await look(limited)).held.length, (await look(small)).held.length]).toEqual([17, 12]);
  expect(await update(app, { requestId: limited })).toMatchObject({ filesOverLimit: 33, filesRefused: 0 });
  expect(await readUsed(app, 'race')).toBe(2900);
});

test('an invalid limit is refused', async () => {
  await addQuota(app.ctx, 'bad', 1n);
  const id = await makeRequest(app, { quota: 'bad', files: ['/bad/none'] });
  for (const act of [
    (limits: object) => create(app, { quota: 'bad', pattern: '/bad/', ...limits }),
    (limits: object) => update(app, { requestId: id, ...limits }),
  ]) {
    const maxFiles = 'maxFiles must be from 0 to 2147483647 files, not -1';
    expect(await act({ maxFiles: -1 })).toMatchObject({ field: 'maxFiles', message: maxFiles });
    const maxBytes = 'maxBytes must be from 0 to 9223372036854775807 bytes, not -1';
    expect(await act({ maxBytes: -1 })).toMatchObject({ field: 'maxBytes', message: maxBytes });
  }
});

test('an import applies changed sizes before it checks the limits', async () => {
  await addQuota(app.ctx, 'grown', 10_000n);
  await files('/grown/', { a: 60n });
  const id = await made(app, { quota: 'grown', pattern: '/grown/', maxBytes: 100 });
  await files('/grown/', { a: 90n, b: 30n });
  expect(await look(id)).toEqual({ held: ['a'], out: { b: 'LIMIT' } });
  await files('/grown/', { a: 40n, c: 50n });
  expect((await look(id)).held).toContain('c');
});

test('an expired request that was not yet ended is revived in one step', async () => {
  await addQuota(app.ctx, 'late', 10_000n);
  await files('/late/', { a: 100n });
  const id = await made(app, { quota: 'late', pattern: '/late/' });
  await app.ctx.db.pool.query('UPDATE request SET retention = request_date WHERE id = $1', [id]);
  const events = () =>
    app.ctx.db.prisma.event.findMany({ where: { requestId: id }, select: { state: true }, orderBy: { id: 'asc' } });
  const before = await events();
  expect(await update(app, { requestId: id, retention: later })).toMatchObject({
    __typename: 'Request',
    state: 'COMPLETED',
  });
  expect((await events()).slice(before.length)).toEqual([{ state: 'COMPLETED' }]);
  expect(await readUsed(app, 'late')).toBe(100);
});

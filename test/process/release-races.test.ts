/** What races with a release: other releases, requests, imports, the engine's recalls and its removals. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { letGo, listUncleared, markCleared, readUnheld } from '../../src/operations/disks/removals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { readUsed } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;

const findUncleared = async () => (await listUncleared(app.ctx, { after: 0, limit: 1 }))[0]?.id;
const backend = createMemoryBackend();
const never = new AbortController().signal;

// an engine runs only in `withEngine`, so that each step of a removal can be taken by hand
beforeAll(async () => {
  app = await startApp();
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
});
afterEach(async () => {
  const { rows } = await app.ctx.db.pool.query<{ id: number }>('SELECT id FROM request');
  for (const { id } of rows) await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect(await countRows('SELECT FROM restore_disk WHERE used <> 0 OR reserved <> 0')).toBe(0);
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 0]);
  expect(await countRows('SELECT FROM recall')).toBe(0);
  expect(await countRows('SELECT FROM request WHERE NOT is_released')).toBe(0);
  expect(await findIllegalMoves(app)).toEqual([]);
});
afterAll(() => app.close());

const countRows = async (sql: string) => (await app.ctx.db.pool.query(sql)).rowCount;

/** Two restored files of 1000 bytes, a and b, of one request. */
async function restore(prefix: string): Promise<number> {
  await addTaped(app.ctx, backend, [
    { path: `${prefix}a`, volume: `V${prefix}`, position: 1n },
    { path: `${prefix}b`, volume: `V${prefix}`, position: 2n },
  ]);
  const id = await made(app, { quota: 'alice', pattern: prefix });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  return id;
}

test('of many releases of the same files at once, each gives its charge back once', async () => {
  const names = Array.from({ length: 20 }, (_, n) => `/same/${n}`);
  await addFiles(
    app.ctx,
    names.map((path) => ({ path, stage: 'ONDISK' as const })),
  );
  const id = await made(app, { quota: 'alice', pattern: '/same/' });
  await Promise.all(
    names.map((path, n) => release(app, n % 2 === 0 ? { id, match: '/same/1' } : { id, paths: [path, '/same/1'] })),
  );
  // 1, 10 to 19, and the odd ones
  expect(await viewRequest(app, id)).toMatchObject({ filesTotal: 5, filesOnDisk: 5, bytesTotal: '5000' });
  expect(await readUsed(app, 'alice')).toBe(5000);
});

test.each(['the release', 'the other request'])(
  'a file that is released while another request takes it is recalled for that one: %s first',
  async (first) => {
    const path = `/taken/${first.length}`;
    await addTaped(app.ctx, backend, [{ path, volume: `T${first.length}` }]);
    const id = await made(app, { quota: 'alice', files: [path] });
    const steps = [() => release(app, { id, paths: [path] }), () => made(app, { quota: 'bob', files: [path] })];
    if (first !== 'the release') steps.reverse();
    const running: Promise<unknown>[] = [];
    await whileLocked(app, 'SELECT FROM recall FOR UPDATE', async (waiters) => {
      for (const step of steps) {
        running.push(step());
        await waiters(running.length);
      }
    });
    const results = await Promise.all(running);
    const other = results.find((result) => typeof result === 'number') as number;
    expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 1000]);
    await withEngine(app, backend, () => waitForState(app, other, 'COMPLETED'));
    expect(readRestored(app, path)).toHaveLength(1000);
  },
);

test.each(['the release', 'the end of the recall'])(
  'a file whose recall ends while it is released does not stay on disk: %s first',
  async (first) => {
    const path = `/ends/${first.length}`;
    await addTaped(app.ctx, backend, [{ path, volume: `E${first.length}` }]);
    const gate = createGate();
    const read = createGate();
    backend.onRead = async (_volume, _position, bytes) => {
      read.open();
      await gate.opened;
      return bytes;
    };
    const id = await made(app, { quota: 'alice', files: [path] });
    await withEngine(app, backend, async () => {
      await read.opened;
      const finish = async (): Promise<unknown> => gate.open();
      const steps = [() => release(app, { id, paths: [path] }), finish];
      if (first !== 'the release') steps.reverse();
      const running: Promise<unknown>[] = [];
      await whileLocked(app, `SELECT FROM request WHERE id = ${id} FOR UPDATE`, async (waiters) => {
        for (const [index, step] of steps.entries()) {
          running.push(step());
          await waiters(index + 1);
        }
      });
      await Promise.all(running);
      await waitFor('the file to be on tape again', async () =>
        (await readMoves(app, path)).at(-1)?.move.endsWith('T'),
      );
      await waitFor('its copy to be gone', async () => (await readDisks(app)).used === 0n);
    });
    backend.onRead = async (_volume, _position, bytes) => bytes;
    expect(readRestored(app, path)).toBeUndefined();
    expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesTotal: 0, bytesOnDisk: '0' });
  },
);

test('a path that is released while its file is imported does not join', async () => {
  const id = await made(app, { quota: 'alice', files: ['/import/a', '/import/b'] });
  const running: Promise<unknown>[] = [];
  await whileLocked(app, `SELECT FROM request WHERE id = ${id} FOR UPDATE`, async (waiters) => {
    running.push(release(app, { id, paths: ['/import/a'] }));
    await waiters(1);
    running.push(
      addFiles(app.ctx, [
        { path: '/import/a', stage: 'ONDISK' },
        { path: '/import/b', stage: 'ONDISK' },
      ]),
    );
    await waiters(2);
  });
  await Promise.all(running);
  expect((await viewRequest(app, id)).holds.map(({ path }) => path)).toEqual(['/import/b']);
  expect(await readUsed(app, 'alice')).toBe(1000);
});

test('a released file that another request takes while it is looked at stays', async () => {
  const id = await restore('/stays/');
  await release(app, { id, match: 'stays/a' });
  const { copies } = await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 });
  expect(copies.map((copy) => copy.path)).toEqual(['/stays/a']);
  const other = await made(app, { quota: 'bob', files: ['/stays/a'] });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  expect(await removeUnheld(app.ctx, never)).toBe(0);
  expect(await viewRequest(app, other)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 1 });
  expect(readRestored(app, '/stays/a')).toHaveLength(1000);
});

test('what was found of a copy says nothing of the next copy of its file', async () => {
  const id = await restore('/again/');
  await release(app, { id, match: 'again/a' });
  const { copies } = await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 });
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  const next = await made(app, { quota: 'bob', files: ['/again/a'] });
  await withEngine(app, backend, () => waitForState(app, next, 'COMPLETED'));
  await cancel(app, next);
  // who was slow to look at the first copy found it changed
  expect(await letGo(app.ctx, { unchanged: [], changed: copies })).toEqual([]);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/again/a')).toBeUndefined();
});

test('a request that goes on changing while its released files are looked at passes, unless more are released', async () => {
  const id = await restore('/more/');
  await release(app, { id, match: 'more/a' });
  expect(await findUncleared()).toBe(id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  await update(app, { id, label: 'changed meanwhile' });
  await release(app, { id, match: 'more/b' });
  await markCleared(app.ctx, id);
  expect(await findUncleared()).toBe(id);
  expect(await removeUnheld(app.ctx, never)).toBe(2);

  const live = await restore('/live/');
  await release(app, { id: live, match: 'live/a' });
  const { copies: left } = await readUnheld(app.ctx, { requestId: live, after: 0, limit: 10 });
  await letGo(app.ctx, { unchanged: left, changed: [] });
  await update(app, { id: live, label: 'changed meanwhile' });
  await markCleared(app.ctx, live);
  expect(await findUncleared()).toBeUndefined();
  expect([await readStage(app, '/live/a'), await readStage(app, '/live/b')]).toEqual(['T', 'R']);
});

test('a request is looked at again as long as a released file of it is being brought back', async () => {
  await addTaped(app.ctx, backend, [{ path: '/back/a', volume: 'BACK' }]);
  const gate = createGate();
  const read = createGate();
  backend.onRead = async (_volume, _position, bytes) => {
    read.open();
    await gate.opened;
    return bytes;
  };
  const id = await made(app, { quota: 'alice', files: ['/back/a'] });
  await withEngine(app, backend, async () => {
    await read.opened;
    // the recall, stopped or not, cannot be ended meanwhile
    await whileLocked(app, `SELECT FROM tape_file WHERE path = '/back/a' FOR UPDATE`, async () => {
      await release(app, { id, match: 'back' });
      await removeUnheld(app.ctx, never);
      expect(await readStage(app, '/back/a')).toBe('A');
      expect(await findUncleared()).toBe(id);
    });
    gate.open();
    await waitFor('nothing to be left to do', async () => (await findUncleared()) === undefined);
  });
  backend.onRead = async (_volume, _position, bytes) => bytes;
  expect(await readStage(app, '/back/a')).toBe('T');
});

test('files that are released while they are restored, asked for again and removed leave nothing behind', async () => {
  const names = Array.from({ length: 60 }, (_, n) => `/storm/${String(n).padStart(2, '0')}`);
  await addTaped(
    app.ctx,
    backend,
    names.map((path, n) => ({ path, volume: `STORM${n % 3}`, position: BigInt(n + 1), size: 1000 + n })),
  );
  const id = await made(app, { quota: 'alice', pattern: '/storm/' });
  await withEngine(app, backend, async () => {
    const others = await Promise.all(
      names.map(async (path, n) => {
        await release(app, { id, paths: [path] });
        if (n % 3 > 0) return undefined;
        const other = await made(app, { quota: 'bob', files: [path] });
        if (n % 2 === 0) await release(app, { id: other, match: path });
        return n % 2 === 0 ? undefined : { other, path };
      }),
    );
    expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesTotal: 0, bytesTotal: '0' });
    const kept = others.filter((entry) => entry !== undefined);
    for (const { other } of kept) await waitForState(app, other, 'COMPLETED');
    const bytes = kept.reduce((sum, { path }) => sum + 1000 + Number(path.slice(-2)), 0);
    expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, bytes]);
    await waitFor('only what is held to be on disk', async () => (await readDisks(app)).used === BigInt(bytes));
    const stored = listTree(app.restoreDir).filter((name) => /storm\/\d\d$/.test(name));
    expect(stored.sort()).toEqual(kept.map(({ path }) => path.slice(1)).sort());
    expect(await countRows('SELECT FROM recall')).toBe(0);
  });
});

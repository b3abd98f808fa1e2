import { chmodSync, chownSync, existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { FailingDisks } from '../../src/engine/disk/failures.js';
import { removeUnheld, WaitingRequests } from '../../src/engine/disk/removal.js';
import { addDisk } from '../../src/engine/disk/setup.js';
import { startEngine } from '../../src/engine/runner.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import {
  claimLeaving,
  forgetGone,
  letGo,
  listUncleared,
  markCleared,
  readUnheld,
} from '../../src/operations/disks/removals.js';
import { resume } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest, put } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const never = new AbortController().signal;
const PAGE = { after: 0, limit: 10 };
const FIRST = { after: 0n, limit: PAGE.limit };

const findUncleared = async () => (await listUncleared(app.ctx, { after: 0, limit: 1 }))[0]?.id;

// an engine runs only while files are restored, so that each step of a removal can be taken by hand
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  await removeUnheld(app.ctx, never);
  expect(await findIllegalMoves(app)).toEqual([]);
});
afterAll(() => app.close());

async function restore(...files: string[]): Promise<number> {
  const volume = `V${files[0]?.replaceAll('/', '-')}`;
  await addTaped(
    app.ctx,
    backend,
    files.map((file, index) => ({ path: file, volume, position: BigInt(index + 1) })),
  );
  const id = await makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });
  const engine = await startEngine(app.ctx, backend, { drainMs: 1000 });
  try {
    await waitForState(app, id, 'COMPLETED');
    return id;
  } finally {
    await engine.stop();
  }
}

test('a copy that one engine is removing is left to it by the others', async () => {
  const id = await restore('/busy/a', '/busy/b');
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, ...PAGE });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  const first = await claimLeaving(app.ctx, { after: 0n, limit: 1 });
  expect(first.copies.map((copy) => copy.path)).toEqual(['/busy/a']);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect([readRestored(app, '/busy/a')?.length, readRestored(app, '/busy/b')]).toEqual([1000, undefined]);
  await forgetGone(app.ctx, { gone: [], claimed: first.copies });
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect((await readDisks(app)).used).toBe(0n);
});

test('a copy whose remover was killed is removed by the next one', async () => {
  const id = await restore('/killed/a');
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, ...PAGE });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  expect((await claimLeaving(app.ctx, FIRST)).copies).toHaveLength(1);
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.now(), 11) };
  expect(await removeUnheld(later, never)).toBe(1);
  expect(readRestored(app, '/killed/a')).toBeUndefined();
});

test('a file whose copy is still to be removed is not recalled before that copy is gone', async () => {
  const id = await restore('/still/a');
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, ...PAGE });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  const { copies: claimed } = await claimLeaving(app.ctx, FIRST);
  const again = await makeRequest(app, { quota: 'alice', files: ['/still/a'], retention: '2099-01-01' });
  const engine = await startEngine(app.ctx, backend, { drainMs: 1000, part: 'drive' });
  try {
    await waitFor('a drive to leave the file for later', async () => {
      const { rowCount } = await app.ctx.db.pool.query('SELECT FROM recall WHERE not_before IS NOT NULL');
      return (rowCount ?? 0) > 0;
    });
    await forgetGone(app.ctx, { gone: [], claimed });
    expect(await removeUnheld(app.ctx, never)).toBe(1);
    await waitForState(app, again, 'COMPLETED');
  } finally {
    await engine.stop();
  }
  expect((await readMoves(app, '/still/')).map(({ move }) => move)).toEqual(['TA', 'AR', 'RT', 'TA', 'AR']);
  expect(await readDisks(app)).toEqual({ used: 1000n, reserved: 0n });
  await cancel(app, again);
});

test('a copy that could not be removed stays on record and is tried again', async () => {
  const id = await restore('/stays/a');
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, ...PAGE });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  const { copies: claimed } = await claimLeaving(app.ctx, FIRST);
  expect(await forgetGone(app.ctx, { gone: [], claimed })).toEqual([]);
  expect((await readDisks(app)).used).toBe(1000n);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/stays/a')).toBeUndefined();
  expect((await readDisks(app)).used).toBe(0n);
});

test('a request that is revived and ends once more while its files are looked at is looked at again', async () => {
  const id = await restore('/twice/a');
  const end = { quota: 'alice', retention: '2020-01-01' };
  await put(app, id, end);
  const found = await findUncleared();
  expect(found).toBe(id);
  await put(app, id, { ...end, retention: '2099-01-01' });
  expect((await readUnheld(app.ctx, { requestId: id, ...PAGE })).copies).toEqual([]); // held again just now
  await put(app, id, end);
  await markCleared(app.ctx, id);
  expect(await findUncleared()).toBe(id);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(await readStage(app, '/twice/a')).toBe('T');
  expect(await findUncleared()).toBeUndefined();
});

test('a file that is held again when it should be let go stays', async () => {
  const id = await restore('/again/a');
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, ...PAGE });
  const second = await makeRequest(app, { quota: 'alice', files: ['/again/a'], retention: '2099-01-01' });
  await letGo(app.ctx, { unchanged: copies, changed: [] });
  expect(copies).toHaveLength(1);
  expect(await readStage(app, '/again/a')).toBe('R');
  expect(await removeUnheld(app.ctx, never)).toBe(0);
  expect(readRestored(app, '/again/a')).toHaveLength(1000);
  await cancel(app, second);
});

test('copies on a disk that is away hold up the removal of no other, and go once it is back', async () => {
  const other = path.join(app.dataDir, 'other');
  mkdirSync(other);
  await setDisk(app.ctx, { mountpoint: other, size: 10n ** 15n }); // the most room
  const away = await restore('/away/a');
  await setDisk(app.ctx, { mountpoint: other, size: 0n });
  const here = await restore('/here/a');
  renameSync(other, `${other}-away`);
  await cancel(app, away);
  await cancel(app, here);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect([await readStage(app, '/away/a'), await readStage(app, '/here/a')]).toEqual(['R', 'T']);
  expect(readRestored(app, '/here/a')).toBeUndefined();
  expect((await readDisks(app)).used).toBe(1000n);
  renameSync(`${other}-away`, other);
  await resume(app.ctx, { kind: 'DISK', name: other }); // held since then, with the reason
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect((await readDisks(app)).used).toBe(0n);
  expect(await readStage(app, '/away/a')).toBe('T');
});

const isRoot = process.geteuid?.() === 0;
test.each([
  { what: 'mode', change: (folder: string) => chmodSync(folder, 0o2770), isAllowed: true },
  { what: 'group', change: (folder: string) => chownSync(folder, -1, 65_534), isAllowed: isRoot },
  { what: 'owner', change: (folder: string) => chownSync(folder, 65_534, -1), isAllowed: isRoot },
])('a folder with a $what of its own stays when its last copy leaves, and those below it go', async (row) => {
  if (!row.isAllowed) return;
  const folder = path.join(app.restoreDir, `own-${row.what}`);
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o755);
  row.change(folder);
  const { mode, uid, gid } = statSync(folder);
  const id = await restore(`/own-${row.what}/made/a`);
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect(statSync(folder)).toMatchObject({ mode, uid, gid });
  expect(existsSync(path.join(folder, 'made'))).toBe(false);
});

test('requests whose copies wait for a disk that is away are looked at no more until it is back, or they change', async () => {
  const other = path.join(app.dataDir, 'long-away');
  mkdirSync(other);
  await addDisk(app.ctx, { mountpoint: other, size: 10n ** 15n }); // the most room
  const away = [];
  for (const n of [1, 2, 3]) away.push(await restore(`/long/${n}`));
  await setDisk(app.ctx, { mountpoint: other, size: 0n });
  const here = await restore('/near/a');
  renameSync(other, `${other}-away`);
  for (const id of away) await cancel(app, id);
  const waiting = new WaitingRequests();
  const remove = () => removeUnheld(app.ctx, never, undefined, waiting);
  await remove(); // holds the disk
  expect(await remove()).toBe(0);
  const asked = await recordStatements(remove);
  expect(asked.filter(({ text }) => /hold o|is_released = true/.test(text))).toEqual([]);
  await cancel(app, here);
  expect(await remove()).toBe(1);
  renameSync(`${other}-away`, other);
  await resume(app.ctx, { kind: 'DISK', name: other });
  expect(await remove()).toBe(3);
  expect(await findUncleared()).toBeUndefined();
});

test('of a disk that has failed at some copies of a request no more are looked at', async () => {
  const id = await restore(...Array.from({ length: 40 }, (_, n) => `/fails/${n}`));
  await cancel(app, id);
  const disks = new FailingDisks(app.ctx);
  const look = vi.spyOn(disks.calls, 'follow').mockRejectedValue(Object.assign(new Error('EIO'), { code: 'EIO' }));
  vi.spyOn(disks, 'blame').mockResolvedValue('it fails');
  await removeUnheld(app.ctx, never, disks);
  expect(look.mock.calls.length).toBeLessThan(20);
  expect(await findUncleared()).toBe(id);
  expect(await removeUnheld(app.ctx, never)).toBe(40);
  expect(await findUncleared()).toBeUndefined();
});

/**
 * Copies that no request contains any more are removed. An engine runs only in `withEngine`; tests call each step of a
 * removal themselves.
 */
import { chmodSync, chownSync, existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import {
  claimLeaving,
  deleteRemovedCopies,
  listUncleared,
  markCleared,
  readUnheld,
  releaseCopies,
} from '../../src/domain/disks/removals.js';
import { resume } from '../../src/domain/health/suspensions.js';
import { removeUnheld, WaitingRequests } from '../../src/restore-area/copies/removal.js';
import { FailingDisks } from '../../src/restore-area/failures.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { whileLocked } from '../support/locks.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { put, readUsed } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { waitFor } from '../support/wait.js';

const { app, library, tape, ask, restore, place, query } = useMemorySite({ isIdle: true, users: ['alice', 'bob'] });
const never = new AbortController().signal;
const FIRST = { after: 0n, limit: 10 };

afterEach(async () => {
  for (const { id } of await query<{ id: number }>('SELECT id FROM request')) await cancel(app, id);
  await removeCopies();
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
  expect(await readCharges()).toEqual([0, 0]);
  expect(await query('SELECT FROM recall')).toEqual([]);
  expect(await query('SELECT FROM request WHERE NOT is_released')).toEqual([]);
  expect(await findIllegalMoves(app)).toEqual([]);
});

const removeCopies = () => removeUnheld(app.ctx, never);
const readCharges = () => Promise.all(['alice', 'bob'].map((user) => readUsed(app, user)));
const findUncleared = async () => (await listUncleared(app.ctx, { after: 0, limit: 1 }))[0]?.id;
const readCopies = async (requestId: number) => (await readUnheld(app.ctx, { requestId, after: 0, limit: 10 })).copies;
const complete = (id: number) => withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));

/** Restores files, cancels their request, and records that their copies are to be removed. */
async function leave(...files: string[]): Promise<void> {
  const id = await restore(...files);
  await cancel(app, id);
  await releaseCopies(app.ctx, { unchanged: await readCopies(id), changed: [] });
}

test('a copy that one engine is removing is left to it by the others, until it gives up', async () => {
  await leave('/busy/a', '/busy/b');
  const first = await claimLeaving(app.ctx, { after: 0n, limit: 1 });
  expect(first.copies.map((copy) => copy.path)).toEqual(['/busy/a']);
  expect(await removeCopies()).toBe(1);
  expect([readRestored(app, '/busy/a')?.length, readRestored(app, '/busy/b')]).toEqual([1000, undefined]);
  expect(await deleteRemovedCopies(app.ctx, { gone: [], changed: [], claimed: first.copies })).toEqual([]);
  expect((await readDisks(app)).used).toBe(1000n);
  expect(await removeCopies()).toBe(1);
  expect((await readDisks(app)).used).toBe(0n);
});

test('a copy whose remover was killed is removed by the next one', async () => {
  await leave('/killed/a');
  expect((await claimLeaving(app.ctx, FIRST)).copies).toHaveLength(1);
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.now(), 11) };
  expect(await removeUnheld(later, never)).toBe(1);
  expect(readRestored(app, '/killed/a')).toBeUndefined();
});

test('a file is not recalled before its old copy is removed', async () => {
  await leave('/still/a');
  const { copies: claimed } = await claimLeaving(app.ctx, FIRST);
  const again = await ask('/still/a');
  const work = async () => {
    const waits = 'SELECT FROM recall WHERE not_before IS NOT NULL';
    await waitFor('a drive to leave the file for later', async () => (await query(waits)).length > 0);
    await deleteRemovedCopies(app.ctx, { gone: [], changed: [], claimed });
    expect(await removeCopies()).toBe(1);
    await waitForState(app, again, 'COMPLETED');
  };
  await withEngine(app, library, work, { part: 'drive' });
  expect((await readMoves(app, '/still/')).map(({ move }) => move)).toEqual(['TA', 'AR', 'RT', 'TA', 'AR']);
  expect(await readDisks(app)).toEqual({ used: 1000n, reserved: 0n });
});

test('a request that is revived and ends again while its copies are removed is looked at again', async () => {
  const id = await restore('/twice/a');
  const end = { quota: 'alice', retention: '2020-01-01' };
  await put(app, id, end);
  expect(await findUncleared()).toBe(id);
  await put(app, id, { ...end, retention: '2099-01-01' });
  expect(await readCopies(id)).toEqual([]);
  await put(app, id, end);
  await markCleared(app.ctx, id);
  expect(await findUncleared()).toBe(id);
  expect(await removeCopies()).toBe(1);
  expect(await readStage(app, '/twice/a')).toBe('T');
  expect(await findUncleared()).toBeUndefined();
});

const isRoot = process.geteuid?.() === 0;
test.each([
  { what: 'mode', change: (directory: string) => chmodSync(directory, 0o2770), isAllowed: true },
  { what: 'group', change: (directory: string) => chownSync(directory, -1, 65_534), isAllowed: isRoot },
  { what: 'owner', change: (directory: string) => chownSync(directory, 65_534, -1), isAllowed: isRoot },
])(
  'a directory that was given another $what stays when its last copy leaves, and those below it are removed',
  async (row) => {
    if (!row.isAllowed) return;
    const directory = place(`own-${row.what}`);
    const id = await restore(`/own-${row.what}/made/a`);
    row.change(directory);
    const { mode, uid, gid } = statSync(directory);
    await cancel(app, id);
    await removeCopies();
    expect(statSync(directory)).toMatchObject({ mode, uid, gid });
    expect(existsSync(path.join(directory, 'made'))).toBe(false);
  },
);

test('copies on a disk that is away delay no others, and are not looked at until it is back', async () => {
  const other = path.join(app.dataDir, 'long-away');
  mkdirSync(other);
  await addDisk(app.ctx, { mountpoint: other, size: 10n ** 15n }); // this disk has the most room
  const away = await Promise.all([1, 2, 3].map((n) => tape(`/long/${n}`).then(() => ask(`/long/${n}`))));
  await withEngine(app, library, async () => {
    for (const id of away) await waitForState(app, id, 'COMPLETED');
  });
  await setDisk(app.ctx, { mountpoint: other, size: 0n });
  const here = await restore('/near/a');
  renameSync(other, `${other}-away`);
  for (const id of away) await cancel(app, id);
  const waiting = new WaitingRequests();
  const remove = () => removeUnheld(app.ctx, never, undefined, waiting);
  await remove(); // suspends the disk, because it is missing
  expect(await remove()).toBe(0);
  const asked = await recordStatements(remove);
  expect(asked.filter(({ text }) => /request_file o|is_released = true/.test(text))).toEqual([]);
  await cancel(app, here);
  expect(await remove()).toBe(1);
  expect([await readStage(app, '/long/1'), await readStage(app, '/near/a')]).toEqual(['R', 'T']);
  renameSync(`${other}-away`, other);
  await resume(app.ctx, { kind: 'DISK', name: other });
  expect(await remove()).toBe(3);
  expect(await findUncleared()).toBeUndefined();
});

test('a request whose files cannot be released delays no other', async () => {
  const broken = await restore('/broken/a');
  const other = await restore('/whole/a');
  await cancel(app, broken);
  await cancel(app, other);
  await query(`ALTER TABLE request ADD CONSTRAINT broken CHECK (id <> ${broken} OR NOT is_released)`);
  await expect(removeCopies()).rejects.toThrow('broken');
  await query('ALTER TABLE request DROP CONSTRAINT broken');
  expect([await findUncleared(), readRestored(app, '/whole/a')]).toEqual([broken, undefined]);
  expect(await listUncleared(app.ctx, { after: 0, limit: 10 })).toHaveLength(1);
});

test('if a disk has failed at some copies of a request, no more of them are looked at', async () => {
  const id = await restore(...Array.from({ length: 40 }, (_, n) => `/fails/${n}`));
  await cancel(app, id);
  const disks = new FailingDisks(app.ctx);
  const look = vi.spyOn(disks.calls, 'follow').mockRejectedValue(Object.assign(new Error('EIO'), { code: 'EIO' }));
  vi.spyOn(disks, 'blame').mockResolvedValue('it fails');
  await removeUnheld(app.ctx, never, disks);
  expect(look.mock.calls.length).toBeLessThan(20);
  expect(await findUncleared()).toBe(id);
  expect(await removeCopies()).toBe(40);
  expect(await findUncleared()).toBeUndefined();
});

test('concurrent releases of the same files give each charge back once', async () => {
  const names = Array.from({ length: 20 }, (_, n) => `/same/${n}`);
  await addFiles(
    app.ctx,
    names.map((path) => ({ path, stage: 'ONDISK' as const })),
  );
  const id = await made(app, { quota: 'alice', pattern: '/same/' });
  await Promise.all(
    names.map((path, n) =>
      release(app, n % 2 === 0 ? { requestId: id, match: '/same/1' } : { requestId: id, paths: [path, '/same/1'] }),
    ),
  );
  // files 1, 10 to 19, and all odd numbers are released
  expect(await viewRequest(app, id)).toMatchObject({ filesTotal: 5, filesOnDisk: 5, bytesTotal: '5000' });
  expect(await readCharges()).toEqual([5000, 0]);
});

/** Starts steps in order. Each step waits for the lock. @returns the results of the steps */
async function race(lockSql: string, steps: (() => Promise<unknown>)[]): Promise<unknown[]> {
  const running: Promise<unknown>[] = [];
  await whileLocked(app, lockSql, async (waiters) => {
    for (const step of steps) {
      running.push(step());
      await waiters(running.length);
    }
  });
  return await Promise.all(running);
}

test.each(['the release', 'the other request'])(
  'a file that is released while another request takes it is recalled for that one: %s first',
  async (first) => {
    const file = `/taken/${first.length}`;
    await tape(file);
    const id = await ask(file);
    const steps = [
      () => release(app, { requestId: id, paths: [file] }),
      () => made(app, { quota: 'bob', files: [file] }),
    ];
    if (first !== 'the release') steps.reverse();
    const results = await race('SELECT FROM recall FOR UPDATE', steps);
    expect(await readCharges()).toEqual([0, 1000]);
    await complete(results.find((result) => typeof result === 'number') as number);
    expect(readRestored(app, file)).toHaveLength(1000);
  },
);

test.each(['the release', 'the end of the recall'])(
  'a file that is released while its recall ends does not stay on disk: %s first',
  async (first) => {
    const file = `/ends/${first.length}`;
    await tape(file);
    const reads = holdReads(library);
    const id = await ask(file);
    await withEngine(app, library, async () => {
      await reads.begun();
      const steps = [() => release(app, { requestId: id, paths: [file] }), async (): Promise<unknown> => reads.open()];
      if (first !== 'the release') steps.reverse();
      await race(`SELECT FROM request WHERE id = ${id} FOR UPDATE`, steps);
      await waitFor('the file to be on tape', async () => (await readMoves(app, file)).at(-1)?.move.endsWith('T'));
      await waitFor('its copy to be gone', async () => (await readDisks(app)).used === 0n);
    });
    expect(readRestored(app, file)).toBeUndefined();
    expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesTotal: 0, bytesOnDisk: '0' });
  },
);

test('a path that is released while its file is imported does not join', async () => {
  const id = await ask('/import/a', '/import/b');
  const files = ['/import/a', '/import/b'].map((path) => ({ path, stage: 'ONDISK' as const }));
  await race(`SELECT FROM request WHERE id = ${id} FOR UPDATE`, [
    () => release(app, { requestId: id, paths: ['/import/a'] }),
    () => addFiles(app.ctx, files),
  ]);
  expect((await viewRequest(app, id)).files.map(({ path }) => path)).toEqual(['/import/b']);
  expect(await readCharges()).toEqual([1000, 0]);
});

test('a copy stays if another request takes its released file before the removal', async () => {
  const id = await restore('/stays/a', '/stays/b');
  await release(app, { requestId: id, match: 'stays/a' });
  const copies = await readCopies(id);
  expect(copies.map((copy) => copy.path)).toEqual(['/stays/a']);
  const other = await made(app, { quota: 'bob', files: ['/stays/a'] });
  await releaseCopies(app.ctx, { unchanged: copies, changed: [] });
  expect(await removeCopies()).toBe(0);
  expect(await viewRequest(app, other)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 1 });
  expect([readRestored(app, '/stays/a')?.length, await readStage(app, '/stays/a')]).toEqual([1000, 'R']);
});

test('a late check of a copy does not apply to the next copy of its file', async () => {
  const id = await restore('/again/a');
  await release(app, { requestId: id, match: 'again/a' });
  const copies = await readCopies(id);
  expect(await removeCopies()).toBe(1);
  const next = await made(app, { quota: 'bob', files: ['/again/a'] });
  await complete(next);
  await cancel(app, next);
  // the earlier check had reported a change of the first copy
  expect(await releaseCopies(app.ctx, { unchanged: [], changed: copies })).toEqual([]);
  expect(await removeCopies()).toBe(1);
  expect(readRestored(app, '/again/a')).toBeUndefined();
});

test.each([true, false])(
  'a request that changes while its released copies are removed is looked at again if more files were released (%s)',
  async (isMoreReleased) => {
    const names = ['a', 'b'].map((name) => `/more/${isMoreReleased}/${name}`);
    const id = await restore(...names);
    await release(app, { requestId: id, match: '/a' });
    expect(await findUncleared()).toBe(id);
    await releaseCopies(app.ctx, { unchanged: await readCopies(id), changed: [] });
    await update(app, { requestId: id, label: 'changed meanwhile' });
    if (isMoreReleased) await release(app, { requestId: id, match: '/b' });
    await markCleared(app.ctx, id);
    expect(await findUncleared()).toBe(isMoreReleased ? id : undefined);
    expect(await removeCopies()).toBe(isMoreReleased ? 2 : 1);
    const stages = await Promise.all(names.map((name) => readStage(app, name)));
    expect(stages).toEqual(['T', isMoreReleased ? 'T' : 'R']);
  },
);

test('a request is looked at again as long as a recall of its released file is not over', async () => {
  await tape('/back/a');
  const reads = holdReads(library);
  const id = await ask('/back/a');
  await withEngine(app, library, async () => {
    await reads.begun();
    // the locked row prevents the recall from ending
    await whileLocked(app, `SELECT FROM tape_file WHERE path = '/back/a' FOR UPDATE`, async () => {
      await release(app, { requestId: id, match: 'back' });
      await removeCopies();
      expect(await readStage(app, '/back/a')).toBe('A');
      expect(await findUncleared()).toBe(id);
    });
    reads.open();
    await waitFor('nothing to be left to do', async () => (await findUncleared()) === undefined);
  });
  expect(await readStage(app, '/back/a')).toBe('T');
});

test('files that are restored, released and requested at the same time leave only what requests contain', async () => {
  const names = Array.from({ length: 30 }, (_, n) => `/storm/${String(n).padStart(2, '0')}`);
  const taped = names.map((path, n) => ({ path, volume: `STORM${n % 3}`, position: BigInt(n + 1), size: 1000 + n }));
  await addTaped(app.ctx, library, taped);
  const id = await made(app, { quota: 'alice', pattern: '/storm/' });
  await withEngine(app, library, async () => {
    const others = await Promise.all(
      taped.map(async ({ path, size }, n) => {
        await release(app, { requestId: id, paths: [path] });
        if (n % 3 > 0) return [];
        const other = await made(app, { quota: 'bob', files: [path] });
        if (n % 2 > 0) return [{ other, path, size }];
        await release(app, { requestId: other, match: path });
        return [];
      }),
    );
    expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesTotal: 0, bytesTotal: '0' });
    const kept = others.flat();
    for (const { other } of kept) await waitForState(app, other, 'COMPLETED');
    const bytes = kept.reduce((sum, { size }) => sum + size, 0);
    expect(await readCharges()).toEqual([0, bytes]);
    await waitFor('only requested files on disk', async () => (await readDisks(app)).used === BigInt(bytes));
    const stored = listTree(app.restoreDir).filter((name) => /storm\/\d\d$/.test(name));
    expect(stored.sort()).toEqual(kept.map(({ path }) => path.slice(1)).sort());
    expect(await query('SELECT FROM recall')).toEqual([]);
  });
});

/** A restore disk that was marked once is never marked anew by itself: what shows while it is not mounted looks like an empty disk. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { markerName } from '../../src/engine/disk/marker.js';
import { meetDisk } from '../../src/engine/disk/meeting.js';
import { DiskGauge } from '../../src/engine/disk/space.js';
import { listDisks } from '../../src/operations/disks/disks.js';
import { noteMarked } from '../../src/operations/disks/markings.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { withEngine } from '../support/engine-by-hand.js';
import { listTree, readDisks, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const clock = createClock();

beforeEach(async () => {
  app = await start();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const files = Array.from({ length: 8 }, (_, n) => ({ path: `/marked/${n}`, volume: 'V1', size: 10 }));
  await addTaped(app.ctx, backend, files);
});
afterEach(cleanUp);
const start = createFreshApp({ now: clock.now });

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

/** The first engine of a site, which has restored something that has left since: the disk is empty. */
async function useOnce(): Promise<void> {
  await withEngine(app, backend, async () => {
    const id = await ask('/marked/0');
    await waitForState(app, id, 'COMPLETED');
    await cancel(app, id);
    await waitFor('the copy to go', async () => (await readDisks(app)).used === 0n);
  });
}

/** As where the disk is not mounted. */
function unmount(): void {
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir);
}

function mountAgain(): void {
  rmSync(app.restoreDir, { recursive: true });
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
}

const heldDisk = () => waitFor('the disk to be held', async () => (await readSuspensions(app))[0]);

async function waitLong(id: number): Promise<void> {
  await waitFor(`request ${id} to be complete`, async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
}

async function findDisk(): Promise<{ id: number; mountpoint: string }> {
  const [disk] = await listDisks(app.ctx);
  if (!disk) throw new Error('there is no disk');
  return disk;
}

test('an empty disk that is away when an engine starts is not marked anew, and its files wait for it', async () => {
  await useOnce();
  unmount();
  await withEngine(app, backend, async () => {
    const id = await ask('/marked/');
    expect((await heldDisk()).reason).toContain(
      `the restore disk ${app.restoreDir} is not mounted, or lost its marker`,
    );
    expect(readdirSync(app.restoreDir)).toEqual([]);
    mountAgain();
    await waitLong(id);
  });
  expect(listTree(app.restoreDir).filter((name) => name.startsWith('marked/'))).toHaveLength(8);
  expect(await readSuspensions(app)).toEqual([]);
});

test('one that is registered while an engine works, and was never seen, is marked by the engine', async () => {
  await useOnce();
  const fresh = path.join(app.dataDir, 'fresh');
  mkdirSync(fresh);
  await withEngine(app, backend, async () => {
    await app.ctx.db.pool.query('INSERT INTO restore_disk (mountpoint, size) VALUES ($1, 1000000)', [fresh]);
    await waitFor('the marker', async () => existsSync(path.join(fresh, markerName)));
    await app.ctx.db.pool.query('UPDATE restore_disk SET size = 0 WHERE mountpoint <> $1', [fresh]);
    await waitLong(await ask('/marked/'));
  });
  expect(listTree(fresh)).toHaveLength(9);
});

test('whoever asks a disk for its room, of however new a process, writes no marker', async () => {
  await useOnce();
  unmount();
  const disk = await findDisk();
  await expect(new DiskGauge().look(disk)).rejects.toThrow('lost its marker');
  expect(await meetDisk(app.ctx, disk)).toContain('lost its marker');
  expect(readdirSync(app.restoreDir)).toEqual([]);
});

test('an operator marks what has taken the place of the disk, and then it is used', async () => {
  await useOnce();
  unmount();
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const add = ['disk', 'add', app.restoreDir, '--size', '1G'];
  const refused = await runCli(add, { env });
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('disk add --mark makes it') });
  expect(readdirSync(app.restoreDir)).toEqual([]);
  expect(await runCli([...add, '--mark'], { env })).toMatchObject({ code: 0 });
  await withEngine(app, backend, async () => waitForState(app, await ask('/marked/'), 'COMPLETED'));
});

test('a disk that programs from before have marked is taken as it is, and is known from then on', async () => {
  await useOnce();
  await app.ctx.db.pool.query('UPDATE restore_disk SET marked_at = NULL, marked_as = NULL');
  await withEngine(app, backend, async () => {
    const id = await ask('/marked/1');
    await waitForState(app, id, 'COMPLETED');
    await cancel(app, id);
    await waitFor('the copy to go', async () => (await readDisks(app)).used === 0n);
  });
  unmount();
  expect(await meetDisk(app.ctx, await findDisk())).toContain('lost its marker');
});

test.each([
  ['a copy that was changed by hand', `UPDATE tape_file SET stage = 'UNVERIFIED', changed_disk_id = $1`],
  ['a copy that is to leave', `UPDATE tape_file SET disk_id = $1`],
  [
    'what a recall has left behind',
    'INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size) SELECT f.id, $1, d.id, 1, 10 FROM tape_file f, drive d',
  ],
])('a disk that nobody has met yet is not marked where %s is noted, and not there', async (_what, note) => {
  await useOnce();
  await app.ctx.db.pool.query('UPDATE restore_disk SET marked_at = NULL, marked_as = NULL');
  const disk = await findDisk();
  await app.ctx.db.pool.query(note, [disk.id]);
  unmount();
  expect(await meetDisk(app.ctx, disk)).toContain('none of the copies that should be on it');
  expect(readdirSync(app.restoreDir)).toEqual([]);
});

test('of two hosts that meet a new disk at once one marks it, and the other one finds it missing', async () => {
  await useOnce();
  await app.ctx.db.pool.query('UPDATE restore_disk SET marked_at = NULL, marked_as = NULL');
  unmount();
  const disk = await findDisk();
  await noteMarked(app.ctx, disk.id, `${markerName}-of-the-other`);
  expect(await meetDisk(app.ctx, disk)).toContain('lost its marker');
  expect(readdirSync(app.restoreDir)).toEqual([]);
  // whoever has noted it was killed before the marker was in its place
  writeFileSync(
    path.join(`${app.restoreDir}-away`, `${markerName}-of-the-other`),
    `${JSON.stringify({ disk: disk.id, mountpoint: disk.mountpoint })}\n`,
  );
  rmSync(path.join(`${app.restoreDir}-away`, markerName));
  mountAgain();
  expect(await meetDisk(app.ctx, disk)).toBeUndefined();
  expect(existsSync(path.join(app.restoreDir, markerName))).toBe(true);
});

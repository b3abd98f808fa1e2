/** Restore disks that fail: they are taken out of service with the reason, tried again, and no file is given up for them. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CallWatch } from '../../src/engine/calls.js';
import { addDisk } from '../../src/engine/disk/setup.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, readDisks, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
let backend: ReturnType<typeof createMemoryBackend>;
/** What was told to the log, an object a line. */
let lines: { level: number; msg: string; disk?: string }[];

beforeEach(async () => {
  clock = createClock();
  backend = createMemoryBackend();
  lines = [];
  app = await start({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(JSON.parse(line)) });
const start = createFreshApp({ now: () => clock.now(), log });

/** A file system of its own that can be made read-only, where mounting is allowed. */
function mountOwn(): string | undefined {
  const dir = makeTempDir();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=755', 'tapegate-test', dir], { stdio: 'ignore' });
    return dir;
  } catch {
    rmSync(dir, { recursive: true });
    return undefined;
  }
}

const own = mountOwn();
const makeOwn = (mode: 'ro' | 'rw') => execFileSync('mount', ['-o', `remount,${mode}`, own ?? '']);
afterEach(() => {
  if (own === undefined) return;
  makeOwn('rw');
  for (const name of readdirSync(own)) rmSync(path.join(own, name), { recursive: true });
});
afterAll(() => {
  if (own === undefined) return;
  execFileSync('umount', ['-l', own]);
  rmSync(own, { recursive: true });
});

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

async function tape(folder: string, count: number): Promise<void> {
  const files = Array.from({ length: count }, (_, n) => ({ path: `${folder}${n}`, volume: 'V1', size: 10 }));
  await addTaped(app.ctx, backend, files);
}

const heldDisk = (mountpoint: string) =>
  waitFor(`${mountpoint} to be held`, async () =>
    (await readSuspensions(app)).find(({ kind, name }) => kind === 'DISK' && name === mountpoint),
  );

/** Pauses end, also those between two tries of a disk. */
async function waitLong(id: number, state: string): Promise<void> {
  await waitFor(`request ${id} to be ${state}`, async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return (await viewRequest(app, id)).state === state;
  });
}

test.skipIf(own === undefined)('the files of a disk that turns read-only go to another one, at once', async () => {
  const mountpoint = own ?? '';
  await addDisk(app.ctx, { mountpoint, size: 10n ** 12n }); // it has the most room
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 6n });
  await tape('/ro/', 60);
  const first = await ask('/ro/0');
  await waitForState(app, first, 'COMPLETED');
  expect(listTree(mountpoint)).toContain('ro/0');
  makeOwn('ro');
  clock.freeze(); // no pause ends
  const id = await ask('/ro/');
  await waitForState(app, id, 'COMPLETED');
  clock.goOn();
  expect(await heldDisk(mountpoint)).toMatchObject({ mode: 'HELD', reason: expect.stringContaining('EROFS') });
  expect(listTree(app.restoreDir).filter((name) => name.startsWith('ro/'))).toHaveLength(59);
  expect(lines.filter(({ disk }) => disk === mountpoint)).toHaveLength(1);
});

test.skipIf(own === undefined)(
  'files wait for the only disk, which is in service by itself once it works',
  async () => {
    const mountpoint = own ?? '';
    await addDisk(app.ctx, { mountpoint, size: 10n ** 9n });
    await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
    makeOwn('rw');
    await tape('/only/', 20);
    const first = await ask('/only/0');
    await waitForState(app, first, 'COMPLETED'); // its marker is there
    makeOwn('ro');
    const id = await ask('/only/');
    await heldDisk(mountpoint);
    // many times longer than any file is tried
    for (let times = 0; times < 20; times++) {
      clock.advance(600);
      await ring(app, 'recall');
      await readSuspensions(app);
    }
    const tries = await waitFor('all files to wait', async () => {
      const all = Object.values(await readTries(app, id)).filter(({ state }) => state !== 'ON_DISK');
      return all.length === 19 && all.every((one) => one.recallState === 'WAITING' && one.lastError) && all;
    });
    expect(new Set(tries.map(({ attempts, lastErrorClass }) => `${attempts} ${lastErrorClass}`))).toEqual(
      new Set(['0 TRANSIENT']),
    );
    makeOwn('rw');
    await waitLong(id, 'COMPLETED');
    expect(await readSuspensions(app)).toEqual([]);
    const { rows } = await app.ctx.db.pool.query('SELECT failures FROM restore_disk WHERE mountpoint = $1', [
      mountpoint,
    ]);
    expect(rows).toEqual([{ failures: 0 }]);
  },
);

test('a disk that is missing is held, and resumed by an operator it is used at once', async () => {
  await tape('/gone/', 5);
  const first = await ask('/gone/0');
  await waitForState(app, first, 'COMPLETED');
  clock.freeze();
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  const id = await ask('/gone/');
  const held = await heldDisk(app.restoreDir);
  expect(held.reason).toBe(`the restore disk ${app.restoreDir} is not there`);
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  await resume(app, 'DISK', app.restoreDir);
  await waitForState(app, id, 'COMPLETED');
  clock.goOn();
});

test('what an operator holds over a failing disk is not put back by the engine', async () => {
  await tape('/both/', 2);
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  const id = await ask('/both/');
  await heldDisk(app.restoreDir);
  const query = `UPDATE suspension SET reason = 'it goes to the workshop', retry_at = NULL`;
  await app.ctx.db.pool.query(query);
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  for (let times = 0; times < 20; times++) {
    clock.advance(600);
    await ring(app, 'recall');
    expect(await readSuspensions(app)).toMatchObject([{ reason: 'it goes to the workshop' }]);
  }
  await resume(app, 'DISK', app.restoreDir);
  await waitLong(id, 'COMPLETED');
});

test('copies that are to leave a disk that is away are told of once, not one by one again and again', async () => {
  await tape('/many/', 300);
  const id = await ask('/many/');
  await waitForState(app, id, 'COMPLETED');
  clock.freeze();
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir); // as where nothing is mounted
  lines.length = 0;
  await cancel(app, id);
  await heldDisk(app.restoreDir);
  for (let times = 0; times < 20; times++) {
    await ring(app, 'event');
    await readStage(app, '/many/0');
  }
  expect(lines.map(({ msg }) => msg)).toEqual([expect.stringContaining('restore disk held: ')]);
  expect((await readDisks(app)).used).toBe(3000n);
  rmSync(app.restoreDir, { recursive: true });
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  clock.goOn();
  await waitFor('the copies to go', async () => {
    clock.advance(600);
    return (await readDisks(app)).used === 0n;
  });
});

test.each(['HELD', 'DRAINING'] as const)(
  'a failing disk that is %s by an operator, before or after it fails, is left alone until it works',
  async (mode) => {
    for (const isFirst of [true, false]) {
      const folder = `/${mode}/${isFirst}/`;
      await tape(folder, 1);
      const id = await ask(folder);
      await waitForState(app, id, 'COMPLETED');
      const other = path.join(app.dataDir, `other-${isFirst}`);
      mkdirSync(other);
      await addDisk(app.ctx, { mountpoint: other, size: 10n ** 6n });
      const hold = () => suspend(app, { kind: 'DISK', name: app.restoreDir, mode, reason: 'it is looked into' });
      if (isFirst) await hold();
      lines.length = 0;
      renameSync(app.restoreDir, `${app.restoreDir}-away`);
      await cancel(app, id);
      await waitFor('the disk to be known to fail', async () => lines.some(({ disk }) => disk === app.restoreDir));
      if (!isFirst) await hold();

      const calls = vi.spyOn(CallWatch.prototype, 'follow');
      await tape(`${folder}other/`, 1);
      const later = await ask(`${folder}other/`);
      await waitForState(app, later, 'COMPLETED');
      await cancel(app, later);
      await waitFor('the other copy to leave', async () => listTree(other).length === 0);
      const places = calls.mock.calls.map(([place]) => (place.kind === 'disk' ? place.mountpoint : 'tape'));
      expect(places).toContain(other);
      expect(places).not.toContain(app.restoreDir);
      calls.mockRestore();

      renameSync(`${app.restoreDir}-away`, app.restoreDir);
      await waitFor('the copy to leave the disk', async () => {
        clock.advance(600);
        return (await readDisks(app)).used === 0n;
      });
      expect(await readSuspensions(app)).toMatchObject([{ name: app.restoreDir, mode, reason: 'it is looked into' }]);
      await setDisk(app.ctx, { mountpoint: other, size: 0n });
      await resume(app, 'DISK', app.restoreDir);
    }
  },
);

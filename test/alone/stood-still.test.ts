/** An engine that stood still, while another one had its drive and put in order what it had left: it leaves nothing of what it makes then. */
import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parsePartialName } from '../../src/engine/disk/partial-name.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { prepareIdle, withEngine } from '../support/engine-by-hand.js';
import { addTaped } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { createFreshApp } from '../support/fresh-app.js';
import { cancel } from '../support/mutations.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

/** What happens just before a step; what is thrown is what comes of it. */
const before = vi.hoisted(() => ({
  making: async (_paths: readonly string[]) => {},
  noting: async () => {},
  forgetting: async () => {},
  opening: async (_file: string) => {},
  taking: async (_name: string) => {},
}));

vi.mock('../../src/operations/disks/folders.js', async (original) => {
  const real = await original<typeof import('../../src/operations/disks/folders.js')>();
  const noteMaking: typeof real.noteMaking = async (ctx, diskId, paths) => {
    const notes = await real.noteMaking(ctx, diskId, paths);
    await before.making(paths);
    return notes;
  };
  const noteMade: typeof real.noteMade = async (...given) => {
    await before.noting();
    await real.noteMade(...given);
  };
  const forgetFolders: typeof real.forgetFolders = async (...given) => {
    await before.forgetting();
    return await real.forgetFolders(...given);
  };
  return { ...real, noteMaking, noteMade, forgetFolders };
});

vi.mock('../../src/engine/disk/descriptors.js', async (original) => {
  const real = await original<typeof import('../../src/engine/disk/descriptors.js')>();
  const openFile: typeof real.openFile = async (file, ...how) => {
    await before.opening(String(file));
    return await real.openFile(file, ...how);
  };
  return { ...real, openFile };
});

vi.mock('../../src/engine/disk/taking.js', async (original) => {
  const real = await original<typeof import('../../src/engine/disk/taking.js')>();
  const takeEntry: typeof real.takeEntry = async (folder, name, isWanted) => {
    await before.taking(name);
    return await real.takeEntry(folder, name, isWanted);
  };
  return { ...real, takeEntry };
});

const steps = { ...before };
const LEASE_SECONDS = 1;

let app: TestApp;
let backend: ReturnType<typeof createMemoryBackend>;

const start = createFreshApp();
beforeEach(async () => {
  app = await prepareIdle(await start());
  backend = createMemoryBackend();
});
afterEach(async () => {
  Object.assign(before, steps);
  expect(await findFaults(app)).toEqual([]);
});

const nothing = async () => {};

/** Does it the first time. */
function once(step: keyof typeof before, work: () => Promise<void>): void {
  before[step] = async () => {
    before[step] = nothing;
    await work();
  };
}

/** The database, or a disk, is away for a moment. */
async function fail(): Promise<void> {
  throw Object.assign(new Error('away'), { code: 'ECONNRESET' });
}

async function ask(...files: string[]): Promise<number> {
  const rows = files.map((file, index) => ({ path: file, volume: 'STILL', position: BigInt(index + 1) }));
  await addTaped(app.ctx, backend, rows);
  return await makeRequest(app, { quota: 'alice', files });
}

/** So long that its lease is over by its own clock as well. */
const LONG_MS = 2000 * LEASE_SECONDS;
/** Not so long, but longer than an answer about the lease counts. */
const SHORT_MS = 500;

async function standStill(id: number, ms = LONG_MS): Promise<void> {
  const since = performance.now();
  await cancel(app, id);
  await app.ctx.db.pool.query(
    `UPDATE drive SET epoch = epoch + 1, engine_id = gen_random_uuid(), lease_until = timezone('utc', now()) - interval '1 second'`,
  );
  await withEngine(app, backend, () =>
    waitFor('the drive to be taken over', async () => {
      const { rowCount } = await app.ctx.db.pool.query('SELECT FROM recall');
      return rowCount === 0 && performance.now() - since > ms;
    }),
  );
}

const countNoted = async () => (await app.ctx.db.pool.query('SELECT FROM made_folder')).rowCount;
const place = (file: string) => path.join(app.restoreDir, file);
const isEmpty = () => readdirSync(app.restoreDir).every((name) => name.startsWith('.'));

/** An engine works until `stood` is open, and goes on until nothing is left. */
async function workUntil(stood: Promise<void>, { isGone = isEmpty, leaseSeconds = LEASE_SECONDS } = {}): Promise<void> {
  const isTidy = async () => isGone() && (await countNoted()) === 0;
  await withEngine(app, backend, () => stood.then(() => waitFor('what was made to go', isTidy)), {
    leaseSeconds,
  });
}

test.each<[string, () => void]>([
  ['', () => {}],
  [', though nobody can note it just then', () => once('noting', fail)],
  [', though nobody can forget it just then', () => once('forgetting', fail)],
])('a folder that is made when others have looked goes%s', async (_how, arrange) => {
  const stood = createGate();
  once('making', async () => {
    await standStill(id);
    expect(await countNoted()).toBe(0);
    arrange();
    stood.open();
  });
  const id = await ask('/still/made/file');
  await workUntil(stood.opened);
});

test('a partial file that is begun when others have looked goes, though the disk is away just then', async () => {
  const stood = createGate();
  mkdirSync(place('kept'), { mode: 0o700 }); // somebody's own: one of ours would be gone by then, and nothing can be begun in it
  before.opening = async (file) => {
    if (!parsePartialName(path.basename(file))) return;
    before.opening = nothing;
    await standStill(id);
    once('taking', () => {
      stood.open();
      return fail();
    });
  };
  const id = await ask('/kept/file');
  await workUntil(stood.opened, { isGone: () => readdirSync(place('kept')).length === 0 });
  rmdirSync(place('kept'));
});

test('who does not know yet that others have the drive makes no folder for any file after that', async () => {
  const made: string[] = [];
  before.making = async (paths) => void made.push(...paths);
  const stood = createGate();
  backend.onRead = async (_volume, _position, bytes) => {
    await standStill(id, SHORT_MS);
    stood.open();
    return bytes;
  };
  const id = await ask('/asks/one/file', '/asks/two/file', '/asks/three/file');
  await workUntil(stood.opened, { leaseSeconds: 60 });
  expect(made).toEqual(['/asks', '/asks/one']);
});

/**
 * An engine stalls while another engine takes over its drive and cleans up. Nothing that the stalled engine creates
 * later remains.
 */
import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parsePartialName } from '../../src/restore-area/partial-file.js';
import type { TestApp } from '../support/app.js';
import { prepareIdle, withEngine } from '../support/engine-by-hand.js';
import { addTaped } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { createFreshApp } from '../support/fresh-app.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

/** Called just before a step. An exception makes the step fail. */
const before = vi.hoisted(() => ({
  making: async (_directory: string) => {},
  removingDirectory: async () => {},
  opening: async (_file: string) => {},
  removing: async () => {},
}));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  const mkdir = async (directory: string, ...how: [number]) => {
    if (directory.startsWith('/proc/self/fd/')) await before.making(directory);
    return await real.mkdir(directory, ...how);
  };
  const rmdir = async (directory: string) => {
    await before.removingDirectory();
    await real.rmdir(directory);
  };
  return { ...real, mkdir, rmdir };
});

vi.mock('../../src/restore-area/descriptors.js', async (original) => {
  const real = await original<typeof import('../../src/restore-area/descriptors.js')>();
  const openFile: typeof real.openFile = async (file, ...how) => {
    await before.opening(String(file));
    return await real.openFile(file, ...how);
  };
  return { ...real, openFile };
});

vi.mock('../../src/restore-area/entry.js', async (original) => {
  const real = await original<typeof import('../../src/restore-area/entry.js')>();
  const removeEntry: typeof real.removeEntry = async (...given) => {
    await before.removing();
    return await real.removeEntry(...given);
  };
  return { ...real, removeEntry };
});

const steps = { ...before };
const LEASE_SECONDS = 1;

let app: TestApp;
let library: ReturnType<typeof createMemoryLibrary>;

const start = createFreshApp();
beforeEach(async () => {
  app = await prepareIdle(await start());
  library = createMemoryLibrary();
});
afterEach(async () => {
  Object.assign(before, steps);
  expect(await findFaults(app)).toEqual([]);
});

const nothing = async () => {};

/** Runs `work` just before the first step of a kind. */
function once(step: keyof typeof before, work: () => Promise<void>): void {
  before[step] = async () => {
    before[step] = nothing;
    await work();
  };
}

/** Throws the error of a database or disk that is briefly unreachable. */
async function fail(): Promise<void> {
  throw Object.assign(new Error('away'), { code: 'ECONNRESET' });
}

async function ask(...files: string[]): Promise<number> {
  const rows = files.map((file, index) => ({ path: file, volume: 'STILL', position: BigInt(index + 1) }));
  await addTaped(app.ctx, library, rows);
  return await makeRequest(app, { quota: 'alice', files });
}

/** Milliseconds after which the lease has expired. */
const LONG_MS = 1200 * LEASE_SECONDS;
/** Milliseconds after which the engine checks its lease again. */
const SHORT_MS = 500;

/** Cancels the request and lets another engine take over the drive. */
async function stall(id: number): Promise<void> {
  await cancel(app, id);
  await takeOver(LONG_MS);
}

/** Lets another engine take over the drive and do all work, for at least `ms`. */
async function takeOver(ms: number): Promise<void> {
  const since = performance.now();
  await app.ctx.db.pool.query(
    `UPDATE drive SET epoch = epoch + 1, engine_id = gen_random_uuid(), lease_until = timezone('utc', now()) - interval '1 second'`,
  );
  await withEngine(app, library, () =>
    waitFor('the drive to be taken over', async () => {
      const { rowCount } = await app.ctx.db.pool.query('SELECT FROM recall');
      return rowCount === 0 && performance.now() - since > ms;
    }),
  );
}

const place = (file: string) => path.join(app.restoreDir, file);
const isEmpty = () => readdirSync(app.restoreDir).every((name) => name.startsWith('.'));

/** Runs an engine until it stalls, and then waits until no file is left. */
async function workUntil(
  stalled: Promise<void>,
  { isGone = isEmpty, leaseSeconds = LEASE_SECONDS } = {},
): Promise<void> {
  const isTidy = async () => isGone();
  await withEngine(app, library, () => stalled.then(() => waitFor('everything to be removed', isTidy)), {
    leaseSeconds,
  });
  // the check also succeeds before the engine creates a directory, and a failed removal is retried
  await waitFor('nothing to be left after the engine has stopped', isTidy);
}

test.each<[string, () => void]>([
  ['', () => {}],
  [', even if this fails at first', () => once('removingDirectory', fail)],
])('a directory that a stalled engine makes after the takeover is removed%s', async (_how, arrange) => {
  const stalled = createGate();
  once('making', async () => {
    await stall(id);
    arrange();
    stalled.open();
  });
  const id = await ask('/still/made/file');
  await workUntil(stalled.opened);
});

test('a partial file that a stalled engine begins after the takeover is removed, even if the disk is away then', async () => {
  const stalled = createGate();
  mkdirSync(place('kept'), { mode: 0o700 }); // not created by Tapegate, so it stays
  before.opening = async (file) => {
    if (!parsePartialName(path.basename(file))) return;
    before.opening = nothing;
    await stall(id);
    once('removing', () => {
      stalled.open();
      return fail();
    });
  };
  const id = await ask('/kept/file');
  await workUntil(stalled.opened, { isGone: () => readdirSync(place('kept')).length === 0 });
  rmdirSync(place('kept'));
});

test('an engine that does not know of the takeover yet creates no directory for further files', async () => {
  const made: string[] = [];
  before.making = async (directory) => void made.push(directory);
  let state: 'reads' | 'stalls' | 'resumes' = 'reads';
  library.onRead = async (_volume, _position, bytes) => {
    if (state !== 'reads') return bytes; // a read by the other engine
    state = 'stalls';
    await takeOver(SHORT_MS);
    made.length = 0;
    state = 'resumes';
    return bytes;
  };
  await ask('/asks/one/file', '/asks/two/file', '/asks/three/file');
  const hasDrive = `SELECT FROM drive WHERE lease_until > timezone('utc', now())`;
  const isBack = async () => state === 'resumes' && (await app.ctx.db.pool.query(hasDrive)).rowCount === 1;
  await withEngine(app, library, () => waitFor('the engine to claim the drive again', isBack), { leaseSeconds: 60 });
  expect(made).toEqual([]);
});

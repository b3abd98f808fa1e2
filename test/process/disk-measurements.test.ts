/** What is really free on the restore disks, and what is wrong with them, as clients see it without touching them. */
import { renameSync } from 'node:fs';
import { hostname } from 'node:os';
import { beforeEach, expect, test } from 'vitest';
import type { EngineOptions } from '../../src/engine/runner.js';
import { noteMeasurements } from '../../src/operations/disks/measurements.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { withEngine } from '../support/engine-by-hand.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData } from '../support/graphql.js';
import { runCli } from '../support/process.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
const FREE = 20_000_000_000_000_001n; // no double holds it
const system = { name: 'one', totalBytes: 2n * FREE, freeBytes: FREE };

beforeEach(async () => {
  clock = createClock();
  app = await start({ config: { diskTimeout: 1 } });
});
const start = createFreshApp({ now: () => clock.now() });

interface Seen {
  free: string | null;
  problem: string | null;
}

async function readDisk(): Promise<Seen | undefined> {
  interface Disks {
    restoreDisks: { edges: { node: Seen }[] };
  }
  const { restoreDisks } = await askData<Disks>(app, '{ restoreDisks { edges { node { free problem } } } }');
  return restoreDisks.edges[0]?.node;
}

async function listByCommand(): Promise<unknown> {
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  return JSON.parse((await runCli(['disk', 'list', '--json'], { env })).stdout);
}

/** @returns what is told once somebody says something else than `before` */
const waitForOther = (before: Seen | undefined) =>
  waitFor('another measurement', async () => {
    const seen = await readDisk();
    return seen && JSON.stringify(seen) !== JSON.stringify(before) && seen;
  });

const withLooks = (read: EngineOptions['readFileSystem'], work: () => Promise<void>) =>
  withEngine(app, createMemoryBackend(), work, { lookMs: 50, ...(read && { readFileSystem: read }) });

const unknown = { free: null, problem: null };

test('what an engine sees free on a restore disk is told for a minute, and nothing after that', async () => {
  await withLooks(
    async () => system,
    async () => {
      expect(await waitForOther(unknown)).toEqual({ free: String(FREE), problem: null });
    },
  );
  clock.advance(50);
  expect(await readDisk()).toEqual({ free: String(FREE), problem: null });
  clock.advance(15);
  expect(await readDisk()).toEqual(unknown);
});

test('a restore disk that is away is told with the host that misses it, until it is back', async () => {
  await withLooks(undefined, async () => {
    const before = await waitForOther(unknown);
    expect(BigInt(before.free ?? 0)).toBeGreaterThan(0n);
    renameSync(app.restoreDir, `${app.restoreDir}-away`);
    const problem = `${hostname()}: the restore disk ${app.restoreDir} is not there`;
    const away = await waitFor('the problem', async () => {
      const seen = await readDisk();
      return seen?.problem != null && seen;
    });
    expect(away).toEqual({ free: null, problem });
    renameSync(`${app.restoreDir}-away`, app.restoreDir);
    await waitFor('the disk', async () => (await readDisk())?.problem === null);
  });
});

test('of several hosts the least is told that is free, and what each of them misses; disk list shows it too', async () => {
  await withLooks(
    async () => system,
    async () => void (await waitForOther(unknown)),
  );
  const { rows } = await app.ctx.db.pool.query<{ id: number }>('SELECT id FROM restore_disk');
  const diskId = rows[0]?.id ?? 0;
  await noteMeasurements(app.ctx, 'zeta', [{ diskId, free: 7n, problem: null }]);
  await noteMeasurements(app.ctx, 'eta', [{ diskId, free: null, problem: 'the disk is\nnot there' }]);
  expect(await readDisk()).toEqual({ free: '7', problem: 'eta: the disk is not there' });
  expect(await listByCommand()).toMatchObject({ free: expect.any(Number), problem: 'eta: the disk is not there' });
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  const problem = `the restore disk ${app.restoreDir} is not there`;
  expect(await listByCommand()).toMatchObject({ free: 7, problem });
});

test('a restore disk that hangs is held, and told with the reason', async () => {
  await withLooks(
    () => new Promise<never>(() => {}),
    async () => {
      await waitFor('the disk to be held', async () => (await readSuspensions(app)).length > 0);
      const problem = `the restore disk ${app.restoreDir} has not answered for 1 s`;
      expect(await readDisk()).toEqual({ free: null, problem });
    },
  );
});

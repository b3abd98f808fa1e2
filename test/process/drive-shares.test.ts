/** Several engines on one database: who has which drive. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Engine, type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { cleanUp, kill, startCli, stop } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const DRIVES = 4;

let app: TestApp;
const backend = createMemoryBackend();
const { onRead } = backend;
const engines: Engine[] = [];

beforeAll(async () => {
  app = await startApp({ config: { drives: DRIVES } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  backend.onRead = onRead;
  await Promise.all(engines.splice(0).map((engine) => engine.stop()));
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

async function begin(host: string, engineWeight: number, options: EngineOptions = {}): Promise<Engine> {
  const ctx = { ...app.ctx, config: { ...app.ctx.config, engineWeight } };
  const engine = await startEngine(ctx, backend, { host, settledMs: 0, drainMs: 1000, ...options });
  engines.push(engine);
  return engine;
}

/** By hosts, how many drives they have; `-` stands for none. */
async function readHosts(): Promise<Record<string, number>> {
  const { drives } = await askData<{ drives: { edges: { node: { host: string | null } }[] } }>(
    app,
    '{ drives { edges { node { host } } } }',
  );
  const counts: Record<string, number> = {};
  for (const { node } of drives.edges) counts[node.host ?? '-'] = (counts[node.host ?? '-'] ?? 0) + 1;
  return counts;
}

const waitForHosts = (expected: Record<string, number>) =>
  waitFor(`drives at ${JSON.stringify(expected)}`, async () => {
    const hosts = await readHosts();
    return Object.keys({ ...hosts, ...expected }).every((host) => hosts[host] === expected[host]);
  });

test('engines have drives by their weights, one that comes is given its share, and one that stops leaves it', async () => {
  const first = await begin('heavy', 3);
  await waitForHosts({ heavy: 4 });
  await begin('light', 1);
  await waitForHosts({ heavy: 3, light: 1 });
  await begin('other', 2);
  await waitForHosts({ heavy: 2, light: 1, other: 1 });
  await first.stop();
  await waitForHosts({ light: 1, other: 3 });
});

test('a drive is given back between two batches, and what was read and started with it is neither lost nor tried again', async () => {
  const held = holdReads(backend);
  await addTaped(
    app.ctx,
    backend,
    Array.from({ length: 4 * 300 }, (_, n) => ({ path: `/give/${n}`, volume: `GIVE${n % 4}`, size: 10 })),
  );
  const id = await makeRequest(app, { quota: 'alice', patterns: '/give/' });
  await begin('before', 1);
  const running = () => app.ctx.db.prisma.recall.count({ where: { state: 'RUNNING' } });
  await waitFor(
    'four volumes to be mounted',
    async () => (await app.ctx.db.prisma.drive.count({ where: { volumeId: { not: null } } })) === 4,
  );
  await begin('after', 1);
  // a read is in hand on each drive: nothing moves before it is over
  await waitFor('the second engine to look', async () => (await app.ctx.db.prisma.engineProcess.count()) === 2);
  expect(await readHosts()).toEqual({ before: 4 });
  expect(await running()).toBeGreaterThan(0);
  held.open();
  await waitForHosts({ before: 2, after: 2 });
  await waitForState(app, id, 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query(
    `SELECT count(*)::int AS files, count(*) FILTER (WHERE stage = 'RESTORED')::int AS restored FROM tape_file WHERE path LIKE '/give/%'`,
  );
  expect(rows).toEqual([{ files: 1200, restored: 1200 }]);
});

test('an engine from before, which says nothing, keeps what it has, and the others share the rest', async () => {
  await app.ctx.db.pool.query(
    `UPDATE drive SET engine_id = gen_random_uuid(), lease_until = timezone('utc', clock_timestamp()) + interval '1 hour' WHERE name IN ('drive-1', 'drive-2')`,
  );
  await begin('one', 1);
  await waitForHosts({ '-': 2, one: 2 });
  await begin('two', 1);
  await waitForHosts({ '-': 2, one: 1, two: 1 });
  await app.ctx.db.pool.query(
    `UPDATE drive SET engine_id = NULL, lease_until = NULL WHERE name IN ('drive-1', 'drive-2')`,
  );
  await waitForHosts({ one: 2, two: 2 });
});

test('engines that reach fewer drives are given those', async () => {
  await begin('many', 1);
  await waitForHosts({ many: 4 });
  const ctx = { ...app.ctx, config: { ...app.ctx.config, drives: 2 } };
  engines.push(await startEngine(ctx, backend, { host: 'few', settledMs: 0 }));
  await waitForHosts({ many: 2, few: 2 });
  const few = await app.ctx.db.prisma.engineProcess.findFirst({ where: { host: 'few' } });
  const drives = await app.ctx.db.prisma.drive.findMany({ where: { engineId: few?.id ?? '' }, orderBy: { id: 'asc' } });
  expect(drives.map(({ name }) => name)).toEqual(['drive-1', 'drive-2']);
});

test('real engines share drives, and the share of one that is killed goes to the other when its leases have run out', async () => {
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, DRIVES: String(DRIVES), LOG_LEVEL: 'error' };
  const weights = async () => {
    const { rows } = await app.ctx.db.pool.query<{ weight: number; drives: number }>(
      `SELECT p.weight, count(*)::int AS drives FROM drive d JOIN engine_process p ON p.id = d.engine_id
       WHERE d.lease_until > timezone('utc', clock_timestamp()) GROUP BY p.weight ORDER BY p.weight`,
    );
    return Object.fromEntries(rows.map(({ weight, drives }) => [weight, drives]));
  };
  const waitForWeights = (expected: Record<number, number>) =>
    waitFor(
      `drives at ${JSON.stringify(expected)}`,
      async () => {
        return JSON.stringify(await weights()) === JSON.stringify(expected);
      },
      60_000,
    );
  const heavy = startCli(['work'], { env: { ...env, ENGINE_WEIGHT: '3' } });
  await waitForWeights({ 3: 4 });
  const light = startCli(['work'], { env: { ...env, ENGINE_WEIGHT: '1' } });
  await waitForWeights({ 1: 1, 3: 3 });
  await kill(heavy);
  await waitForWeights({ 1: 4 });
  expect((await stop(light)).code).toBe(0);
  expect(await app.ctx.db.prisma.engineProcess.count({ where: { weight: { lt: 3 } } })).toBe(0);
}, 180_000);

/** Several engines on one database: who has which drive. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Engine, type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { cleanUp, kill, startCli, stop } from '../support/process.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const DRIVES = 4;

/** Engines look for drives every second, and some of these tests go on for many looks, also where others want the machine. */
const WAIT_MS = 120_000;

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
  backend.log.length = 0;
  await Promise.all(engines.splice(0).map((engine) => engine.stop()));
  await app.ctx.db.pool.query('DELETE FROM engine_process');
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

async function begin(host: string, engineWeight: number, options: EngineOptions = {}): Promise<Engine> {
  const ctx = { ...app.ctx, config: { ...app.ctx.config, engineWeight } };
  const engine = await startEngine(ctx, backend, { host, drainMs: 1000, ...options });
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
  waitFor(
    `drives at ${JSON.stringify(expected)}`,
    async () => {
      const hosts = await readHosts();
      return Object.keys({ ...hosts, ...expected }).every((host) => hosts[host] === expected[host]);
    },
    WAIT_MS,
  );

const waitForEnd = (id: number) =>
  waitFor(`request ${id} to be done`, async () => (await viewRequest(app, id)).state === 'COMPLETED', WAIT_MS);

/** A row of an engine that says that it wants all drives, and takes none. */
const askingEngine = () =>
  app.ctx.db.pool.query(
    `INSERT INTO engine_process (id, engine_id, host, drives, reach, weight, asks_until)
     VALUES (gen_random_uuid(), gen_random_uuid(), 'nobody', 4, 4, 1000, timezone('utc', clock_timestamp()) + interval '1 hour')`,
  );

test(
  'engines have drives by their weights, one that comes is given its share, and one that stops leaves it',
  async () => {
    const first = await begin('heavy', 3);
    await waitForHosts({ heavy: 4 });
    await begin('light', 1);
    await waitForHosts({ heavy: 3, light: 1 });
    await begin('other', 2);
    await waitForHosts({ heavy: 2, light: 1, other: 1 });
    await first.stop();
    await waitForHosts({ light: 1, other: 3 });
  },
  4 * WAIT_MS,
);

test(
  'a drive is given back between two volumes, and no file is read twice for it',
  async () => {
    const held = holdReads(backend);
    await addTaped(
      app.ctx,
      backend,
      Array.from({ length: 8 * 3 }, (_, n) => ({ path: `/give/${n}`, volume: `GIVE${n % 8}`, size: 10 })),
    );
    const id = await makeRequest(app, { quota: 'alice', patterns: '/give/' });
    await begin('before', 1);
    const mounted = () => app.ctx.db.prisma.drive.count({ where: { volumeId: { not: null } } });
    await waitFor('four volumes to be mounted', async () => (await mounted()) === 4, WAIT_MS);
    await begin('after', 1);
    await waitFor(
      'the second engine to ask',
      async () => (await app.ctx.db.prisma.engineProcess.count()) === 2,
      WAIT_MS,
    );
    expect(await readHosts()).toEqual({ before: 4 }); // a read is in hand on each drive
    held.open();
    await waitForHosts({ before: 2, after: 2 });
    await waitForEnd(id);
    const { rows } = await app.ctx.db.pool.query(
      `SELECT count(*)::int AS files, count(*) FILTER (WHERE stage = 'RESTORED')::int AS restored FROM tape_file WHERE path LIKE '/give/%'`,
    );
    expect(rows).toEqual([{ files: 24, restored: 24 }]);
    expect(backend.log.filter(({ what }) => what === 'read').length).toBe(24);
  },
  4 * WAIT_MS,
);

test(
  'a drive that is free is taken after a few seconds, whoever is said to ask for it',
  async () => {
    await askingEngine();
    await begin('alone', 1);
    await waitForHosts({ alone: 4 });
    await addTaped(app.ctx, backend, [{ path: '/alone/a', volume: 'ALONE', size: 10 }]);
    await waitForEnd(await makeRequest(app, { quota: 'alice', patterns: '/alone/' }));
  },
  4 * WAIT_MS,
);

test(
  'an engine from before, which says nothing, keeps what it has, and the others share the rest',
  async () => {
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
  },
  4 * WAIT_MS,
);

test(
  'engines that reach fewer drives are given those',
  async () => {
    await begin('many', 1);
    await waitForHosts({ many: 4 });
    const ctx = { ...app.ctx, config: { ...app.ctx.config, drives: 2 } };
    engines.push(await startEngine(ctx, backend, { host: 'few' }));
    await waitForHosts({ many: 2, few: 2 });
    const few = await app.ctx.db.prisma.engineProcess.findFirst({ where: { host: 'few' } });
    const drives = await app.ctx.db.prisma.drive.findMany({
      where: { engineId: few?.id ?? '' },
      orderBy: { id: 'asc' },
    });
    expect(drives.map(({ name }) => name)).toEqual(['drive-1', 'drive-2']);
  },
  4 * WAIT_MS,
);

test(
  'an engine that cannot use the library leaves all drives to one that can, and what waits is restored',
  async () => {
    const closed = createMemoryBackend();
    closed.mount = async () => {
      throw new LibraryError('TRANSIENT', 'the library is not there on this host');
    };
    await begin('able', 1);
    await waitForHosts({ able: 4 });
    const unable = await startEngine(app.ctx, closed, { host: 'unable', drainMs: 1000 });
    engines.push(unable);
    await waitForHosts({ able: 2, unable: 2 });
    const held = holdReads(backend); // or what waits may be done before the other one knows what it cannot do
    await addTaped(
      app.ctx,
      backend,
      Array.from({ length: 6 }, (_, n) => ({ path: `/able/${n}`, volume: `ABLE${n}`, size: 10 })),
    );
    const id = await makeRequest(app, { quota: 'alice', patterns: '/able/' });
    await waitForHosts({ able: 4 });
    held.open();
    await waitForEnd(id);
  },
  4 * WAIT_MS,
);

test(
  'real engines share drives by their weights, and the share of one that is killed goes to the others',
  async () => {
    const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, DRIVES: '3', LOG_LEVEL: 'error' };
    const start = (weight: number) => startCli(['work'], { env: { ...env, ENGINE_WEIGHT: String(weight) } });
    const waitForWeights = (expected: Record<number, number>) =>
      waitFor(
        `by weights, drives ${JSON.stringify(expected)}`,
        async () => {
          const { rows } = await app.ctx.db.pool.query<{ weight: number; drives: number }>(
            `SELECT p.weight, count(*)::int AS drives FROM drive d JOIN engine_process p ON p.id = d.engine_id
             WHERE d.lease_until > timezone('utc', clock_timestamp()) GROUP BY p.weight ORDER BY p.weight`,
          );
          const found = Object.fromEntries(rows.map(({ weight, drives }) => [weight, drives]));
          return JSON.stringify(found) === JSON.stringify(expected);
        },
        WAIT_MS,
      );
    const light = start(1);
    await waitForWeights({ 1: 3 });
    const heavy = start(3);
    await waitForWeights({ 1: 1, 3: 2 });
    await kill(heavy);
    await waitForWeights({ 1: 3 });
    expect((await stop(light)).code).toBe(0);
    expect(await app.ctx.db.prisma.engineProcess.count({ where: { weight: { not: 3 } } })).toBe(0);
  },
  6 * WAIT_MS,
);

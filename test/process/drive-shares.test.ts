/**
 * Several engines on one database, and the drives that each engine gets. test/pure/drive-shares.test.ts tests the
 * choice itself.
 */
import { afterEach, expect, test } from 'vitest';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { type DriveLibrary, LibraryError } from '../../src/tape/drive-library.js';
import { addTaped } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { useMemorySite } from '../support/memory-site.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const DRIVES = 4;

const { app, library, query } = useMemorySite({ isIdle: true, drives: DRIVES });
const engines: Engine[] = [];

afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.stop()));
  await query('DELETE FROM engine_process');
});

interface EngineSettings {
  weight?: number;
  drives?: number;
  library?: DriveLibrary;
}

async function begin(host: string, { weight = 1, drives = DRIVES, library: own = library }: EngineSettings = {}) {
  const ctx = { ...app.ctx, config: { ...app.ctx.config, engineWeight: weight, drives } };
  const engine = await startEngine(ctx, own, { host, drainMs: 1000, idleMs: 200 });
  engines.push(engine);
  return engine;
}

/** Waits until each host has this many drives. The host `-` stands for engines that are not registered. */
async function waitForHosts(expected: Record<string, number>): Promise<void> {
  await waitFor(`drives at ${JSON.stringify(expected)}`, async () => {
    type Drives = { drives: Edges<{ host: string | null }> };
    const { drives } = await askData<Drives>(app, '{ drives { edges { node { host } } } }');
    const hosts = drives.edges.map(({ node }) => node.host ?? '-');
    const isSo = ([host, count]: [string, number]) => hosts.filter((each) => each === host).length === count;
    return Object.entries(expected).every(isSo);
  });
}

/** Requests `files` files of 10 bytes, spread over `volumes` volumes in turn. */
async function request(name: string, files: number, volumes: number): Promise<number> {
  const taped = Array.from({ length: files }, (_, n) => ({
    ...{ path: `/${name}/${n}`, volume: `${name}${n % volumes}`, size: 10 },
  }));
  await addTaped(app.ctx, library, taped);
  return await makeRequest(app, { quota: 'alice', patterns: `/${name}/` });
}

test('engines share the drives by their weights, also with engines that start and stop', async () => {
  const heavy = await begin('heavy', { weight: 3 });
  await waitForHosts({ heavy: 4 });
  await begin('light');
  await waitForHosts({ heavy: 3, light: 1 });
  await heavy.stop();
  await waitForHosts({ light: 4 });
});

test('a drive is given to another engine between two volumes: each volume is in one drive, and each file is read once', async () => {
  const held = holdReads(library);
  const id = await request('give', 8 * 3, 8);
  await begin('before');
  const mounted = () => app.ctx.db.prisma.drive.count({ where: { volumeId: { not: null } } });
  await waitFor('four mounted volumes', async () => (await mounted()) === DRIVES);
  await begin('after');
  const asks = () => app.ctx.db.prisma.engineProcess.count();
  await waitFor('the second engine to ask', async () => (await asks()) === 2);
  await waitForHosts({ before: 4, after: 0 }); // each drive is reading, so no drive changes its engine
  held.open();
  await waitForHosts({ before: 2, after: 2 });
  await waitForState(app, id, 'COMPLETED');
  expect(library.log.filter(({ what }) => what === 'read').length).toBe(24);

  const volumes = new Map<string, string>();
  for (const { what, volume, drive } of library.log) {
    if (what === 'unmount') volumes.delete(drive);
    if (what !== 'mount') continue;
    expect([...volumes.keys()]).not.toContain(drive);
    expect([...volumes.values()]).not.toContain(volume);
    volumes.set(drive, volume);
  }
  expect(library.log.filter(({ what }) => what === 'mount').length).toBe(8);
});

test('a free drive is taken after a few seconds although another engine asks for it', async () => {
  await query(
    `INSERT INTO engine_process (id, engine_id, host, drives, reach, weight, asks_until)
     VALUES (gen_random_uuid(), gen_random_uuid(), 'absent', 4, 4, 1000, timezone('utc', clock_timestamp()) + interval '10 minutes')`,
  );
  await begin('alone');
  await waitForHosts({ alone: 4 });
  await waitForState(app, await request('alone', 1, 1), 'COMPLETED');
});

test('an engine that is not registered keeps its drives until its lease ends, and the others share the rest', async () => {
  const [mine, leaseOf] = [`name IN ('drive-1', 'drive-2')`, `timezone('utc', clock_timestamp())`];
  await query(
    `UPDATE drive SET engine_id = gen_random_uuid(), lease_until = ${leaseOf} + interval '10 minutes' WHERE ${mine}`,
  );
  await begin('one');
  await waitForHosts({ '-': 2, one: 2 });
  await begin('two');
  await waitForHosts({ '-': 2, one: 1, two: 1 });
  // as if the engine of the drive had been killed
  await query(`UPDATE drive SET lease_until = ${leaseOf} WHERE ${mine}`);
  await waitForHosts({ one: 2, two: 2 });
});

test('an engine that reaches only some drives gets those', async () => {
  await begin('many');
  await waitForHosts({ many: 4 });
  await begin('few', { drives: 2 });
  await waitForHosts({ many: 2, few: 2 });
  const names = await query(
    `SELECT d.name FROM drive d JOIN engine_process p ON p.id = d.engine_id WHERE p.host = 'few' ORDER BY d.name`,
  );
  expect(names).toEqual([{ name: 'drive-1' }, { name: 'drive-2' }]);
});

test('an engine that cannot use the library leaves all drives to one that can', async () => {
  const closed = createMemoryLibrary();
  closed.mount = async () => {
    throw new LibraryError('TRANSIENT', 'the library is not there on this host');
  };
  await begin('able');
  await waitForHosts({ able: 4 });
  await begin('unable', { library: closed });
  await waitForHosts({ able: 2, unable: 2 });
  // without this, `able` could read all files before `unable` notices that its library is missing
  const held = holdReads(library);
  const id = await request('able', 6, 6);
  await waitForHosts({ able: 4 });
  held.open();
  await waitForState(app, id, 'COMPLETED');
});

/** A restore disk that one host does not see is that host's matter, as long as another one sees it. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AbsentError } from '../../src/engine/disk/marker.js';
import { readFileSystem } from '../../src/engine/disk/space.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const clock = createClock();
let engines: Engine[] = [];
/** Hosts where nothing is mounted at the disk's place. */
const blind = new Set<string>();

beforeEach(async () => {
  app = await start();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const files = Array.from({ length: 24 }, (_, n) => ({ path: `/hosts/${n}`, volume: `V${n % 3}`, size: 10 }));
  await addTaped(
    app.ctx,
    backend,
    files.map((file, n) => ({ ...file, position: BigInt(n + 1) })),
  );
});
afterEach(async () => {
  await Promise.all(engines.map((engine) => engine.stop()));
  engines = [];
  blind.clear();
});
const start = createFreshApp({ now: clock.now });

async function startHost(host: string): Promise<void> {
  const look = async (mountpoint: string) => {
    if (blind.has(host)) throw new AbsentError(`nothing is mounted on host ${host}`);
    return await readFileSystem(mountpoint);
  };
  engines.push(await startEngine(app.ctx, backend, { host, readFileSystem: look, drainMs: 200, lookMs: 200 }));
}

/** Until each of the hosts has looked at the disk once, and seen it or not. */
async function waitForLooks(...hosts: string[]): Promise<void> {
  await waitFor(`a look of ${hosts}`, async () => {
    const { rows } = await app.ctx.db.pool.query('SELECT host, problem IS NULL AS "isSeen" FROM disk_measurement');
    return hosts.every((host) => rows.some((row) => row.host === host && row.isSeen !== blind.has(host)));
  });
}

const ask = () => makeRequest(app, { quota: 'alice', patterns: '/hosts/', retention: '2099-01-01' });

test('a disk that one host does not see stays in service, and the other host restores to it', async () => {
  blind.add('two');
  await startHost('one');
  await startHost('two');
  await waitForLooks('one', 'two');
  await waitForState(app, await ask(), 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
});

test('a host that has all drives and does not see the disk leaves them to the one that sees it', async () => {
  await startHost('two'); // registers the disk
  await waitForLooks('two');
  blind.add('two');
  await startHost('one');
  await waitForLooks('one', 'two');
  await waitForState(app, await ask(), 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
  const { rows } = await app.ctx.db.pool.query(`SELECT problem FROM disk_measurement WHERE host = 'two'`);
  expect(rows).toEqual([{ problem: 'nothing is mounted on host two' }]);
});

test('a disk that no host sees is held, and in service again as soon as one of them sees it', async () => {
  await startHost('one');
  await startHost('two');
  await waitForLooks('one', 'two');
  blind.add('one').add('two');
  await waitForLooks('one', 'two');
  const id = await ask();
  const [held] = await waitFor('the disk to be held', async () => {
    const all = await readSuspensions(app);
    return all.length > 0 && all;
  });
  expect(held?.reason).toContain('nothing is mounted on host');
  blind.delete('one');
  await waitFor('the files', async () => {
    clock.advance(2);
    await ring(app, 'recall');
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
  expect(await readSuspensions(app)).toEqual([]);
});

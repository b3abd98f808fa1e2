/** What a staging library cannot let go is shown with its expiry, and as long as it is there. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { waitFor } from '../support/wait.js';

const DAY_MS = 86_400_000;

let app: TestApp;
let clock = createClock();

beforeEach(async () => {
  clock = createClock();
  app = await startApp({ backend: createMemoryBackend(), now: clock.now, engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
});
afterEach(() => app.close());

/** A system that lets nothing go, with a file of it that was restored. */
async function restoreOne(lifetimeMs: number | null, onCall?: (system: MemoryTapeSystem, what: string) => void) {
  const system = new MemoryTapeSystem({ releases: false, lifetimeMs });
  system.onStaged = (paths) => system.arrive(paths);
  system.onCall = async (what) => onCall?.(system, what);
  await addMemoryLibrary(app.ctx, { name: 'silo' }, system);
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/a/1' }] });
  const id = await makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: '/a/' });
  await waitForState(app, id, 'COMPLETED');
  await waitFor('it to be kept', async () => {
    clock.advance(20); // it waits for others of its demand for a while
    await ring(app, 'event');
    return (await readStates(app.ctx))['/a/1'] === 'KEPT';
  });
  return system;
}

interface Shown {
  kept: number;
  nextKept: { path: string; until: string | null }[];
}

async function readShown(): Promise<Shown> {
  const { libraries } = await askData<{ libraries: Edges<{ staging: Shown | null }> }>(
    app,
    '{ libraries { edges { node { staging { kept nextKept { path until } } } } } }',
  );
  return libraries.edges.flatMap(({ node }) => node.staging ?? [])[0] as Shown;
}

const isGone = async () => {
  await ring(app, 'event');
  return Object.keys(await readStates(app.ctx)).length === 0;
};

test('a copy that leaves by itself is shown with its time, and no longer', async () => {
  const system = await restoreOne(DAY_MS);
  const until = system.disk.get('/a/1')?.toISOString() ?? '';
  const shown = await readShown();
  expect(shown).toMatchObject({ kept: 1, nextKept: [{ path: '/a/1' }] });
  expect(new Date(shown.nextKept[0]?.until ?? '').toISOString()).toBe(until);
  clock.advance(DAY_MS / 1000 + 1);
  await waitFor('it to be forgotten', isGone);
});

test('a time that was told when it was ready, and not when it was let go, holds', async () => {
  const system = await restoreOne(DAY_MS, (there, what) => {
    if (what === 'release') there.disk.set('/a/1', null);
  });
  expect(system.disk.get('/a/1')).toBeNull();
  expect((await readShown()).nextKept[0]?.until).not.toBeNull();
});

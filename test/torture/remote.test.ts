/**
 * Tests of the staging systems without failures: no file remains on a system after all requests have ended.
 * The checker must find files that a faulty library does not release.
 */
import { afterEach, expect, test } from 'vitest';
import { startEngine } from '../../src/engine/runner.js';
import type { StagingKind } from '../../src/tape/kind.js';
import { kinds } from '../../src/tape/kinds.js';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { startApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';
import { checkStaging } from './check-staging.js';
import { createObserved, readFacts } from './facts.js';
import { TORTURE_TYPE } from './library-type.js';
import { createRandom } from './random.js';
import { addStagingLibraries, type Demand, findStaged, READ_DEMANDS } from './staging-systems.js';

type Fault = () => Partial<StagingLibrary>;

const right = kinds[TORTURE_TYPE] as StagingKind;
const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  kinds[TORTURE_TYPE] = right;
});

test.each<[string, Fault, string[]]>([
  ['nothing remains if nothing fails', () => ({}), []],
  ['a library that releases nothing leaves files', () => ({ release: async () => [] }), ['staging-left']],
])('%s', async (_what, fault, expected) => {
  const app = await startApp();
  closers.unshift(() => app.close());
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const staging = await addStagingLibraries(app.ctx, createRandom(1), {
    sources: new Map(),
    files: 20,
    maxBytes: 5000,
  });
  closers.unshift(() => staging.end());
  staging.calmDown();
  kinds[TORTURE_TYPE] = {
    ...right,
    create: (settings, site) => {
      const library = right.create(settings, site);
      return { ...library, ...fault() };
    },
  };
  const engine = await startEngine(app.ctx, createMemoryLibrary(), { drainMs: 200 });
  closers.unshift(() => engine.stop());
  const files = staging.systems.flatMap(({ system }) => [...system.tape.keys()].slice(0, 2));
  await waitForState(app, await makeRequest(app, { quota: 'alice', files }), 'COMPLETED');
  const query = async <Row extends object>(text: string) => (await app.ctx.db.pool.query<Row>(text)).rows;
  await waitFor('everything to be released once', async () => {
    const open = await query(
      `SELECT FROM staging WHERE state <> 'KEPT' AND NOT (state = 'RELEASING' AND attempts > 0)`,
    );
    return open.length === 0;
  });
  const demands = await query<Demand>(READ_DEMANDS);
  const staged = staging.systems.flatMap((system) => findStaged(system, demands).files);
  const found = new Set<string>();
  checkStaging(await readFacts(query, createObserved({ staged })), (kind) => found.add(kind));
  expect([...found]).toEqual(expected);
});

/** The staging libraries of the torture without any trouble, and with a fault that the checker is to find in what they leave behind. */
import { afterEach, expect, test } from 'vitest';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { LibraryError } from '../../src/tape/backend.js';
import type { StagingKind } from '../../src/tape/kind.js';
import { kinds } from '../../src/tape/kinds.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';
import { noArchivePaths } from './archive-paths.js';
import { checkStaging } from './check-staging.js';
import { readFacts } from './facts.js';
import { createRandom } from './random.js';
import type { RemoteSystems } from './remote.js';
import { TORTURE_KIND } from './remote-kind.js';
import { listLeft, type NotedDemand, READ_DEMANDS } from './remote-left.js';
import { addRemotes } from './remote-libraries.js';
import { nothingStrange } from './stranger-scan.js';

const HOUR_MS = 3_600_000;

type Fault = (library: StagingLibrary) => Partial<StagingLibrary>;

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

test.each<[string, Fault, string[]]>([
  ['nothing is left where nothing goes wrong', () => ({}), []],
  ['what is said to be released, and is not, is found', () => ({ release: async () => [] }), ['staging-left']],
  [
    'what cannot be released is found',
    () => ({ release: () => Promise.reject(new LibraryError('TRANSIENT', 'planned')) }),
    ['staging-open'],
  ],
  [
    'what is kept until another time than was said is found',
    (library) => ({
      release: async (...given) =>
        (await library.release(...given)).map((kept) => ({ ...kept, until: new Date(Date.now() + HOUR_MS) })),
    }),
    ['staging-kept'],
  ],
])('%s', async (_what, fault, expected) => {
  const { app, remotes } = await startWith(fault);
  const files = remotes.systems.flatMap(({ system }) => [...system.tape.keys()].slice(0, 2));
  await waitForState(app, await makeRequest(app, { quota: 'alice', files }), 'COMPLETED');
  await waitFor('everything to be released once', async () => {
    const { rows } = await app.ctx.db.pool.query(
      `SELECT FROM staging WHERE state <> 'KEPT' AND NOT (state = 'RELEASING' AND attempts > 0)`,
    );
    return rows.length === 0;
  });
  expect(await findKinds(app, remotes)).toEqual(expected);
});

/** Two systems behind which nothing goes wrong, and an engine whose libraries have the fault. */
async function startWith(fault: Fault): Promise<{ app: TestApp; remotes: RemoteSystems }> {
  const app = await startApp();
  closers.unshift(() => app.close());
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const remotes = await addRemotes(app.ctx, createRandom(1), { sources: new Map(), files: 20, maxBytes: 5000 });
  closers.unshift(() => remotes.end());
  remotes.calmDown();
  const kind = kinds[TORTURE_KIND] as StagingKind;
  kinds[TORTURE_KIND] = {
    ...kind,
    create: (settings, site) => {
      const library = kind.create(settings, site);
      return { ...library, ...fault(library) };
    },
  };
  const engine: Engine = await startEngine(app.ctx, createMemoryBackend(), { drainMs: 200 });
  closers.unshift(() => engine.stop());
  return { app, remotes };
}

async function findKinds(app: TestApp, { systems }: RemoteSystems): Promise<string[]> {
  const query = async <Row extends object>(text: string) => (await app.ctx.db.pool.query<Row>(text)).rows;
  const noted = await query<NotedDemand>(READ_DEMANDS);
  const facts = await readFacts(query, {
    ...{
      sources: new Map(),
      mails: [],
      told: [],
      touched: new Set(),
      acknowledged: new Set(),
      bulks: new Set(),
      polls: [],
    },
    ...{
      revivals: new Map(),
      asked: new Map(),
      watches: [],
      miswritten: new Set(),
      withdrawn: new Set(),
      versions: new Map(),
      openRetirements: new Set(),
    },
    ...{ archivePaths: noArchivePaths, strange: nothingStrange, stuck: [], doubleClaims: [], wrong: [] },
    staged: systems.flatMap((remote) => listLeft(remote, noted).files),
  });
  const kindsFound = new Set<string>();
  checkStaging(facts, (kind) => kindsFound.add(kind));
  return [...kindsFound];
}

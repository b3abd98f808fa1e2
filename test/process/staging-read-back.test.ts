/** Tape copies in a staging library are read back only if an operator requests it. */
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/drive-library.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, readStage, ring } from '../support/engine-watch.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import type { MemoryTapeSystem } from '../support/memory-staging.js';
import { mutate } from '../support/payloads.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const clock = createClock();

beforeEach(async () => {
  app = await start({ library: createMemoryLibrary(), engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo', drives: 1 });
  system.onStaged = (paths) => system.arrive(paths);
});
const start = createFreshApp({ now: clock.now });
afterEach(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
});

/** Adds files that exist on disk and on tape, and whose tape copy no engine has verified. */
async function addUnconfirmed(paths: readonly string[]): Promise<void> {
  const rows = paths.map((path) => {
    const bytes = Buffer.from(`bytes of ${path}`);
    system.put(path, bytes);
    const place = { volume: 'silo', library: 'silo', position: null };
    const contents = { size: BigInt(bytes.length), checksum: checksumOf(bytes) };
    return { path, ...place, ...contents, stage: 'UNVERIFIED' as const, verified: null };
  });
  await addFiles(app.ctx, rows);
}

async function readBack(match: string, staged = true): Promise<number> {
  return (await mutate<{ fileCount: number }>(app, 'verifyFiles', { match, staged }, 'queued { fileCount }')).fileCount;
}

interface Entry {
  file: { path: string };
  attempts: number;
  errorClass: string;
  error: string;
  nextTryAt: string | null;
}

async function readEntries(): Promise<Entry[]> {
  const { verificationFailures } = await askData<{ verificationFailures: Edges<Entry> }>(
    app,
    '{ verificationFailures { edges { node { file { path } attempts errorClass error nextTryAt } } } }',
  );
  return verificationFailures.edges.map(({ node }) => node);
}

const stagesOf = async (paths: readonly string[]) => await Promise.all(paths.map((path) => readStage(app, path)));

async function waitForStages(paths: readonly string[], stage: string): Promise<void> {
  await waitFor(`${paths.join()} to be ${stage}`, async () => {
    clock.advance(5);
    await ring(app, 'recall');
    return (await stagesOf(paths)).every((each) => each === stage);
  });
}

async function waitForRelease(): Promise<void> {
  await waitFor('all files to be released', async () => {
    clock.advance(5);
    await ring(app, 'event');
    return Object.keys(await readStates(app.ctx)).length === 0;
  });
  expect([...system.disk.keys()]).toEqual([]);
}

test('requested copies are staged, compared and released, and no others', async () => {
  const [wanted, others] = [['/a/1', '/a/2', '/a/3'], ['/b/1']];
  await addUnconfirmed([...wanted, ...others]);
  expect(await readBack('/', false)).toBe(0);
  expect(await readBack('/a/')).toBe(3);
  await waitForStages(wanted, 'D');
  await waitForRelease();
  expect(await stagesOf(others)).toEqual(['U']);
  expect([...new Set(system.log.flatMap(({ paths }) => paths))].sort()).toEqual(wanted);
  expect(await readEntries()).toEqual([]);
});

test('a copy with other bytes is read from tape three times, and reported as not confirmed', async () => {
  await addUnconfirmed(['/a/1']);
  system.onRead = async (_path, bytes) => randomBytes(bytes.length);
  await readBack('/a/');
  const entry = await waitFor('the last try', async () => {
    clock.advance(60);
    await ring(app, 'recall');
    const [found] = await readEntries();
    return found?.nextTryAt === null && found;
  });
  const error = expect.stringContaining('the tape copy is ');
  expect(entry).toMatchObject({ attempts: 3, errorClass: 'MEDIA', error });
  expect(system.log.filter(({ what }) => what === 'stage')).toHaveLength(3);
  await waitForRelease();
  system.onRead = async (_path, bytes) => bytes;
  expect(await readBack('/a/', false)).toBe(1);
  await waitForStages(['/a/1'], 'D');
  await waitForRelease();
});

test('a copy that the library has lost fails, and is not tried again', async () => {
  await addUnconfirmed(['/a/1', '/a/2']);
  system.spoil('/a/1', 'lost');
  await readBack('/a/');
  await waitForStages(['/a/2'], 'D');
  const entries = await waitFor('the other copy to fail', async () => {
    const all = await readEntries();
    return all[0]?.attempts === 1 && all;
  });
  expect(entries).toMatchObject([{ file: { path: '/a/1' }, errorClass: 'PERMANENT', nextTryAt: null }]);
  await waitForRelease();
});

test('recalls are read first, and a library that cannot be read charges a copy no try', async () => {
  await addUnconfirmed(['/a/1']);
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/r/1' }, { path: '/r/2' }] });
  const gate = createGate();
  let fails = 2;
  system.onRead = async (path) => {
    if (path.startsWith('/r/')) await gate.opened;
    else if (fails-- > 0) throw new LibraryError('TRANSIENT', 'the door is closed');
  };
  const id = await makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: '/r/' });
  await waitFor('the recalls to be read', async () => system.log.some(({ what }) => what === 'read'));
  await readBack('/a/');
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  await waitForStages(['/a/1'], 'D');
  const reads = system.log.flatMap(({ what, paths }) => (what === 'read' ? paths : []));
  expect([reads.slice(0, 2).sort(), new Set(reads.slice(2))]).toEqual([['/r/1', '/r/2'], new Set(['/a/1'])]);
});

/** Tape copies of a staging library are read back when somebody has asked for it, and not before. */
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, readStage, ring } from '../support/engine-watch.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const clock = createClock();

beforeEach(async () => {
  app = await start({ backend: createMemoryBackend(), engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo', drives: 1 });
  system.onStaged = (paths) => system.arrive(paths);
});
const start = createFreshApp({ now: clock.now });
afterEach(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
});

/** At the primary place, and on tape; nobody has compared the two. */
async function addUnconfirmed(paths: readonly string[]): Promise<void> {
  for (const path of paths) system.put(path, Buffer.from(`bytes of ${path}`));
  await addFiles(
    app.ctx,
    paths.map((path) => {
      const text = `bytes of ${path}`;
      const place = { volume: 'silo', library: 'silo', position: null };
      return {
        path,
        ...place,
        size: BigInt(text.length),
        checksum: checksumOf(text),
        stage: 'UNVERIFIED',
        verified: null,
      };
    }),
  );
}

async function readBack(match: string, staged = true): Promise<number> {
  const query = `mutation ($match: String!, $staged: Boolean) { again: verifyAgain(match: $match, staged: $staged) { ... on VerifyAgain { files } } }`;
  const { again } = await askData<{ again: { files: number } }>(app, query, { match, staged });
  return again.files;
}

interface Entry {
  file: { path: string };
  attempts: number;
  errorClass: string;
  error: string;
  nextTry: string | null;
}

async function readEntries(): Promise<Entry[]> {
  const { verifications } = await askData<{ verifications: Edges<Entry> }>(
    app,
    '{ verifications { edges { node { file { path } attempts errorClass error nextTry } } } }',
  );
  return verifications.edges.map(({ node }) => node);
}

const stagesOf = async (paths: readonly string[]) => await Promise.all(paths.map((path) => readStage(app, path)));

/** Time goes on, in steps that no pause is shorter than. */
async function waitForStages(paths: readonly string[], stage: string): Promise<void> {
  await waitFor(`${paths.join()} to be ${stage}`, async () => {
    clock.advance(5);
    await ring(app, 'recall');
    return (await stagesOf(paths)).every((each) => each === stage);
  });
}

async function waitForNothing(): Promise<void> {
  await waitFor('nothing to be staged', async () => {
    clock.advance(5);
    await ring(app, 'event');
    return Object.keys(await readStates(app.ctx)).length === 0;
  });
  expect([...system.disk.keys()]).toEqual([]);
}

test('what was asked for is staged, compared and let go, and nothing else is', async () => {
  const [wanted, others] = [['/a/1', '/a/2', '/a/3'], ['/b/1']];
  await addUnconfirmed([...wanted, ...others]);
  expect(await readBack('/', false)).toBe(0);
  expect(await readBack('/a/')).toBe(3);
  await waitForStages(wanted, 'D');
  await waitForNothing();
  expect(await stagesOf(others)).toEqual(['U']);
  expect([...new Set(system.log.flatMap(({ paths }) => paths))].sort()).toEqual(wanted);
  expect(await readEntries()).toEqual([]);
});

test('a copy with other bytes is tried again from tape, and told as not confirmed', async () => {
  await addUnconfirmed(['/a/1']);
  system.onRead = async (_path, bytes) => randomBytes(bytes.length);
  await readBack('/a/');
  const entry = await waitFor('it to be left', async () => {
    clock.advance(60);
    await ring(app, 'recall');
    const [found] = await readEntries();
    return found?.nextTry === null && found;
  });
  expect(entry).toMatchObject({
    attempts: 3,
    errorClass: 'MEDIA',
    error: expect.stringContaining('the tape copy is '),
  });
  expect(system.log.filter(({ what }) => what === 'stage')).toHaveLength(3);
  await waitForNothing();
  system.onRead = async (_path, bytes) => bytes;
  expect(await readBack('/a/', false)).toBe(1);
  await waitForStages(['/a/1'], 'D');
  await waitForNothing();
});

test('a copy that the library does not bring has failed by its class', async () => {
  await addUnconfirmed(['/a/1', '/a/2']);
  system.spoil('/a/1', 'lost');
  await readBack('/a/');
  await waitForStages(['/a/2'], 'D');
  const [entry] = await waitFor('the other one to fail', async () => {
    const all = await readEntries();
    return all[0]?.attempts === 1 && all;
  });
  expect(entry).toMatchObject({ file: { path: '/a/1' }, errorClass: 'PERMANENT', nextTry: null });
  await waitForNothing();
});

test('recalls go first, and a library that cannot be read costs a copy no try', async () => {
  await addUnconfirmed(['/a/1']);
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/r/1' }, { path: '/r/2' }] });
  const gate = createGate();
  let fails = 2;
  system.onRead = async (path, bytes) => {
    if (path.startsWith('/r/')) await gate.opened;
    else if (fails-- > 0) throw new LibraryError('TRANSIENT', 'the door is closed');
    return bytes;
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

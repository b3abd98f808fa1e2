/** A copy belongs to the version of the file that it was read from: what an import says of restored files. */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

interface Version {
  volume: string;
  position: bigint;
  bytes: Uint8Array;
  checksum: string | null;
}

/** Puts the bytes on tape and imports what is said of them. */
async function tape(file: string, { bytes, checksum, volume, position }: Version): Promise<void> {
  putOnTape(backend, { volume, position, bytes });
  await importRows(app.ctx, [
    buildRow({ path: file, size: BigInt(bytes.length), stage: 'ONTAPE', volume, position, checksum }),
  ]);
}

/** Restores a first version of a file for a request that keeps it. */
async function restore(file: string, version: Version): Promise<number> {
  await tape(file, version);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, file)).toEqual(Buffer.from(version.bytes));
  backend.log.length = 0;
  return id;
}

const movesOf = async (file: string) => (await readMoves(app, file)).map(({ move }) => move);

const [older, newer] = [randomBytes(1000), randomBytes(1000)];
const sum = checksumOf(newer);

test.each([
  ['has another checksum', { checksum: checksumOf(older) }, { checksum: sum }],
  ['has another checksum, and another place', { checksum: checksumOf(older) }, { checksum: sum, position: 2n }],
  ['is elsewhere, and nobody knows its checksum', { checksum: null }, { checksum: null, position: 2n }],
  [
    'is on another volume, and has no checksum any more',
    { checksum: checksumOf(older) },
    { checksum: null, volume: 'W' },
  ],
  ['has a checksum, where it had none', { checksum: null }, { checksum: sum }],
])('a new version of a restored file that %s is recalled for whoever holds it', async (what, old, now) => {
  const file = `/renewed/${what}`;
  const first = { volume: `V ${what}`, position: 1n, bytes: older, ...old };
  const { used } = await readDisks(app);
  const id = await restore(file, first);
  await tape(file, { ...first, bytes: newer, ...now });
  expect(await readStage(app, file)).toBe('T');
  const { state, filesOnDisk, holds, lastFilesOnDisk } = await viewRequest(app, id);
  expect({ state, filesOnDisk, lastFilesOnDisk, hold: holds[0]?.state }).toEqual({
    state: 'RESTORING',
    filesOnDisk: 0,
    lastFilesOnDisk: null,
    hold: 'WAITING',
  });
  const later = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, async () => {
    for (const waiting of [id, later]) await waitForState(app, waiting, 'COMPLETED');
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(newer));
  expect(await movesOf(file)).toEqual(['TA', 'AR', 'RT', 'TA', 'AR']);
  expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
});

test.each([
  ['is moved with its checksum', { volume: 'ELSEWHERE', position: 9n }],
  ['has no checksum any more at its place', { checksum: null }],
])('a restored file that %s stays', async (what, now) => {
  const file = `/kept/${what}`;
  const version = { volume: 'KEPT', position: BigInt(what.length), bytes: older, checksum: checksumOf(older) };
  const id = await restore(file, version);
  await tape(file, { ...version, ...now });
  const later = await makeRequest(app, { quota: 'alice', files: [file] });
  for (const done of [id, later]) expect(await viewRequest(app, done)).toMatchObject({ state: 'COMPLETED' });
  expect([await readStage(app, file), await movesOf(file), backend.log]).toEqual(['R', ['TA', 'AR'], []]);
});

test('the copy of a version that an import has replaced leaves when nobody wants the new one', async () => {
  const file = '/renewed/unwanted';
  const version = { volume: 'UNWANTED', position: 1n, bytes: older, checksum: checksumOf(older) };
  const { used } = await readDisks(app);
  const id = await restore(file, version);
  await tape(file, { ...version, bytes: newer, checksum: sum });
  await cancel(app, id);
  await withEngine(app, backend, async () => {
    await waitFor('the copy to leave', async () => readRestored(app, file) === undefined);
    await waitFor('the room', async () => (await readDisks(app)).used === used);
  });
  expect(await readStage(app, file)).toBe('T');
});

/** Files that requests have given up are tried again once an import says something else of what is to be read. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import type { CatalogueRow } from '../../src/operations/catalogue/import-rows.js';
import { giveBackDrive, type Lease } from '../../src/operations/recalls/drives.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readRestored } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const bytes = randomBytes(1000);
const checksum = checksumOf(bytes);
const wrong = checksumOf('other bytes');

/** @returns what says that the recall has failed for good */
async function start(file: string): Promise<() => Promise<void>> {
  const lease: Lease = await claim(app);
  const [started] = await startByHand(app, lease, [file]);
  if (!started) throw new Error(`the recall of ${file} cannot start`);
  return async () => {
    const { fileId } = started;
    await finishRecalls(app.ctx, lease, [{ fileId, kind: 'failed', errorClass: 'MEDIA', error: 'it is worn' }]);
    await giveBackDrive(app.ctx, lease);
  };
}

async function giveUp(file: string): Promise<void> {
  const fail = await start(file);
  await fail();
}

/** The first hold of a request, its state and its counts. */
async function view(id: number) {
  const { state, filesFailed, lastFilesOnDisk, tapestoreRequestEnd, holds } = await viewRequest(app, id);
  const { errorClass, error, state: hold } = holds[0] ?? {};
  return { state, filesFailed, hold, errorClass, error, lastFilesOnDisk, hasEnded: tapestoreRequestEnd !== null };
}

const waiting = {
  state: 'RESTORING',
  filesFailed: 0,
  hold: 'WAITING',
  errorClass: null,
  error: null,
  lastFilesOnDisk: null,
  hasEnded: false,
};

test.each<[string, Partial<CatalogueRow>, Partial<CatalogueRow>]>([
  ['lies on another volume', { volume: 'WORN' }, { volume: 'NEW' }],
  ['lies at another position', { position: 99n }, {}],
  ['has another checksum', { checksum: wrong }, {}],
  ['has no checksum any more', { checksum: wrong }, { checksum: null }],
  ['has another size', { size: 999n }, {}],
])('a file that was given up is tried again once an import says that it %s', async (what, old, now) => {
  const file = `/given-up/${what}`;
  const row = buildRow({ path: file, volume: 'GIVEN', position: BigInt(what.length), checksum, size: 1000n });
  await importRows(app.ctx, [{ ...row, ...old }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await giveUp(file);
  const failed = { state: 'PARTIAL', hold: 'FAILED', errorClass: 'MEDIA', error: 'it is worn', hasEnded: true };
  expect(await view(id)).toMatchObject(failed);
  await importRows(app.ctx, [{ ...row, ...old, spotName: 'elsewhere', verified: null }]); // which says nothing new of it
  expect(await view(id)).toMatchObject(failed);
  const { volume, position } = { ...row, ...now };
  putOnTape(backend, { volume: volume ?? '', position: position ?? 0n, bytes });
  await importRows(app.ctx, [{ ...row, ...now }]);
  expect(await view(id)).toEqual(waiting);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, file)).toEqual(bytes);
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('a file without a place on tape is recalled once an import gives it one', async () => {
  const file = '/given-up/nowhere';
  const row = buildRow({ path: file, volume: 'PLACED', position: 1n, checksum });
  putOnTape(backend, { volume: 'PLACED', position: 1n, bytes });
  await importRows(app.ctx, [{ ...row, volume: null, position: null }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, async () => {
    await waitForState(app, id, 'PARTIAL');
    await importRows(app.ctx, [row]);
    await waitForState(app, id, 'COMPLETED');
  });
});

test('what is given up while an import says that its checksum was wrong is tried again', async () => {
  const file = '/given-up/meanwhile';
  const row = buildRow({ path: file, volume: 'MEANWHILE', position: 1n, checksum: null });
  putOnTape(backend, { volume: 'MEANWHILE', position: 1n, bytes });
  await importRows(app.ctx, [{ ...row, checksum: wrong }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  const fail = await start(file);
  await importRows(app.ctx, [row]);
  await fail();
  expect(await view(id)).toEqual(waiting);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
});

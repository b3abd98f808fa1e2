import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import {
  findIllegalMoves,
  listTree,
  readDisks,
  readMoves,
  readRestored,
  readStage,
  ring,
} from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { get, makeRequest, put, read, readUsed } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const clock = createClock();

beforeAll(async () => {
  app = await startApp({ backend, now: clock.now });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10_000n);
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

/** A request that is restored and ends so many seconds from now. */
async function restore(quota: string, patterns: string, seconds: number): Promise<number> {
  const id = await makeRequest(app, { quota, patterns, retention: addSeconds(clock.now(), seconds) });
  await waitForState(app, id, 'COMPLETED');
  return id;
}

async function moveOn(seconds: number): Promise<void> {
  clock.advance(seconds);
  await ring(app, 'event');
}

async function waitForStage(file: string, stage: string): Promise<void> {
  await waitFor(`${file} to be at ${stage}`, async () => (await readStage(app, file)) === stage);
}

const place = (file: string) => path.join(app.restoreDir, file);

/** Files leave the disk after their stage has changed. */
async function waitUntilFreed(used: bigint): Promise<void> {
  await waitFor(`the disks to hold ${used} bytes`, async () => (await readDisks(app)).used === used);
}

test('past its retention a request is over: its files and their folders leave the disk, and quota and disk have room again', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/past/a/b/one', volume: 'PAST', position: 1n },
    { path: '/past/a/b/two', volume: 'PAST', position: 2n },
    { path: '/past/kept', volume: 'PAST', position: 3n },
  ]);
  const id = await restore('alice', '/past/a/', 100);
  const kept = await restore('bob', '/past/kept', 1000);
  writeFileSync(place('/past/a/by-hand'), 'not of Tapegate');
  expect(await readDisks(app)).toEqual({ used: 3000n, reserved: 0n });
  await moveOn(101);
  await waitUntilFreed(1000n);
  expect(listTree(app.restoreDir)).toEqual(['past', 'past/a', 'past/a/by-hand', 'past/kept']);
  expect((await readMoves(app, '/past/a/b/one')).map(({ move }) => move)).toEqual(['TA', 'AR', 'RT']);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'EXPIRED', filesTotal: 2 });
  expect(await readUsed(app, 'alice')).toBe(0);
  const { requests } = await read<{ requests: { id: number }[] }>(app, '/requests');
  expect(requests.map((request) => request.id)).toEqual([kept]);
  expect((await get(app, `/requests/${id}`)).status).toBe(200);

  rmSync(place('/past/a/by-hand'));
  rmSync(place('/past/a'), { recursive: true });
  await moveOn(1000);
  await waitUntilFreed(0n);
  expect(listTree(app.restoreDir)).toEqual([]);
});

test('a file that two requests hold stays until the last of them ends', async () => {
  await addTaped(app.ctx, backend, [{ path: '/two/a', volume: 'TWO' }]);
  await restore('alice', '/two/', 100);
  const last = await restore('bob', '/two/', 200);
  await addTaped(app.ctx, backend, [{ path: '/two-only-first', volume: 'TWO', position: 9n }]);
  await restore('alice', '/two-only-first', 100); // its leaving tells that the first expiry is done
  await moveOn(101);
  await waitUntilFreed(1000n);
  expect(readRestored(app, '/two/a')).toHaveLength(1000);
  expect(await readStage(app, '/two/a')).toBe('R');
  expect(await viewRequest(app, last)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 1 });
  await moveOn(100);
  await waitUntilFreed(0n);
  expect(readRestored(app, '/two/a')).toBeUndefined();
  expect(await readStage(app, '/two/a')).toBe('T');
});

test('what was changed by hand in the restore area is left alone and becomes UNVERIFIED', async () => {
  const names = ['longer', 'rewritten', 'touched', 'link', 'removed', 'untouched'];
  await addTaped(
    app.ctx,
    backend,
    names.map((name, index) => ({ path: `/hand/${name}`, volume: 'HAND', position: BigInt(index + 1) })),
  );
  await restore('alice', '/hand/', 100);
  execFileSync('touch', ['-r', place('/hand/longer'), place('/reference')]);
  writeFileSync(place('/hand/longer'), 'appended', { flag: 'a' });
  execFileSync('touch', ['-r', place('/reference'), place('/hand/longer')]); // its size alone tells
  writeFileSync(place('/hand/rewritten'), Buffer.alloc(1000, 'x'));
  utimesSync(place('/hand/touched'), 1, 1);
  writeFileSync(place('/elsewhere'), readFileSync(place('/hand/link')));
  rmSync(place('/hand/link'));
  symlinkSync(place('/elsewhere'), place('/hand/link'));
  rmSync(place('/hand/removed'));
  const before = names.slice(0, 4).map((name) => statSync(place(`/hand/${name}`)));
  await moveOn(101);
  await waitUntilFreed(0n);
  expect(await Promise.all(names.map((name) => readStage(app, `/hand/${name}`)))).toEqual([...'UUUUTT']);
  expect(listTree(place('/hand'))).toEqual(['link', 'longer', 'rewritten', 'touched']);
  expect(names.slice(0, 4).map((name) => statSync(place(`/hand/${name}`)))).toEqual(before);
  expect(readFileSync(place('/elsewhere'))).toHaveLength(1000);

  const again = await makeRequest(app, { quota: 'alice', files: ['/hand/rewritten'] });
  expect(await waitForState(app, again, 'COMPLETED')).toMatchObject({ filesOnDisk: 1 });
  expect(readFileSync(place('/hand/rewritten'), 'utf8')).toBe('x'.repeat(1000));
});

test('a PUT with a past retention ends a request at once, and one with a later retention revives it', async () => {
  const contents = await addTaped(app.ctx, backend, [
    { path: '/revive/1', volume: 'REVIVE', position: 1n },
    { path: '/revive/2', volume: 'REVIVE', position: 2n },
  ]);
  await addQuota(app.ctx, 'carol', 2500n);
  const id = await restore('carol', '/revive/', 1000);
  const first = await viewRequest(app, id);
  expect((await put(app, id, { quota: 'carol', retention: '2020-01-01' })).status).toBe(200);
  expect((await viewRequest(app, id)).state).toBe('EXPIRED');
  expect(await readUsed(app, 'carol')).toBe(0);
  await waitForStage('/revive/1', 'T');
  await waitUntilFreed(0n);

  const later = addSeconds(clock.now(), 500);
  expect((await put(app, id, { quota: 'carol', retention: later })).status).toBe(200);
  expect(await readUsed(app, 'carol')).toBe(2000);
  const revived = await waitForState(app, id, 'COMPLETED');
  expect(revived).toMatchObject({ filesTotal: 2, filesOnDisk: 2, bytesOnDisk: '2000' });
  expect(revived.firstFilesOnDisk).not.toBe(first.firstFilesOnDisk);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await moveOn(501);
  await waitUntilFreed(0n);
  expect((await viewRequest(app, id)).state).toBe('EXPIRED');
});

test('a request that does not fit any more is not revived, and stays as it was', async () => {
  await addTaped(app.ctx, backend, [{ path: '/refused/1', volume: 'REFUSED' }]);
  await addQuota(app.ctx, 'dave', 1000n);
  const id = await restore('dave', '/refused/', 100);
  await moveOn(101);
  await waitUntilFreed(0n);
  const over = await viewRequest(app, id);
  await addQuota(app.ctx, 'dave', 999n);
  const later = addSeconds(clock.now(), 500);
  expect((await put(app, id, { quota: 'dave', retention: later })).status).toBe(403);
  expect(await viewRequest(app, id)).toEqual(over);
  expect(await readUsed(app, 'dave')).toBe(0);
});

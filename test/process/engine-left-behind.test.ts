/** What a dead engine has put in place and did not come to say. */
import { mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, startByHand, startIdleApp } from '../support/engine-by-hand.js';
import { listTree, readDisks, readMoves, readRestored } from '../support/engine-watch.js';
import { addTaped, buildRow } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let engine: Engine | undefined;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(async () => {
  await engine?.stop();
  engine = undefined;
  backend.log.length = 0;
});
afterAll(() => app.close());

/** Does what an engine does up to the moment at which it puts the file in place, and leaves the rest undone. */
async function dieAfterPlacing(file: string, bytes: Uint8Array): Promise<void> {
  const started = await startByHand(app, await claim(app), [file]);
  expect(started.map((recall) => recall.path)).toEqual([file]);
  const place = path.join(app.restoreDir, file);
  mkdirSync(path.dirname(place), { recursive: true });
  writeFileSync(place, bytes);
}

const work = async () => {
  engine = await startEngine({ ...app.ctx, config: { ...app.ctx.config, drives: 1 } }, backend, { drainMs: 200 });
};

test('a file that a dead engine has put in place is restored, and not read again', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/left/placed', volume: 'LEFT1' }]);
  const bytes = contents.get('/left/placed') ?? new Uint8Array();
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/placed'] });
  await dieAfterPlacing('/left/placed', bytes);
  await work();
  await waitForState(app, id, 'COMPLETED');
  expect(backend.log).toEqual([]);
  expect(await readMoves(app, '/left/placed')).toEqual([
    { path: '/left/placed', move: 'TA' },
    { path: '/left/placed', move: 'AR' },
  ]);
  expect(await readDisks(app)).toEqual({ used: BigInt(bytes.length), reserved: 0n });
  await cancel(app, id); // the copy leaves as it came: its time was noted
  await waitFor('the copy to leave', async () => readRestored(app, '/left/placed') === undefined);
});

test('a file that a dead engine has put in place leaves the disk when nobody waits for it any more', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/left/unwanted', volume: 'LEFT2' }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/unwanted'] });
  await dieAfterPlacing('/left/unwanted', contents.get('/left/unwanted') ?? new Uint8Array());
  await cancel(app, id);
  await work();
  await waitFor('an empty disk', async () => listTree(app.restoreDir).length === 0);
  await waitFor('no room in use', async () => (await readDisks(app)).used === 0n);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('a whole file without a checksum counts as restored when it came after the recall began', async () => {
  await addTaped(app.ctx, backend, [{ path: '/left/plain', volume: 'LEFT3' }]);
  await importRows(app.ctx, [buildRow({ path: '/left/plain', volume: 'LEFT3', checksum: null })]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/plain'] });
  await dieAfterPlacing('/left/plain', new Uint8Array(1000));
  await work();
  await waitForState(app, id, 'COMPLETED');
  expect(backend.log).toEqual([]);
  await cancel(app, id);
  await waitFor('the copy to leave', async () => readRestored(app, '/left/plain') === undefined);
});

test.each([
  ['has other bytes', 'other', new Uint8Array(1000), 'sha256', 0],
  ['is not whole', 'short', new Uint8Array(999), null, 0],
  ['is older than the recall, without a checksum', 'old', new Uint8Array(1000), null, 3600],
])(
  'what stands in the place of a recall of a dead engine and %s is left alone',
  async (_why, name, bytes, sum, age) => {
    const file = `/left/${name}`;
    await addTaped(app.ctx, backend, [{ path: file, volume: `LEFT-${name}` }]);
    if (sum === null) await importRows(app.ctx, [buildRow({ path: file, volume: `LEFT-${name}`, checksum: null })]);
    const id = await makeRequest(app, { quota: 'alice', files: [file] });
    await dieAfterPlacing(file, bytes);
    const place = path.join(app.restoreDir, file);
    const { mtimeMs } = statSync(place);
    utimesSync(place, mtimeMs / 1000, mtimeMs / 1000 - age);
    await work();
    const { holds } = await waitForState(app, id, 'PARTIAL');
    expect(holds[0]).toMatchObject({ state: 'FAILED', errorClass: 'POLICY' });
    expect(readFileSync(place).equals(bytes)).toBe(true);
    await cancel(app, id);
  },
);

/** Copies of which the database knows nothing any more: a standby has taken over, or a backup was put back. */
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { createMemoryBackend, type MemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { prepareIdle, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped, checksumOf } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { keepTables } from '../support/tables.js';

const files = ['/lost/a', '/lost/b', '/lost/deep/c'];
let app: TestApp;
let backend: MemoryBackend;

const start = createFreshApp();
beforeEach(async () => {
  app = await prepareIdle(await start());
  backend = createMemoryBackend();
});
afterEach(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
});

const place = (file: string) => path.join(app.restoreDir, file);
const inodes = () => files.map((file) => statSync(place(file)).ino);
const stages = () => Promise.all(files.map((file) => readStage(app, file)));
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);

/** Restores files for a request, of which the database then knows only that it was made. */
async function restoreAndForget() {
  const contents = await addTaped(
    app.ctx,
    backend,
    files.map((file) => ({ path: file })),
  );
  const id = await makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });
  const putBack = await keepTables(app.ctx);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  await putBack();
  expect([(await viewRequest(app, id)).state, await stages()]).toEqual(['QUEUED', ['T', 'T', 'T']]);
  return { id, contents };
}

async function doctor(options: { repair?: boolean; adopt?: boolean } = {}) {
  const found: string[] = [];
  await examine(app.ctx, { repair: options.adopt ?? false, checksums: false, ...options }, (finding) =>
    found.push(`${finding.kind} ${finding.thing}${finding.isRepaired ? ' repaired' : ''}`),
  );
  return found.sort();
}

test('a request completes with the copies that a database has forgotten, and they are left alone', async () => {
  const { id, contents } = await restoreAndForget();
  const before = inodes();
  await withEngine(app, backend, async () => {
    const view = await waitForState(app, id, 'COMPLETED');
    expect(view).toMatchObject({ filesOnDisk: 3, filesFailed: 0 });
    for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
    expect([inodes(), await stages()]).toEqual([before, ['U', 'U', 'U']]);
    expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n }); // they are nobody's that is known
    const asked = `{ request(id: ${id}) { restoredBelow } tapeFile(path: "/lost/a") { restoredPath } }`;
    const told = { request: { restoredBelow: [app.restoreDir] }, tapeFile: { restoredPath: place('/lost/a') } };
    expect(await askData(app, asked)).toEqual(told);
    await cancel(app, id);
    backend.log.length = 0;
    const again = await makeRequest(app, { quota: 'alice', files: ['/lost/a'] });
    await waitForState(app, again, 'COMPLETED');
    expect(backend.log).toEqual([]);
    rmSync(place('/lost/b'));
    const gone = await makeRequest(app, { quota: 'alice', files: ['/lost/b'] });
    await waitForState(app, gone, 'COMPLETED');
    expect(readRestored(app, '/lost/b')).toEqual(contents.get('/lost/b'));
  });
  expect((await readMoves(app, '/lost/b')).map(({ move }) => move)).toEqual(['TA', 'AU', 'UT', 'TA', 'AR']);
  expect(await removeAll()).toBe(0);
  expect(listTree(app.restoreDir).filter((name) => name.endsWith('.part'))).toEqual([]);
  expect([inodes()[0], inodes()[2]]).toEqual([before[0], before[2]]);
});

test("the doctor tells of copies that nobody has noted, and an operator may say that they are Tapegate's", async () => {
  const { id } = await restoreAndForget();
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  const before = inodes();
  const faults = files.map((file) => `copy-not-ours ${place(file)}`);
  expect(await doctor()).toEqual(faults);
  expect(await doctor({ repair: true })).toEqual(faults);
  writeFileSync(place('/lost/b'), Buffer.alloc(1000)); // it is somebody's by now, whatever it was
  const [a, b, c] = faults;
  expect(await doctor({ adopt: true })).toEqual([`${a} repaired`, b, `${c} repaired`]);
  expect([await stages(), inodes(), await readDisks(app)]).toEqual([
    ['R', 'U', 'R'],
    before,
    { used: 2000n, reserved: 0n },
  ]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 3 });
  await cancel(app, id);
  expect(await removeAll()).toBe(2);
  expect(listTree(app.restoreDir)).toEqual(['lost', 'lost/b']);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('copies that a database has forgotten, and that nobody asks for, leave the disk once they are adopted', async () => {
  const { id, contents } = await restoreAndForget();
  await cancel(app, id);
  const faults = files.map((file) => `orphan-copy ${place(file)}`);
  expect(await doctor({ repair: true })).toEqual(faults);
  writeFileSync(place('/lost/a'), Buffer.alloc(1000));
  const [a, b, c] = faults;
  expect(await doctor({ adopt: true })).toEqual([a, `${b} repaired`, `${c} repaired`]);
  expect([await stages(), await readDisks(app)]).toEqual([['T', 'T', 'T'], { used: 2000n, reserved: 0n }]);
  expect(await removeAll()).toBe(2);
  expect([listTree(app.restoreDir), await readDisks(app)]).toEqual([['lost', 'lost/a'], { used: 0n, reserved: 0n }]);
  const again = await makeRequest(app, { quota: 'alice', files: ['/lost/b'], retention: '2099-01-01' });
  await withEngine(app, backend, () => waitForState(app, again, 'COMPLETED'));
  expect([readRestored(app, '/lost/b'), await readStage(app, '/lost/b')]).toEqual([contents.get('/lost/b'), 'R']);
});

/** Other bytes with the same sums: RFC 1950, section 9. */
function withSameAdler32(bytes: Uint8Array): Buffer {
  const other = Buffer.from(bytes);
  for (const [index, step] of [1, -2, 1].entries()) other[index] = (other[index] ?? 0) + step;
  return other;
}

test.each<[string, string | null, (bytes: Uint8Array) => Buffer]>([
  ['has other bytes of the same size', 'sha256', (bytes) => Buffer.alloc(bytes.length)],
  ['has other bytes where no checksum is known', null, (bytes) => Buffer.alloc(bytes.length)],
  ['has other bytes with the same sums', 'adler32', withSameAdler32],
])('what stands in the place of a file and %s does not stand for it', async (_what, algorithm, change) => {
  const bytes = Buffer.alloc(1000, 100);
  await addTaped(app.ctx, backend, [{ path: '/other/a', bytes }]);
  const checksum = algorithm === 'adler32' ? ADLER32 : algorithm && checksumOf(bytes);
  await app.ctx.db.pool.query('UPDATE tape_file SET checksum = $1', [checksum]);
  mkdirSync(place('/other'));
  writeFileSync(place('/other/a'), change(bytes));
  const id = await makeRequest(app, { quota: 'alice', patterns: '/other/' });
  const { holds } = await withEngine(app, backend, () => waitForState(app, id, 'PARTIAL'));
  expect(holds).toMatchObject([{ errorClass: 'POLICY', error: expect.stringContaining('another file stands at') }]);
  expect([readFileSync(place('/other/a')), listTree(app.restoreDir)]).toEqual([change(bytes), ['other', 'other/a']]);
});

/** Of 1000 bytes of 100. */
const ADLER32 = 'adler32:e46d86b0';

test.each([
  ['SHA-256', (bytes: Uint8Array) => checksumOf(bytes)],
  ['no checksum', () => null],
  ['sums of 32 bits', () => ADLER32],
])('with %s in the catalogue, the same bytes stand for the file', async (_what, checksum) => {
  const bytes = Buffer.alloc(1000, 100);
  await addTaped(app.ctx, backend, [{ path: '/equal/a', bytes }]);
  await app.ctx.db.pool.query('UPDATE tape_file SET checksum = $1', [checksum(bytes)]);
  mkdirSync(place('/equal'));
  writeFileSync(place('/equal/own'), bytes);
  copyFileSync(place('/equal/own'), place('/equal/a'));
  const before = statSync(place('/equal/a'), { bigint: true });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/equal/' });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  await cancel(app, id);
  expect(await removeAll()).toBe(0);
  const { ino, mode, uid, ctimeNs } = statSync(place('/equal/a'), { bigint: true });
  expect({ ino, mode, uid, ctimeNs }).toEqual({
    ino: before.ino,
    mode: before.mode,
    uid: before.uid,
    ctimeNs: before.ctimeNs,
  });
  expect(readFileSync(place('/equal/a'))).toEqual(bytes);
});

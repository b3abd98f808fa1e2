/** What a dead engine has put in place and did not come to say. */
import { mkdirSync, readFileSync, renameSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { partialName } from '../../src/engine/disk/partial-name.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { noteReady } from '../../src/operations/recalls/confirm.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, dieAfterPlacing, idOf, startByHand, startIdleApp } from '../support/engine-by-hand.js';
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

const work = async () => {
  engine = await startEngine({ ...app.ctx, config: { ...app.ctx.config, drives: 1 } }, backend, { drainMs: 200 });
};

test('a file that a dead engine has put in place is restored, and not read again', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/left/placed', volume: 'LEFT1' }]);
  const bytes = contents.get('/left/placed') ?? new Uint8Array();
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/placed'] });
  await dieAfterPlacing(app, '/left/placed', bytes);
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
  await dieAfterPlacing(app, '/left/unwanted', contents.get('/left/unwanted') ?? new Uint8Array());
  await cancel(app, id);
  await work();
  await waitFor('an empty disk', async () => listTree(app.restoreDir).length === 0);
  await waitFor('no room in use', async () => (await readDisks(app)).used === 0n);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('a whole file without a checksum counts as restored when it is the one that was noted', async () => {
  await addTaped(app.ctx, backend, [{ path: '/left/plain', volume: 'LEFT3' }]);
  await importRows(app.ctx, [buildRow({ path: '/left/plain', volume: 'LEFT3', checksum: null })]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/plain'] });
  await dieAfterPlacing(app, '/left/plain', new Uint8Array(1000));
  await work();
  await waitForState(app, id, 'COMPLETED');
  expect(backend.log).toEqual([]);
  await cancel(app, id);
  await waitFor('the copy to leave', async () => readRestored(app, '/left/plain') === undefined);
});

test.each<[string, string, Uint8Array, 'sha256' | null, (place: string, bytes: Uint8Array) => void]>([
  ['has other bytes', 'other', new Uint8Array(1000), 'sha256', () => {}],
  ['is not whole', 'short', new Uint8Array(999), null, () => {}],
  ['has another time', 'old', new Uint8Array(1000), null, (place) => utimesSync(place, 1, 1)],
  [
    'is another file with the same bytes and time',
    'own',
    new Uint8Array(1000),
    null,
    (place, bytes) => {
      const { atime, mtime } = statSync(place);
      writeFileSync(`${place}-own`, bytes);
      utimesSync(`${place}-own`, atime, mtime);
      utimesSync(place, atime, mtime);
      renameSync(`${place}-own`, place);
    },
  ],
])(
  'what stands in the place of a recall of a dead engine and %s is left alone',
  async (_why, name, bytes, sum, change) => {
    const file = `/left/${name}`;
    await addTaped(app.ctx, backend, [{ path: file, volume: `LEFT-${name}` }]);
    if (sum === null) await importRows(app.ctx, [buildRow({ path: file, volume: `LEFT-${name}`, checksum: null })]);
    const id = await makeRequest(app, { quota: 'alice', files: [file] });
    await dieAfterPlacing(app, file, bytes);
    const place = path.join(app.restoreDir, file);
    change(place, bytes);
    await work();
    const { holds } = await waitForState(app, id, 'PARTIAL');
    expect(holds[0]).toMatchObject({ state: 'FAILED', errorClass: 'POLICY' });
    expect(readFileSync(place).equals(bytes)).toBe(true);
    await cancel(app, id);
  },
);

test('what a dead engine left on a disk that was away is removed when the disk is back, and nothing else there', async () => {
  const files = ['/away/placed', '/away/partial', '/away/own'];
  const contents = await addTaped(
    app.ctx,
    backend,
    files.map((file, n) => ({ path: file, volume: 'AWAY', position: BigInt(n + 1) })),
  );
  const id = await makeRequest(app, { quota: 'alice', files });
  const lease = await claim(app);
  const fileIds = await Promise.all(files.map((file) => idOf(app, file)));
  const [placed = 0n, partial = 0n] = fileIds;
  await startByHand(app, lease, files);
  const at = (name: string) => path.join(app.restoreDir, 'away', name);
  mkdirSync(at(''));
  writeFileSync(at('placed'), contents.get('/away/placed') ?? '');
  const { ino, mtimeNs } = statSync(at('placed'), { bigint: true });
  await noteReady(app.ctx, lease, [{ fileId: placed, ino, mtimeNs }]);
  writeFileSync(at(partialName({ ...lease, fileId: partial })), 'half');
  writeFileSync(at('own'), contents.get('/away/own') ?? '');

  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  const other = path.join(app.dataDir, 'other');
  mkdirSync(other);
  await setDisk(app.ctx, { mountpoint: other, size: 10n ** 9n });
  await work();
  await waitForState(app, id, 'COMPLETED');
  await engine?.stop();
  engine = undefined;
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  await work();
  await waitFor('the copy and the partial file to leave', async () => {
    const { rowCount } = await app.ctx.db.pool.query('SELECT FROM left_behind');
    return rowCount === 0;
  });
  expect(listTree(path.join(app.restoreDir, 'away'))).toEqual(['own']);
  for (const file of files) expect(readFileSync(path.join(other, file))).toEqual(Buffer.from(contents.get(file) ?? ''));
  await cancel(app, id);
});

/** Files that are on tape twice: what cannot be read at the one place is read at the other. */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { leaveUnreadable } from '../../src/operations/recalls/unreadable.js';
import { listSuspensions, resume, suspend } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readRestored } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { send } from '../support/http.js';
import { retry } from '../support/mutations.js';
import { viewRequest, waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

let app: TestApp;
const clock = createClock();
const backend = createMemoryBackend();
const { onRead } = backend;

beforeAll(async () => {
  app = await startIdleApp({ now: clock.now });
});
afterEach(() => {
  backend.onRead = onRead;
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

interface Twice {
  path: string;
  volume: string;
  copyVolume: string;
  bytes: Uint8Array;
}

const rowOf = ({ path, volume, copyVolume, bytes }: Twice) =>
  buildRow({
    path,
    size: BigInt(bytes.length),
    volume,
    position: 1n,
    copyVolume,
    copyPosition: 2n,
    checksum: checksumOf(bytes),
  });

/** The same bytes on both volumes, unless others are given for the first. */
async function addTwice(path: string, volume: string, first?: Uint8Array): Promise<Twice> {
  const twice = { path, volume, copyVolume: `${volume}B`, bytes: randomBytes(1000) };
  putOnTape(backend, { volume, position: 1n, bytes: first ?? twice.bytes });
  putOnTape(backend, { volume: twice.copyVolume, position: 2n, bytes: twice.bytes });
  await importRows(app.ctx, [rowOf(twice)]);
  return twice;
}

interface Places {
  volume: { name: string };
  position: string;
  copyVolume: { name: string } | null;
  copyPosition: string | null;
  copyError: string | null;
}

async function placesOf(path: string): Promise<Places> {
  const query = `query ($path: String!) { tapeFile(path: $path) {
    volume { name } position copyVolume { name } copyPosition copyError } }`;
  return (await askData<{ tapeFile: Places }>(app, query, { path })).tapeFile;
}

const readsOf = (volume: string) =>
  backend.log.filter((entry) => entry.what === 'read' && entry.volume === volume).length;
const broken = (volume: string) => new TapeError('PERMANENT', `nothing can be read of ${volume}`);

test('a file whose first copy has other bytes is restored from the second, and says why', async () => {
  const twice = await addTwice('/twice/wrong', 'C1', randomBytes(1000));
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  expect(readRestored(app, twice.path)).toEqual(Buffer.from(twice.bytes));
  expect(await placesOf(twice.path)).toEqual({
    volume: { name: 'C1B' },
    position: '2',
    copyVolume: { name: 'C1' },
    copyPosition: '1',
    copyError: expect.stringContaining('checksum'),
  });
  // the archive's list has them as it always had: nothing is new, the copy stays, and why is still known
  expect(await importRows(app.ctx, [rowOf(twice)])).toMatchObject({ added: 0, updated: 0 });
  const plain = { ...rowOf(twice), copyVolume: undefined, copyPosition: undefined };
  expect(await importRows(app.ctx, [plain])).toMatchObject({ added: 0, updated: 0 });
  expect((await placesOf(twice.path)).copyError).not.toBeNull();
  expect(readRestored(app, twice.path)).toEqual(Buffer.from(twice.bytes));
});

test('a file that cannot be read at either place fails with both reasons, and a retry asks both again', async () => {
  const twice = await addTwice('/twice/lost', 'C2');
  let isMended = false;
  backend.onRead = async (volume, _position, bytes) => {
    if (isMended) return bytes;
    throw broken(volume);
  };
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, async () => {
    const { holds } = await waitForState(app, id, 'PARTIAL');
    expect(holds[0]?.error).toMatch(
      /nothing can be read of C2B.*; its other copy, on volume C2, failed before: .*nothing can be read of C2$/,
    );
    expect([readsOf('C2'), readsOf('C2B')]).toEqual([1, 1]);
    await retry(app, { id });
    await waitForState(app, id, 'PARTIAL');
    expect([readsOf('C2'), readsOf('C2B')]).toEqual([2, 2]);
    isMended = true;
    await retry(app, { id });
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, twice.path)).toEqual(Buffer.from(twice.bytes));
  expect((await placesOf(twice.path)).copyError).toBeNull();
});

test('files that wait for a volume out of service are read from their other copies, and stay where both are away', async () => {
  const [one, other] = [await addTwice('/twice/held', 'C3'), await addTwice('/twice/away', 'C4')];
  for (const name of ['C3', 'C4', 'C4B'])
    await suspend(app.ctx, { kind: 'VOLUME', name, mode: 'HELD', reason: 'planned' });
  const id = await makeRequest(app, { quota: 'alice', files: [one.path, other.path] });
  expect(await leaveUnreadable(app.ctx)).toBe(1);
  expect(await leaveUnreadable(app.ctx)).toBe(0);
  expect(await placesOf(one.path)).toMatchObject({ volume: { name: 'C3B' }, copyError: null });
  expect(await placesOf(other.path)).toMatchObject({ volume: { name: 'C4' } });
  await resume(app.ctx, { kind: 'VOLUME', name: 'C4B' });
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  expect([readsOf('C3'), readsOf('C4'), readsOf('C3B')]).toEqual([0, 0, 1]);
  for (const { path, bytes } of [one, other]) expect(readRestored(app, path)).toEqual(Buffer.from(bytes));
});

test('a volume of which nothing can be read is taken out of service, also where all of it is there once more', async () => {
  const files = [];
  for (let n = 1; n <= 8; n++) {
    const bytes = randomBytes(100);
    putOnTape(backend, { volume: 'C7', position: BigInt(n), bytes: randomBytes(100) });
    putOnTape(backend, { volume: 'C7B', position: BigInt(n), bytes });
    files.push({ path: `/twice/worn/${n}`, position: BigInt(n), bytes });
  }
  await importRows(
    app.ctx,
    files.map(({ path, position, bytes }, index) => ({
      ...rowOf({ path, volume: 'C7', copyVolume: 'C7B', bytes }),
      ...{ line: index + 1, position, copyPosition: position },
    })),
  );
  const id = await makeRequest(app, { quota: 'alice', files: files.map(({ path }) => path) });
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  for (const { path, bytes } of files) expect(readRestored(app, path)).toEqual(Buffer.from(bytes));
  const held = (await listSuspensions(app.ctx)).map(({ kind, name, mode }) => [kind, name, mode]);
  expect(held).toContainEqual(['VOLUME', 'C7', 'HELD']);
});

test('what has gone wrong is forgotten when the archive names another second place', async () => {
  const twice = await addTwice('/twice/renewed', 'C5');
  backend.onRead = async (volume, _position, bytes) => {
    if (volume.startsWith('C5')) throw broken(volume);
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, async () => {
    await waitForState(app, id, 'PARTIAL');
    putOnTape(backend, { volume: 'C6', position: 9n, bytes: twice.bytes });
    await importRows(app.ctx, [{ ...rowOf(twice), copyVolume: 'C6', copyPosition: 9n }]);
    expect(await placesOf(twice.path)).toMatchObject({ copyVolume: { name: 'C6' }, copyError: null });
    await retry(app, { id });
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, twice.path)).toEqual(Buffer.from(twice.bytes));
  expect((await viewRequest(app, id)).holds[0]).toMatchObject({ state: 'ON_DISK', error: null });
});

test('a second place that is none is a fault of its row', async () => {
  const rows = [
    'path,size,volume,position,copy_volume,copy_position',
    '/twice/bad/1,1,V1,1,V1,2',
    '/twice/bad/2,1,V1,1,V2,x',
    '/twice/bad/3,1,V1,1,,2',
    '/twice/bad/4,1,V1,1,V\u00072,2',
    '/twice/bad/5,1,,,V2,2',
  ];
  const { status, body } = await send(app, '/import', {
    method: 'PUT',
    body: `${rows.join('\n')}\n`,
    headers: { Authorization: `Bearer ${app.token}` },
  });
  expect([status, (body as { faults: string[] }).faults]).toEqual([
    400,
    [
      'line 2: copy_volume must be another volume than that of the file, not "V1"',
      'line 3: copy_position must be a whole number, not "x"',
      'line 4: copy_position must be left out where no copy_volume is given, not "2"',
      'line 5: copy_volume must be a name of at most 255 characters, not "V\\u00072"',
      'line 6: copy_volume must be left out where no volume is given, not "V2"',
    ],
  ]);
});

/** Imports that move or renew files while these are recalled: the bytes are those of what the catalogue says last. */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { giveBackDrive, setMount } from '../../src/operations/recalls/drives.js';
import { startRecalls } from '../../src/operations/recalls/starts.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, dieAfterPlacing, idOf, measure, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped, buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { lock } from '../support/locks.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

interface Place {
  volume: string;
  position: bigint;
}

interface Version extends Place {
  bytes: Uint8Array;
}

/** What an import says of a version; null leaves the checksum unknown. */
function rowOf(file: string, { volume, position, bytes }: Version, checksum: string | null = checksumOf(bytes)) {
  return buildRow({ path: file, size: BigInt(bytes.length), volume, position, checksum });
}

/** Puts two versions of a file of one size on tape; nothing is imported. */
function tapeTwo(old: Place, now: Place, isSame = false): [Version, Version] {
  const bytes = randomBytes(1000);
  const versions: [Version, Version] = [
    { ...old, bytes },
    { ...now, bytes: isSame ? bytes : randomBytes(1000) },
  ];
  for (const version of versions) putOnTape(backend, version);
  return versions;
}

const readsOf = (volume: string) => backend.log.filter((entry) => entry.what === 'read' && entry.volume === volume);
const mountsOf = (volume: string) => backend.log.filter((entry) => entry.what === 'mount' && entry.volume === volume);

async function readRecall(file: string) {
  const { rows } = await app.ctx.db.pool.query<{ volume: string; position: bigint; attempts: number; state: string }>(
    `SELECT v.name AS volume, c.position, c.attempts, c.state FROM recall c JOIN tape_file f ON f.id = c.file_id
     LEFT JOIN volume v ON v.id = c.volume_id WHERE f.path = $1`,
    [file],
  );
  return rows[0];
}

test('a file that is moved while it is read, and cannot be read there any more, is read at its new place', async () => {
  const file = '/moved/away';
  const [old, now] = tapeTwo({ volume: 'OLD1', position: 1n }, { volume: 'NEW1', position: 5n }, true);
  await importRows(app.ctx, [rowOf(file, old)]);
  const gate = createGate();
  backend.onRead = async (volume, _position, bytes) => {
    if (volume !== 'OLD1') return bytes;
    await gate.opened;
    throw new TapeError('PERMANENT', 'the volume is erased');
  };
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, async () => {
    await waitFor('the read', async () => readsOf('OLD1').length > 0);
    await importRows(app.ctx, [rowOf(file, now)]);
    gate.open();
    const { holds } = await waitForState(app, id, 'COMPLETED');
    expect(holds[0]).toMatchObject({ state: 'ON_DISK', error: null });
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
  expect([readsOf('OLD1').length, readsOf('NEW1').length, mountsOf('OLD1').length]).toEqual([1, 1, 1]);
});

test('a file without a checksum that is moved while it is read is never restored with the bytes of another one', async () => {
  const file = '/moved/within';
  const [old, now] = tapeTwo({ volume: 'ONE', position: 1n }, { volume: 'ONE', position: 2n });
  await importRows(app.ctx, [rowOf(file, old, null)]);
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) await gate.opened;
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, async () => {
    await waitFor('the read', async () => readsOf('ONE').length > 0);
    await importRows(app.ctx, [rowOf(file, now, null)]);
    gate.open();
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
  expect((await readMoves(app, file)).map(({ move }) => move)).toEqual(['TA', 'AT', 'TA', 'AR']);
});

test('what is being read of a version that an import has replaced is not read to its end', async () => {
  const file = '/renewed/early';
  const [old, now] = tapeTwo({ volume: 'LONG', position: 1n }, { volume: 'LONG', position: 2n });
  await importRows(app.ctx, [rowOf(file, old)]);
  const never = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) await never.opened;
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, async () => {
    await waitFor('the read', async () => readsOf('LONG').length > 0);
    await importRows(app.ctx, [rowOf(file, now)]);
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
});

test('a file that is moved to another volume before its recall starts is not read from the mounted one', async () => {
  const [staying, moving] = ['/start/staying', '/start/moving'];
  await addTaped(app.ctx, backend, [
    { path: staying, volume: 'START1', position: 1n },
    { path: moving, volume: 'START1', position: 2n },
  ]);
  const [, now] = tapeTwo({ volume: 'START1', position: 3n }, { volume: 'START2', position: 7n });
  const id = await makeRequest(app, { quota: 'alice', files: [staying, moving] });
  const fileIds = [await idOf(app, staying), await idOf(app, moving)];
  const lease = await claim(app);
  const { rows } = await app.ctx.db.pool.query<{ id: number }>(`SELECT id FROM volume WHERE name = 'START1'`);
  await setMount(app.ctx, lease, rows[0]?.id ?? 0);
  await importRows(app.ctx, [rowOf(moving, now)]);
  const started = await startRecalls(app.ctx, lease, { fileIds, measure });
  expect(started.map((recall) => recall.path)).toEqual([staying]);
  expect(await readRecall(moving)).toMatchObject({ state: 'WAITING', volume: 'START2', position: 7n });
  await giveBackDrive(app.ctx, lease);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, moving)).toEqual(Buffer.from(now.bytes));
});

test.each([
  ['volume', 'STALE2', 9n],
  ['position', 'STALE1', 8n],
])(
  'a recall that was left with another %s than its file has is started where the file is',
  async (what, volume, position) => {
    const file = `/stale/${what}`;
    const [old, now] = tapeTwo({ volume: 'STALE1', position: position + 10n }, { volume, position });
    await importRows(
      app.ctx,
      [rowOf(file, now), rowOf(`${file}-other`, old)].map((row, line) => ({ ...row, line })),
    );
    const id = await makeRequest(app, { quota: 'alice', files: [file] });
    await app.ctx.db.pool.query(
      `UPDATE recall c SET volume_id = o.volume_id, position = o.position FROM tape_file f, tape_file o
     WHERE f.id = c.file_id AND f.path = $1 AND o.path = $2`,
      [file, `${file}-other`],
    );
    await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
    expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
  },
);

test('a drive turns to a volume of which nothing can start only every now and then', async () => {
  await addTaped(app.ctx, backend, [{ path: '/stuck', volume: 'STUCK' }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/stuck'] });
  const unlock = await lock(app, `SELECT FROM recall WHERE file_id = ${await idOf(app, '/stuck')} FOR UPDATE`);
  const { count, stop } = countStatements();
  await withEngine(
    app,
    backend,
    async () => {
      await waitFor('many looks at the queue', async () => count('drive_seconds > 0') >= 60);
      expect(count('UPDATE drive SET volume_id')).toBeLessThan(30); // two for each visit
      await unlock();
      await waitForState(app, id, 'COMPLETED');
    },
    { idleMs: 10 },
  );
  stop();
});

/** Counts the statements of the app's pool by a part of their text, as they are sent. */
function countStatements() {
  const { pool } = app.ctx.db;
  const original = pool.query;
  const texts: string[] = [];
  pool.query = ((...args: unknown[]) => {
    texts.push((args[0] as { text?: string }).text ?? '');
    return original.apply(pool, args as Parameters<typeof original>);
  }) as typeof pool.query;
  return {
    count: (part: string) => texts.filter((text) => text.includes(part)).length,
    stop: () => {
      pool.query = original;
    },
  };
}

test.each([
  ['is renewed', (bytes: Uint8Array) => checksumOf(bytes)],
  ['is moved without a checksum', () => null],
])('a file that %s after a dead engine has put it in place is read again', async (what, checksum) => {
  const file = `/left/${what}`;
  const [old, now] = tapeTwo({ volume: `L ${what}`, position: 1n }, { volume: `L ${what}`, position: 2n });
  await importRows(app.ctx, [rowOf(file, old, checksum(old.bytes))]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await dieAfterPlacing(app, file, old.bytes);
  await importRows(app.ctx, [rowOf(file, now, checksum(now.bytes))]);
  const before = await readDisks(app);
  expect(before.reserved).toBe(1000n);
  await withEngine(app, backend, async () => {
    const { holds } = await waitForState(app, id, 'COMPLETED');
    expect(holds[0]).toMatchObject({ state: 'ON_DISK', error: null });
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
  expect(await readDisks(app)).toEqual({ used: before.used + 1000n, reserved: 0n });
});

test('nobody waits any more for a version that an import has replaced: its copy leaves the disk', async () => {
  const file = '/left/unwanted';
  const [old, now] = tapeTwo({ volume: 'GONE', position: 1n }, { volume: 'GONE', position: 2n });
  await importRows(app.ctx, [rowOf(file, old)]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await dieAfterPlacing(app, file, old.bytes);
  await importRows(app.ctx, [rowOf(file, now)]);
  await cancel(app, id);
  const { used } = await readDisks(app);
  await withEngine(app, backend, async () => {
    await waitFor('the copy to leave', async () => readRestored(app, file) === undefined);
    await waitFor('the room', async () => (await readDisks(app)).reserved === 0n);
    await waitFor('the room', async () => (await readDisks(app)).used === used);
  });
  expect([await readStage(app, file), await readRecall(file)]).toEqual(['T', undefined]);
});

test('files that an import has moved away while they were read do not have their volume held', async () => {
  const files = [1, 2, 3, 4].map((n) => `/hold/${n}`);
  const old = files.map((_, n) => ({ volume: 'WORN', position: BigInt(n + 1), bytes: randomBytes(1000) }));
  const now = old.map((version) => ({ ...version, volume: 'FRESH' }));
  for (const version of [...old, ...now]) putOnTape(backend, version);
  const rowsOf = (versions: Version[]) =>
    versions.map((version, n) => ({ ...rowOf(files[n] ?? '', version), line: n + 1 }));
  await importRows(app.ctx, rowsOf(old));
  const gate = createGate();
  backend.onRead = async (volume, _position, bytes) => {
    if (volume !== 'WORN') return bytes;
    await gate.opened;
    throw new TapeError('MEDIA', 'it is worn');
  };
  const id = await makeRequest(app, { quota: 'alice', files });
  await withEngine(app, backend, async () => {
    await waitFor('the read', async () => readsOf('WORN').length > 0);
    await importRows(app.ctx, rowsOf(now));
    gate.open();
    await waitForState(app, id, 'COMPLETED');
  });
  expect((await app.ctx.db.pool.query('SELECT FROM suspension')).rowCount).toBe(0);
});

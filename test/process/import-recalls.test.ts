/**
 * Imports that change files during a recall, after a restore or after a failure. Requests get the version of the last
 * import.
 */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { importRows } from '../../src/domain/import/import.js';
import type { CatalogueRow } from '../../src/domain/import/import-rows.js';
import { releaseDrive, setMount } from '../../src/domain/recalls/drives.js';
import { finishRecalls } from '../../src/domain/recalls/ends.js';
import { startRecalls } from '../../src/domain/recalls/starts.js';
import { claim, dieAfterPlacing, idOf, measure, startByHand, withEngine } from '../support/engine-by-hand.js';
import { readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped, buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { lock } from '../support/locks.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, query } = useMemorySite({ isIdle: true });

/** A version of a file: its position on tape, and its bytes. */
interface Version {
  volume: string;
  position: bigint;
  bytes: Uint8Array;
  checksum: string | null;
}

const [older, newer] = [randomBytes(1000), randomBytes(1000)];

function versionOf(volume: string, position: bigint, bytes: Uint8Array, checksum: string | null = checksumOf(bytes)) {
  return { volume, position, bytes, checksum };
}

/** Puts the bytes on tape and imports a row for the file. */
async function tape(file: string, { bytes, ...place }: Version): Promise<void> {
  putOnTape(library, { ...place, bytes });
  await importRows(app.ctx, [buildRow({ path: file, size: BigInt(bytes.length), ...place })]);
}

const ask = (...files: string[]) => makeRequest(app, { quota: 'alice', files });
const complete = (...ids: number[]) =>
  withEngine(app, library, () => Promise.all(ids.map((id) => waitForState(app, id, 'COMPLETED'))));
const readsOf = (volume: string) => library.log.filter((entry) => entry.what === 'read' && entry.volume === volume);
const movesOf = async (file: string) => (await readMoves(app, file)).map(({ move }) => move);
/** Returns the only file of a request. */
const requestFileOf = async (id: number) => (await viewRequest(app, id)).files[0];

/** Blocks reads at a position until the gate opens. Then the reads fail with `error`, if there is one. */
function blockReads(at: Partial<Version>, error?: TapeError) {
  const gate = createGate();
  library.onRead = async (volume, position, bytes) => {
    if (volume !== (at.volume ?? volume) || position !== (at.position ?? position)) return bytes;
    await gate.opened;
    if (error) throw error;
    return bytes;
  };
  return gate;
}

test.each<[string, Version, Version, TapeError | undefined]>([
  [
    'that cannot be read at its old place any more',
    versionOf('OLD1', 1n, older),
    versionOf('NEW1', 5n, older),
    new TapeError('PERMANENT', 'the volume is erased'),
  ],
  ['without a checksum', versionOf('ONE', 1n, older, null), versionOf('ONE', 2n, newer, null), undefined],
])('a file %s that is moved while it is read is restored from its new place', async (what, old, now, error) => {
  const file = `/moved/${what}`;
  await tape(file, old);
  const gate = blockReads({ volume: old.volume, position: old.position }, error);
  const id = await ask(file);
  await withEngine(app, library, async () => {
    await waitFor('the read', async () => readsOf(old.volume).length > 0);
    await tape(file, now);
    gate.open();
    const { files } = await waitForState(app, id, 'COMPLETED');
    expect(files[0]).toMatchObject({ state: 'ON_DISK', error: null });
  });
  expect(readRestored(app, file)).toEqual(Buffer.from(now.bytes));
  expect(await movesOf(file)).toEqual(['TA', 'AT', 'TA', 'AR']);
  expect(readsOf(old.volume).filter(({ position }) => position === old.position)).toHaveLength(1);
});

test('the read of a version that an import has replaced is stopped', async () => {
  const file = '/renewed/early';
  await tape(file, versionOf('LONG', 1n, older));
  blockReads({ position: 1n });
  const id = await ask(file);
  await withEngine(app, library, async () => {
    await waitFor('the read', async () => readsOf('LONG').length > 0);
    await tape(file, versionOf('LONG', 2n, newer));
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, file)).toEqual(newer);
});

test('a file that is moved to another volume before its recall starts is not read from the mounted volume', async () => {
  const [staying, moving] = ['/start/staying', '/start/moving'];
  await addTaped(app.ctx, library, [
    { path: staying, volume: 'START1', position: 1n },
    { path: moving, volume: 'START1', position: 2n },
  ]);
  const id = await ask(staying, moving);
  const fileIds = [await idOf(app, staying), await idOf(app, moving)];
  const lease = await claim(app);
  const [volume] = await query<{ id: number }>(`SELECT id FROM volume WHERE name = 'START1'`);
  await setMount(app.ctx, lease, volume?.id ?? 0);
  await tape(moving, versionOf('START2', 7n, newer));
  const started = await startRecalls(app.ctx, lease, { fileIds, measure });
  expect(started.map((recall) => recall.path)).toEqual([staying]);
  await releaseDrive(app.ctx, lease);
  await complete(id);
  expect(readRestored(app, moving)).toEqual(newer);
});

test('a recall with another place than its file is started where the file is', async () => {
  const [file, other] = ['/stale/a', '/stale/b'];
  await tape(file, versionOf('STALE2', 9n, newer));
  await tape(other, versionOf('STALE1', 8n, older));
  const id = await ask(file);
  await query(
    `UPDATE recall c SET volume_id = o.volume_id, position = o.position FROM tape_file f, tape_file o
     WHERE f.id = c.file_id AND f.path = $1 AND o.path = $2`,
    [file, other],
  );
  await complete(id);
  expect(readRestored(app, file)).toEqual(newer);
});

test('a drive does not visit a volume again and again if none of its recalls can start', async () => {
  await addTaped(app.ctx, library, [{ path: '/stuck', volume: 'STUCK' }]);
  const id = await ask('/stuck');
  const unlock = await lock(app, `SELECT FROM recall WHERE file_id = ${await idOf(app, '/stuck')} FOR UPDATE`);
  const { count, stop } = countStatements();
  const work = async () => {
    await waitFor('many looks at the queue', async () => count('drive_seconds > 0') >= 60);
    // each visit of the volume updates the drive's row twice
    expect(count('UPDATE drive SET volume_id')).toBeLessThan(30);
    await unlock();
    await waitForState(app, id, 'COMPLETED');
  };
  await withEngine(app, library, work, { idleMs: 10 });
  stop();
});

/** Counts the statements of the app's pool that contain a text. */
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

test('a file that is renewed or moved after a dead engine has put it in place is read again', async () => {
  const cases: [file: string, old: Version, now: Version][] = [
    ['/left/renewed', versionOf('DIED1', 1n, older), versionOf('DIED1', 2n, newer)],
    ['/left/moved', versionOf('DIED2', 1n, older, null), versionOf('DIED2', 2n, newer, null)],
  ];
  const { used } = await readDisks(app);
  const ids: number[] = [];
  for (const [file, old, now] of cases) {
    await tape(file, old);
    ids.push(await ask(file));
    await dieAfterPlacing(app, file, old.bytes);
    await tape(file, now);
  }
  await complete(...ids);
  for (const id of ids) expect(await requestFileOf(id)).toMatchObject({ state: 'ON_DISK', error: null });
  for (const [file] of cases) expect(readRestored(app, file)).toEqual(newer);
  expect(await readDisks(app)).toEqual({ used: used + 2000n, reserved: 0n });
});

test('the copy that a dead engine left of a replaced version is removed if no request wants the file', async () => {
  const file = '/left/unwanted';
  await tape(file, versionOf('GONE', 1n, older));
  const id = await ask(file);
  await dieAfterPlacing(app, file, older);
  await tape(file, versionOf('GONE', 2n, newer));
  await cancel(app, id);
  const { used } = await readDisks(app);
  const areRemoved = async () => readRestored(app, file) === undefined && (await readDisks(app)).reserved === 0n;
  await withEngine(app, library, () => waitFor('the copy to be removed', areRemoved), { repairMs: 300 });
  expect(await readDisks(app)).toEqual({ used, reserved: 0n });
  expect(await readStage(app, file)).toBe('T');
});

test('a volume is not suspended for read errors of files that an import has moved away meanwhile', async () => {
  const files = [1, 2, 3, 4].map((n) => `/hold/${n}`);
  const importAll = (volume: string) =>
    importRows(
      app.ctx,
      files.map((file, n) => {
        const place = { volume, position: BigInt(n + 1) };
        putOnTape(library, { ...place, bytes: older });
        return buildRow({ path: file, line: n + 1, checksum: checksumOf(older), ...place });
      }),
    );
  await importAll('WORN');
  const gate = blockReads({ volume: 'WORN' }, new TapeError('MEDIA', 'it is worn'));
  const id = await ask(...files);
  await withEngine(app, library, async () => {
    await waitFor('the read', async () => readsOf('WORN').length > 0);
    await importAll('FRESH');
    gate.open();
    await waitForState(app, id, 'COMPLETED');
  });
  expect(await query('SELECT FROM suspension')).toEqual([]);
});

/** Restores versions of files, each for a request that stays live. @returns the ids of the requests */
async function restore(versions: Map<string, Version>): Promise<number[]> {
  const ids: number[] = [];
  for (const [file, version] of versions) {
    await tape(file, version);
    ids.push(await ask(file));
  }
  await complete(...ids);
  library.log.length = 0;
  return ids;
}

const sum = checksumOf(newer);

test('a restored file is recalled again for its requests if an import says that its bytes may have changed', async () => {
  const changes: Record<string, [old: Partial<Version>, now: Partial<Version>]> = {
    '/renewed/another checksum': [{}, { checksum: sum }],
    '/renewed/elsewhere without a checksum': [{ checksum: null }, { position: 2n }],
    '/renewed/elsewhere, no checksum any more': [{}, { checksum: null, volume: 'W' }],
    '/renewed/a checksum at last': [{ checksum: null }, { checksum: sum }],
  };
  const files = Object.keys(changes);
  const firstOf = (file: string) => ({ ...versionOf(`V ${file}`, 1n, older), ...changes[file]?.[0] });
  const { used } = await readDisks(app);
  const ids = await restore(new Map(files.map((file) => [file, firstOf(file)])));
  for (const [n, file] of files.entries()) {
    await tape(file, { ...firstOf(file), bytes: newer, ...changes[file]?.[1] });
    expect([file, await readStage(app, file)]).toEqual([file, 'T']);
    const { state, filesOnDisk, files, finishedAt } = await viewRequest(app, ids[n] ?? 0);
    expect([state, filesOnDisk, files[0]?.state, finishedAt]).toEqual(['RESTORING', 0, 'WAITING', null]);
  }
  await complete(...ids, await ask(...files));
  for (const file of files) {
    expect([file, readRestored(app, file)]).toEqual([file, newer]);
    expect([file, await movesOf(file)]).toEqual([file, ['TA', 'AR', 'RT', 'TA', 'AR']]);
  }
  expect(await readDisks(app)).toEqual({ used: used + 4000n, reserved: 0n });
});

test('a restored file that is moved with its checksum, or loses its checksum, stays on disk', async () => {
  const versions = new Map([
    ['/kept/moved', versionOf('KEPT', 1n, older)],
    ['/kept/sum', versionOf('KEPT', 2n, older)],
  ]);
  const ids = await restore(versions);
  await tape('/kept/moved', versionOf('ELSEWHERE', 9n, older));
  await tape('/kept/sum', versionOf('KEPT', 2n, older, null));
  ids.push(await ask(...versions.keys()));
  for (const id of ids) expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED' });
  for (const file of versions.keys()) expect(await movesOf(file)).toEqual(['TA', 'AR']);
  expect(library.log).toEqual([]);
});

test('the copy of a replaced version is removed if no request wants the new one', async () => {
  const file = '/renewed/unwanted';
  const { used } = await readDisks(app);
  const [id = 0] = await restore(new Map([[file, versionOf('UNWANTED', 1n, older)]]));
  await tape(file, versionOf('UNWANTED', 1n, newer));
  await cancel(app, id);
  await withEngine(app, library, async () => {
    await waitFor('the copy to be removed', async () => readRestored(app, file) === undefined);
    await waitFor('the room', async () => (await readDisks(app)).used === used);
  });
  expect(await readStage(app, file)).toBe('T');
});

/** Starts the recall of a file. @returns a function that fails the recall permanently */
async function startFailing(file: string): Promise<() => Promise<void>> {
  const lease = await claim(app);
  const [started] = await startByHand(app, lease, [file]);
  if (!started) throw new Error(`the recall of ${file} cannot start`);
  return async () => {
    const { fileId } = started;
    await finishRecalls(app.ctx, lease, [{ fileId, kind: 'failed', errorClass: 'MEDIA', error: 'it is worn' }]);
    await releaseDrive(app.ctx, lease);
  };
}

async function expectWaiting(id: number): Promise<void> {
  expect(await viewRequest(app, id)).toMatchObject({
    ...{ state: 'RESTORING', filesFailed: 0, finishedAt: null, recallsEndedAt: null },
    files: [{ state: 'WAITING', errorClass: null, error: null }],
  });
}

test('a failed file is tried again once an import changes what is to be read', async () => {
  const changes: [file: string, old: Partial<CatalogueRow>, now: Partial<CatalogueRow>][] = [
    ['/failed/on another volume', { volume: 'WORN' }, { volume: 'NEW' }],
    ['/failed/at another position', { position: 99n }, {}],
    ['/failed/with another checksum', { checksum: sum }, {}],
    ['/failed/without a checksum', { checksum: sum }, { checksum: null }],
    ['/failed/of another size', { size: 999n }, {}],
  ];
  const ids: number[] = [];
  for (const [n, [file, old, now]] of changes.entries()) {
    const place = { volume: 'FAILED', position: BigInt(n) };
    const row = buildRow({ path: file, ...place, checksum: checksumOf(older), size: 1000n });
    await importRows(app.ctx, [{ ...row, ...old }]);
    const id = await ask(file);
    await (await startFailing(file))();
    const failed = {
      state: 'PARTIAL',
      files: [{ path: file, state: 'FAILED', errorClass: 'MEDIA', error: 'it is worn' }],
    };
    expect(await viewRequest(app, id)).toMatchObject(failed);
    // the row has no new information about the bytes
    await importRows(app.ctx, [{ ...row, ...old, spotName: 'elsewhere', verified: null }]);
    expect(await viewRequest(app, id)).toMatchObject(failed);
    putOnTape(library, { ...place, volume: now.volume ?? place.volume, bytes: older });
    await importRows(app.ctx, [{ ...row, ...now }]);
    await expectWaiting(id);
    ids.push(id);
  }
  await complete(...ids);
  for (const [file] of changes) expect([file, readRestored(app, file)]).toEqual([file, older]);
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('a file without a position on tape is recalled once an import gives it one', async () => {
  const file = '/failed/nowhere';
  await importRows(app.ctx, [buildRow({ path: file, volume: null, position: null })]);
  const id = await ask(file);
  await withEngine(app, library, async () => {
    await waitForState(app, id, 'PARTIAL');
    await tape(file, versionOf('PLACED', 1n, older));
    await waitForState(app, id, 'COMPLETED');
  });
});

test('a file that fails while an import corrects its checksum is tried again', async () => {
  const file = '/failed/meanwhile';
  await tape(file, versionOf('MEANWHILE', 1n, older, sum));
  const id = await ask(file);
  const fail = await startFailing(file);
  await tape(file, versionOf('MEANWHILE', 1n, older, null));
  await fail();
  await expectWaiting(id);
  await complete(id);
});

const importText = async (...rows: string[]) => {
  const stdin = ['path,size,stage,volume,position', ...rows].join('\n');
  return (await runCli(['import', '-'], { env: { DATABASE_URL: app.databaseUrl }, stdin })).stdout;
};

test('new files at A and R are on tape, as import reports, and are recalled', async () => {
  for (const position of [1n, 2n]) putOnTape(library, versionOf('OTHER', position, older));
  expect(await importText('/other/r,1000,R,OTHER,1', '/other/a,1000,A,OTHER,2')).toBe(
    '2 files added, 0 updated\n2 new files added in stage T instead of A or R, because the restore area contains no copy\n',
  );
  await complete(await ask('/other/r', '/other/a'));
  for (const file of ['/other/r', '/other/a']) expect(readRestored(app, file)).toEqual(older);
});

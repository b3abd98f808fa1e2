/** A file of which nobody has told a checksum gets one at its first restore, which is kept, and compared from then on. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import type { CatalogueRow } from '../../src/operations/catalogue/import-rows.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { dieAfterPlacing, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readRestored, readStage } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
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

const bytes = randomBytes(1000);
const taken = { checksum: checksumOf(bytes), checksumOrigin: 'FIRST_RESTORE' };
const unknown = { checksum: null, checksumOrigin: null };

/** A file of `bytes` on a volume of its own, of which nobody tells a checksum. */
async function register(file: string): Promise<{ path: string; size: bigint; volume: string; position: bigint }> {
  const place = { path: file, size: 1000n, volume: file.replaceAll(/\W/g, '_').slice(-40), position: 1n };
  putOnTape(backend, { ...place, bytes });
  await importRows(app.ctx, [buildRow({ ...place, checksum: null })]);
  return place;
}

/** @returns the request that holds the file from now on */
async function restore(file: string): Promise<number> {
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  return id;
}

/** Its copy leaves the restore area. */
async function letGo(file: string, id: number): Promise<void> {
  await cancel(app, id);
  await withEngine(app, backend, () => waitFor('its copy to leave', async () => !readRestored(app, file)));
}

async function viewChecksum(file: string): Promise<{ checksum: string | null; checksumOrigin: string | null }> {
  const query = 'query ($path: String!) { tapeFile(path: $path) { checksum checksumOrigin } }';
  return (await askData<{ tapeFile: typeof taken }>(app, query, { path: file })).tapeFile;
}

test('the first restore of a file gives it a checksum, and says that nobody else did', async () => {
  const file = '/first/unknown';
  await register(file);
  expect(await viewChecksum(file)).toEqual(unknown);
  await restore(file);
  expect(await viewChecksum(file)).toEqual(taken);
});

test('a checksum that the archive tells stays as it is', async () => {
  const file = '/first/told';
  const place = await register(file);
  await importRows(app.ctx, [buildRow({ ...place, checksum: taken.checksum })]);
  await restore(file);
  expect(await viewChecksum(file)).toEqual({ checksum: taken.checksum, checksumOrigin: 'ARCHIVE' });
});

test('other bytes at a later restore are a fault of the medium, told with both checksums', async () => {
  const file = '/first/damaged';
  const place = await register(file);
  await letGo(file, await restore(file));
  const others = randomBytes(1000);
  putOnTape(backend, { ...place, bytes: others });
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  const error = `the tape copy has checksum ${checksumOf(others)}, and its first restore gave ${taken.checksum}: ${file}`;
  const readTry = async () =>
    (
      await app.ctx.db.pool.query(
        'SELECT c.error_class, c.error FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = $1 AND c.error IS NOT NULL',
        [file],
      )
    ).rows[0];
  const tried = await withEngine(app, backend, () => waitFor('a try that fails', readTry));
  expect(tried).toEqual({ error_class: 'MEDIA', error });
  expect(readRestored(app, file)).toBeUndefined();
  await cancel(app, id);
});

type Said = Partial<CatalogueRow>;
const elsewhere = { volume: 'ELSEWHERE', position: 7n };

/** What an import says of a restored file; whether its copy stays, and what is known of its checksum then. */
const imports: [what: string, said: Said, stage: 'R' | 'T', expected: object][] = [
  ['leaves the checksum out', { checksum: undefined }, 'R', taken],
  ['has no checksum at the same place', { checksum: null }, 'R', taken],
  ['leaves all but the size out', { checksum: undefined, volume: undefined, position: undefined }, 'R', taken],
  ['tells the very same one', { checksum: taken.checksum }, 'R', { ...taken, checksumOrigin: 'ARCHIVE' }],
  [
    'tells the very same one at another place',
    { ...elsewhere, checksum: taken.checksum },
    'R',
    { ...taken, checksumOrigin: 'ARCHIVE' },
  ],
  [
    'tells another one',
    { checksum: checksumOf('another') },
    'T',
    { checksum: checksumOf('another'), checksumOrigin: 'ARCHIVE' },
  ],
  [
    'tells one of another kind',
    { checksum: 'adler32:0a1b2c3d' },
    'T',
    { checksum: 'adler32:0a1b2c3d', checksumOrigin: 'ARCHIVE' },
  ],
  ['gives another place, and leaves the checksum out', { ...elsewhere, checksum: undefined }, 'T', unknown],
  ['gives another position alone', { position: 7n, volume: undefined, checksum: undefined }, 'T', unknown],
  ['gives another place, and no checksum', { ...elsewhere, checksum: null }, 'T', unknown],
];

test.each(imports)(
  'of a file with the checksum of its first restore, an import that %s',
  async (what, said, stage, expected) => {
    const file = `/first/import/${what}`;
    const place = await register(file);
    const id = await restore(file);
    await importRows(app.ctx, [buildRow({ ...place, ...said })]);
    expect([await readStage(app, file), await viewChecksum(file)]).toEqual([stage, expected]);
    await cancel(app, id);
  },
);

test('an import that says what is known already changes nothing, and takes no checksum away', async () => {
  const file = '/first/nightly';
  const place = await register(file);
  await restore(file);
  for (const checksum of [null, undefined]) {
    expect(await importRows(app.ctx, [buildRow({ ...place, checksum })])).toMatchObject({ added: 0, updated: 0 });
  }
  expect(await importRows(app.ctx, [buildRow({ ...place, spotName: 'moved', checksum: null })])).toMatchObject({
    updated: 1,
  });
  expect(await viewChecksum(file)).toEqual(taken);
});

test('a file that moves gets another checksum where it lies then, at its next restore', async () => {
  const file = '/first/moved';
  const place = await register(file);
  const id = await restore(file);
  const newer = randomBytes(1000);
  putOnTape(backend, { ...place, position: 2n, bytes: newer });
  await importRows(app.ctx, [buildRow({ ...place, position: 2n, checksum: null })]);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, file)?.equals(newer)).toBe(true);
  expect(await viewChecksum(file)).toEqual({ ...taken, checksum: checksumOf(newer) });
});

test("somebody's file with the same bytes stands for it, and gives no less of a checksum", async () => {
  const file = '/first/standing';
  await register(file);
  writeFileSync(path.join(app.restoreDir, 'first', 'standing'), bytes, { mode: 0o644 });
  const id = await restore(file);
  expect(await viewRequest(app, id)).toMatchObject({ holds: [{ path: file, stage: 'UNVERIFIED', state: 'ON_DISK' }] });
  expect(await viewChecksum(file)).toEqual(taken);
});

test('a copy that its engine did not live to tell of gives none: nobody saw what was read', async () => {
  const file = '/first/unseen';
  await register(file);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await dieAfterPlacing(app, file, bytes);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(await viewChecksum(file)).toEqual(unknown);
  await letGo(file, id);
  await restore(file);
  expect(await viewChecksum(file)).toEqual(taken);
});

test('the doctor compares copies with the checksum of the first restore', async () => {
  const file = '/first/examined';
  await register(file);
  await restore(file);
  const kinds: string[] = [];
  const { lookedAt } = await examine(app.ctx, { repair: false, checksums: true }, ({ kind }) => void kinds.push(kind));
  expect(kinds).not.toContain('copy-damaged');
  expect(lookedAt.checksums).toBeGreaterThan(0);
});

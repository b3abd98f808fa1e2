/** What a sceptic looked for where engines, links and libraries meet files that get other paths. */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/database/locks.js';
import { archiveTree } from '../../src/engine/archive.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped, buildRow, checksumOf } from '../support/factories.js';
import { lock, waitForBlocked } from '../support/locks.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { makeTempDir } from '../support/temp-dir.js';
import { placesBelow } from '../support/volumes.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const linkRoot = makeTempDir();

beforeAll(async () => {
  app = await startApp({ backend, config: { linkRoot } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  const faults: string[] = [];
  await examine(app.ctx, { repair: false, checksums: true, adopt: false }, ({ kind, thing }) =>
    faults.push(`${kind}: ${thing}`),
  );
  expect(faults).toEqual([]);
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
  rmSync(linkRoot, { recursive: true, force: true });
});

const ask = (files: string[]) => makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });
const linkAt = (file: string) => path.join(linkRoot, file);
const waitForLink = (file: string, is: boolean) =>
  waitFor(`the link at ${file} to ${is ? 'come' : 'go'}`, async () => existsSync(linkAt(file)) === is);

async function waitForGone(file: string): Promise<void> {
  await waitFor(`${file} to leave`, async () => {
    await ring(app, 'event');
    const query = 'SELECT FROM tape_file WHERE path = $1 AND disk_id IS NULL';
    return (await readStage(app, file)) === 'T' && (await app.ctx.db.pool.query(query, [file])).rowCount === 1;
  });
}

test('the late look at the link of a file that was renamed leaves that of the file which has its path now', async () => {
  await addTaped(app.ctx, backend, [{ path: '/late/a', volume: 'K1' }]);
  const first = await ask(['/late/a']);
  await waitForState(app, first, 'COMPLETED');
  await waitForLink('/late/a', true);
  await cancel(app, first);
  await waitForGone('/late/a');
  await waitForLink('/late/a', false);
  await renameFiles(app.ctx, { from: '/late/a', to: '/late/z' });
  const isForgotten = async () => {
    const ofFile = `SELECT FROM archive_link l JOIN tape_file f ON f.id = l.file_id WHERE f.path = '/late/z'`;
    return (await app.ctx.db.pool.query(ofFile)).rowCount === 0;
  };
  // as it is where the link was removed less than ten minutes ago, and the rename was looked at before that
  await app.ctx.db.pool.query(
    `INSERT INTO archive_link AS l (file_id, at, target, is_there, look_at)
       SELECT id, $1, $2, false, '2099-01-01' FROM tape_file WHERE path = '/late/z'
     ON CONFLICT (file_id) DO UPDATE SET at = excluded.at, target = excluded.target, is_there = false, look_at = excluded.look_at, change = l.change + 1`,
    [linkAt('/late/a'), `${app.restoreDir}/late/a`],
  );
  await addTaped(app.ctx, backend, [{ path: '/late/a', volume: 'K2' }]);
  const second = await ask(['/late/a']);
  await waitForState(app, second, 'COMPLETED');
  await waitForLink('/late/a', true);
  await waitFor('its link to be settled', async () => {
    const ofNew = `SELECT FROM archive_link l JOIN tape_file f ON f.id = l.file_id WHERE f.path = '/late/a' AND l.look_at IS NULL`;
    return (await app.ctx.db.pool.query(ofNew)).rowCount === 1;
  });
  expect(await isForgotten()).toBe(false);
  await app.ctx.db.pool.query(
    `UPDATE archive_link SET look_at = '1970-01-01' WHERE file_id = (SELECT id FROM tape_file WHERE path = '/late/z')`,
  );
  await waitFor('the late look', isForgotten);
  await waitForLink('/late/a', true);
  expect(readlinkSync(linkAt('/late/a'))).toBe(`${app.restoreDir}/late/a`);
  await cancel(app, second);
  await waitForGone('/late/a');
});

test('a library is told to let a file go by the name by which it was asked for it, wherever that is said to be since', async () => {
  const system = await addMemoryLibrary(app.ctx, { name: 'kiln' });
  const contents = await addRemote(app.ctx, system, {
    library: 'kiln',
    files: [{ path: '/kiln/a' }, { path: '/kiln/b' }],
  });
  const id = await ask(['/kiln/a', '/kiln/b']);
  await waitFor('both to be asked for', async () => {
    const states = await readStates(app.ctx);
    return states['/kiln/a'] === 'ASKED' && states['/kiln/b'] === 'ASKED';
  });
  const moveTo = (file: string, was: string, position: bigint) =>
    addTaped(app.ctx, backend, [{ path: file, bytes: contents.get(was) ?? new Uint8Array(), volume: 'K3', position }]);
  await renameFiles(app.ctx, { from: '/kiln/a', to: '/ofen/a' });
  await moveTo('/ofen/a', '/kiln/a', 1n);
  await moveTo('/kiln/b', '/kiln/b', 2n);
  await renameFiles(app.ctx, { from: '/kiln/b', to: '/ofen/b' });
  await waitForState(app, id, 'COMPLETED');
  await waitFor('the library to be told', async () => Object.keys(await readStates(app.ctx)).length === 0);
  const told = system.log.filter(({ what }) => what === 'release').flatMap(({ paths }) => paths);
  expect(new Set(told)).toEqual(new Set(['/kiln/a', '/kiln/b']));
  await cancel(app, id);
  for (const file of ['/ofen/a', '/ofen/b']) await waitForGone(file);
});

/** Archives a tree of these files, and removes them. @returns what has failed, and what is left of them */
async function archiveAndMove(
  files: Record<string, Uint8Array>,
  prefix: string,
): Promise<{ failed: string[]; left: string[] }> {
  const dir = makeTempDir();
  try {
    for (const [name, bytes] of Object.entries(files)) writeFileSync(path.join(dir, name), bytes);
    const input = { dir, prefix, volumeSize: 10n ** 9n, move: true };
    const { failed } = await archiveTree(app.ctx, backend, input, { signal: new AbortController().signal });
    return { failed, left: readdirSync(dir) };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

test('a source stays whose file is withdrawn: it may be forgotten, and then nobody finds the bytes on tape', async () => {
  const contents = await addTaped(app.ctx, backend, [{ path: '/source/a', volume: 'K9' }]);
  await withdrawFiles(app.ctx, { path: '/source/a' });
  const { failed, left } = await archiveAndMove({ a: Buffer.from(contents.get('/source/a') ?? []) }, '/source');
  expect(left).toEqual(['a']);
  expect(failed).toEqual([expect.stringContaining('"/source/a" is withdrawn')]);
});

/** The same, with something that is done once while the first of them is read back. */
async function archiveWhile(files: Record<string, Uint8Array>, prefix: string, work: () => Promise<unknown>) {
  const { onRead } = backend;
  let begun: Promise<unknown> | undefined;
  backend.onRead = async (_volume, _position, bytes) => {
    begun ??= work();
    await begun;
    return bytes;
  };
  return await archiveAndMove(files, prefix).finally(() => {
    backend.onRead = onRead;
  });
}

test('a file that is renamed while archive reads it back is no other one at the same place, and its source stays', async () => {
  const { failed, left } = await archiveWhile({ a: randomBytes(500) }, '/busy', () =>
    renameFiles(app.ctx, { from: '/busy/a', to: '/idle/a' }),
  );
  const { rows } = await app.ctx.db.pool.query(
    `SELECT path FROM tape_file WHERE path ~ '^/(busy|idle)/' ORDER BY path`,
  );
  expect([rows, left, failed]).toEqual([
    [{ path: '/idle/a' }],
    ['a'],
    [expect.stringContaining('/busy/a was renamed or withdrawn')],
  ]);
});

test('a file whose place was not known, and that is renamed while archive reads it back, is no other one either', async () => {
  const bytes = randomBytes(500);
  const row = { path: '/lost/a', size: 500n, volume: null, position: null, checksum: checksumOf(bytes) };
  await importRows(app.ctx, [buildRow(row)]);
  const { failed, left } = await archiveWhile({ a: bytes }, '/lost', () =>
    renameFiles(app.ctx, { from: '/lost/a', to: '/lost/b' }),
  );
  expect(await placesBelow(app, '/lost/')).toEqual(['/lost/b - -']);
  expect([left, failed]).toEqual([['a'], [expect.stringContaining('/lost/a was renamed or withdrawn')]]);
});

test('what archive has read back does not undo what becomes of it just before that is noted', async () => {
  const held: (() => Promise<void>)[] = [];
  const archived = archiveWhile({ a: randomBytes(500), b: randomBytes(500) }, '/late/files', async () => {
    held.push(await lock(app, `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`));
  });
  const [letGo] = await waitFor('the reading back', async () => held.length > 0 && held);
  await waitForBlocked(app, 1); // to note that they are on tape
  await app.ctx.db.pool.query(`UPDATE tape_file SET path = '/late/files/c' WHERE path = '/late/files/a'`);
  await letGo?.();
  const { failed, left } = await archived;
  expect([left, failed]).toEqual([['a'], [expect.stringContaining('/late/files/a was renamed or withdrawn')]]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT path, stage FROM tape_file WHERE path LIKE '/late/files/%' ORDER BY path`,
  );
  expect(rows).toEqual([
    { path: '/late/files/b', stage: 'ONTAPE' },
    { path: '/late/files/c', stage: 'UNVERIFIED' },
  ]);
});

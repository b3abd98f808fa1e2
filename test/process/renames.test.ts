/**
 * Files that are renamed while they are archived, restored or on disk: their copies and links, and the later use of old
 * paths.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, expect, test } from 'vitest';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/db/locks.js';
import { recordDirectories } from '../../src/domain/catalogue/directory-modes.js';
import { purgeFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { importRows } from '../../src/domain/import/import.js';
import { archiveTree } from '../../src/engine/archive/archive.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, listTree, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped, buildRow, checksumOf } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData } from '../support/graphql.js';
import { send } from '../support/http.js';
import { lock, waitForBlocked } from '../support/locks.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';
import { placesBelow } from '../support/volumes.js';
import { createGate, waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
const { onRead } = library;
const linkRoot = makeTempDir();
/** Matches the doctor's finding about a directory of links that blocks a link. */
const isDirectoryOfLinks = /^link-stuck: .*\/nest2\/x$/;

const app = useApp({ library, config: { linkRoot } }, () => addQuota(app.ctx, 'alice', 10n ** 9n));

afterEach(async () => {
  library.onRead = onRead;
  expect((await findFaults(app, { checksums: true })).filter((fault) => !isDirectoryOfLinks.test(fault))).toEqual([]);
});
afterAll(async () => {
  await cleanUp();
  expect(await findIllegalMoves(app)).toEqual([]);
  rmSync(linkRoot, { recursive: true, force: true });
});

const ask = (files: string[], of = app) => makeRequest(of, { quota: 'alice', files, retention: '2099-01-01' });
const rename = (from: string, to: string) => renameFiles(app.ctx, { from, to });
const below = (directory: string) => listTree(app.restoreDir).filter((name) => name.startsWith(directory));

/** Returns the path at which clients can read a file. */
async function placeOf(file: string): Promise<string | null> {
  const query = 'query ($path: String!) { tapeFile(path: $path) { restoredPath } }';
  const { tapeFile } = await askData<{ tapeFile: { restoredPath: string | null } }>(app, query, { path: file });
  return tapeFile.restoredPath;
}

async function readPlaced(file: string): Promise<Buffer> {
  return readFileSync((await placeOf(file)) ?? '');
}

const waitForGone = (file: string) =>
  waitFor(`${file} to leave`, async () => {
    await ring(app, 'event');
    const query = 'SELECT FROM tape_file WHERE path = $1 AND disk_id IS NULL';
    return (await readStage(app, file)) === 'T' && (await app.ctx.db.pool.query(query, [file])).rowCount === 1;
  });

/** Cancels a request and waits until its copies are removed. */
async function end(id: number, ...files: string[]): Promise<void> {
  await cancel(app, id);
  for (const file of files) await waitForGone(file);
}

async function restore(...files: string[]): Promise<number> {
  const id = await ask(files);
  await waitForState(app, id, 'COMPLETED');
  return id;
}

const linkAt = (file: string) => path.join(linkRoot, file);
const waitForLink = (file: string, is = true) =>
  waitFor(`the link at ${file} to ${is ? 'appear' : 'leave'}`, async () => existsSync(linkAt(file)) === is);

test('the copy of a renamed file stays in place, is linked and served at the new path, and leaves with its requests', async () => {
  const contents = await addTaped(app.ctx, library, [{ path: '/stay/a' }]);
  await recordDirectories(app.ctx, [{ path: '/stay', mode: 0o755, gid: null }]);
  const id = await restore('/stay/a');
  await waitForLink('/stay/a');
  await rename('/stay/a', '/moved/b');
  expect(await placeOf('/moved/b')).toBe(`${app.restoreDir}/stay/a`);
  expect(await readPlaced('/moved/b')).toEqual(Buffer.from(contents.get('/stay/a') ?? []));
  await waitForLink('/moved/b');
  await waitForLink('/stay/a', false);
  expect(readlinkSync(linkAt('/moved/b'))).toBe(`${app.restoreDir}/stay/a`);
  const { status, text } = await send(app, '/webdav/moved/b');
  expect([status, text.length > 0]).toEqual([200, true]);
  // another request for the file is complete at once
  const other = await restore('/moved/b');
  expect(await findFaults(app)).toEqual([]);
  await cancel(app, id);
  await end(other, '/moved/b');
  expect([below('stay'), below('moved')]).toEqual([[], []]);
  await waitForLink('/moved/b', false);
  // a new recall restores the file at its new path
  const again = await restore('/moved/b');
  expect(await placeOf('/moved/b')).toBe(`${app.restoreDir}/moved/b`);
  await end(again, '/moved/b');
});

test('a file that is renamed while a drive reads it is restored at its old path', async () => {
  const contents = await addTaped(app.ctx, library, [{ path: '/read/a', volume: 'R1' }]);
  const gate = createGate();
  let isReading = false;
  library.onRead = async () => {
    isReading = true;
    await gate.opened;
  };
  const id = await ask(['/read/a']);
  await waitFor('a read', async () => isReading);
  await rename('/read/', '/done/deep/');
  gate.open();
  const { files } = await waitForState(app, id, 'COMPLETED');
  expect(files.map((requestFile) => requestFile.path)).toEqual(['/done/deep/a']);
  expect(await placeOf('/done/deep/a')).toBe(`${app.restoreDir}/read/a`);
  expect(await readPlaced('/done/deep/a')).toEqual(Buffer.from(contents.get('/read/a') ?? []));
  await end(id, '/done/deep/a');
});

test('a new file at the old path is restored at another path while the old copy exists, and later at its own', async () => {
  const old = await addTaped(app.ctx, library, [{ path: '/best/latest', volume: 'B1' }]);
  const first = await restore('/best/latest');
  await rename('/best/latest', '/best/v1');
  const fresh = await addTaped(app.ctx, library, [{ path: '/best/latest', volume: 'B2' }]);
  const second = await restore('/best/latest');
  expect(await readPlaced('/best/v1')).toEqual(Buffer.from(old.get('/best/latest') ?? []));
  expect(await readPlaced('/best/latest')).toEqual(Buffer.from(fresh.get('/best/latest') ?? []));
  expect(await placeOf('/best/latest')).toMatch(/\/\.tapegate-renamed\/\d+\/latest$/);
  expect(await findFaults(app)).toEqual([]);
  await end(first, '/best/v1');
  await end(second, '/best/latest');
  const third = await restore('/best/latest', '/best/v1');
  expect(below('best').sort()).toEqual(['best', 'best/latest', 'best/v1']);
  await end(third, '/best/latest', '/best/v1');
  expect(below('.tapegate-renamed')).toEqual([]);
});

test.each([
  ['below', '/nest1/x', '/nest1/away', '/nest1/x/y'],
  ['above', '/nest2/x/y', '/nest2/away', '/nest2/x'],
])('a new file %s the path of a renamed copy is restored', async (_where, before, after, fresh) => {
  await addTaped(app.ctx, library, [{ path: before, volume: 'N1' }]);
  const first = await restore(before);
  await rename(before, after);
  const contents = await addTaped(app.ctx, library, [{ path: fresh, volume: 'N2' }]);
  const second = await restore(fresh);
  expect(await readPlaced(fresh)).toEqual(Buffer.from(contents.get(fresh) ?? []));
  await cancel(app, first);
  await end(second, after, fresh);
});

test('files that exchange their names keep their bytes', async () => {
  const contents = await addTaped(app.ctx, library, [
    { path: '/swap/a', volume: 'S1' },
    { path: '/swap/b', volume: 'S1', position: 2n },
  ]);
  const id = await restore('/swap/a', '/swap/b');
  await rename('/swap/a', '/swap/c');
  await rename('/swap/b', '/swap/a');
  await rename('/swap/c', '/swap/b');
  expect(await readPlaced('/swap/a')).toEqual(Buffer.from(contents.get('/swap/b') ?? []));
  expect(await readPlaced('/swap/b')).toEqual(Buffer.from(contents.get('/swap/a') ?? []));
  expect(await findFaults(app)).toEqual([]);
  await end(id, '/swap/a', '/swap/b');
});

test('a staging library is asked for a renamed file by the path that it knows', async () => {
  const system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  system.onStaged = (paths) => system.arrive(paths);
  await addRemote(app.ctx, system, { library: 'silo', files: [{ path: '/silo/a', size: 1000 }] });
  await rename('/silo/a', '/elsewhere/a');
  const id = await restore('/elsewhere/a');
  expect(await placeOf('/elsewhere/a')).toBe(`${app.restoreDir}/elsewhere/a`);
  await end(id, '/elsewhere/a');
  await waitFor('the library to be told', async () => system.disk.size === 0);
});

test("the late check of a renamed file's link leaves the link of the file that has its path now", async () => {
  await addTaped(app.ctx, library, [{ path: '/late/a', volume: 'K1' }]);
  const first = await restore('/late/a');
  await waitForLink('/late/a');
  await end(first, '/late/a');
  await waitForLink('/late/a', false);
  await renameFiles(app.ctx, { from: '/late/a', to: '/late/z' });
  const isForgotten = async () => {
    const ofFile = `SELECT FROM archive_link l JOIN tape_file f ON f.id = l.file_id WHERE f.path = '/late/z'`;
    return (await app.ctx.db.pool.query(ofFile)).rowCount === 0;
  };
  // as if the link was removed less than ten minutes ago, after the check of the rename; `change` voids other checks
  await app.ctx.db.pool.query(
    `INSERT INTO archive_link (file_id, at, target, is_there, check_at, change)
       SELECT id, $1, $2, false, clock_timestamp() AT TIME ZONE 'utc' + interval '5 minutes', 1000 FROM tape_file WHERE path = '/late/z'
     ON CONFLICT (file_id) DO UPDATE SET at = excluded.at, target = excluded.target, is_there = false, check_at = excluded.check_at, change = 1000`,
    [linkAt('/late/a'), `${app.restoreDir}/late/a`],
  );
  await addTaped(app.ctx, library, [{ path: '/late/a', volume: 'K2' }]);
  const second = await restore('/late/a');
  await waitForLink('/late/a');
  await waitFor('its link to be settled', async () => {
    const ofNew = `SELECT FROM archive_link l JOIN tape_file f ON f.id = l.file_id WHERE f.path = '/late/a' AND l.check_at IS NULL`;
    return (await app.ctx.db.pool.query(ofNew)).rowCount === 1;
  });
  expect(await isForgotten()).toBe(false);
  await app.ctx.db.pool.query(
    `UPDATE archive_link SET check_at = '1970-01-01' WHERE file_id = (SELECT id FROM tape_file WHERE path = '/late/z')`,
  );
  await waitFor('the late look', isForgotten);
  await waitForLink('/late/a');
  expect(readlinkSync(linkAt('/late/a'))).toBe(`${app.restoreDir}/late/a`);
  await end(second, '/late/a');
});

test('a file is released at its library by the path by which it was requested, whatever was renamed and moved since', async () => {
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
    addTaped(app.ctx, library, [{ path: file, bytes: contents.get(was) ?? new Uint8Array(), volume: 'K3', position }]);
  await renameFiles(app.ctx, { from: '/kiln/a', to: '/ofen/a' });
  await moveTo('/ofen/a', '/kiln/a', 1n);
  await moveTo('/kiln/b', '/kiln/b', 2n);
  await renameFiles(app.ctx, { from: '/kiln/b', to: '/ofen/b' });
  await waitForState(app, id, 'COMPLETED');
  await waitFor('the library to be told', async () => Object.keys(await readStates(app.ctx)).length === 0);
  const told = system.log.filter(({ what }) => what === 'release').flatMap(({ paths }) => paths);
  expect(new Set(told)).toEqual(new Set(['/kiln/a', '/kiln/b']));
  await end(id, '/ofen/a', '/ofen/b');
});

/** Archives a directory of these files with --move. @returns the failures, and the remaining files */
async function archiveAndMove(
  files: Record<string, Uint8Array>,
  prefix: string,
): Promise<{ failed: string[]; left: string[] }> {
  const dir = makeTempDir();
  try {
    for (const [name, bytes] of Object.entries(files)) writeFileSync(path.join(dir, name), bytes);
    const input = { dir, prefix, volumeSize: 10n ** 9n, move: true };
    const { failed } = await archiveTree(app.ctx, library, input, { signal: new AbortController().signal });
    return { failed, left: readdirSync(dir) };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

test('archive keeps a source whose file is withdrawn: after a purge, its bytes could not be found', async () => {
  const contents = await addTaped(app.ctx, library, [{ path: '/source/a', volume: 'K9' }]);
  await withdrawFiles(app.ctx, { path: '/source/a' });
  const { failed, left } = await archiveAndMove({ a: Buffer.from(contents.get('/source/a') ?? []) }, '/source');
  expect(left).toEqual(['a']);
  expect(failed).toEqual([expect.stringContaining('"/source/a" is withdrawn')]);
});

/** Does the same as archiveAndMove(), and runs `work` while the first file is read back. */
async function archiveWhile(files: Record<string, Uint8Array>, prefix: string, work: () => Promise<unknown>) {
  const { onRead } = library;
  let begun: Promise<unknown> | undefined;
  library.onRead = async () => {
    begun ??= work();
    await begun;
  };
  return await archiveAndMove(files, prefix).finally(() => {
    library.onRead = onRead;
  });
}

test('archive keeps a source whose file is renamed while it is read back', async () => {
  const { failed, left } = await archiveWhile({ a: randomBytes(500) }, '/busy', () =>
    renameFiles(app.ctx, { from: '/busy/a', to: '/idle/a' }),
  );
  const { rows } = await app.ctx.db.pool.query(
    `SELECT path FROM tape_file WHERE path ~ '^/(busy|idle)/' ORDER BY path`,
  );
  expect([rows, left, failed]).toEqual([
    [{ path: '/idle/a' }],
    ['a'],
    [expect.stringContaining('/busy/a was renamed, withdrawn')],
  ]);
});

test('archive keeps a source whose file had no position and is renamed while it is read back', async () => {
  const bytes = randomBytes(500);
  const row = { path: '/lost/a', size: 500n, volume: null, position: null, checksum: checksumOf(bytes) };
  await importRows(app.ctx, [buildRow(row)]);
  const { failed, left } = await archiveWhile({ a: bytes }, '/lost', () =>
    renameFiles(app.ctx, { from: '/lost/a', to: '/lost/b' }),
  );
  expect(await placesBelow(app, '/lost/')).toEqual(['/lost/b - -']);
  expect([left, failed]).toEqual([['a'], [expect.stringContaining('/lost/a was renamed, withdrawn')]]);
});

test('archive does not undo a rename that happens just before it records a file', async () => {
  const held: (() => Promise<void>)[] = [];
  const archived = archiveWhile({ a: randomBytes(500), b: randomBytes(500) }, '/late/files', async () => {
    held.push(await lock(app, `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`));
  });
  const [letGo] = await waitFor('the reading back', async () => held.length > 0 && held);
  await waitForBlocked(app, 1); // `archive` waits for the lock, to record that the files are on tape
  await app.ctx.db.pool.query(`UPDATE tape_file SET path = '/late/files/c' WHERE path = '/late/files/a'`);
  await letGo?.();
  const { failed, left } = await archived;
  expect([left, failed]).toEqual([['a'], [expect.stringContaining('/late/files/a was renamed, withdrawn')]]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT path, stage FROM tape_file WHERE path LIKE '/late/files/%' ORDER BY path`,
  );
  expect(rows).toEqual([
    { path: '/late/files/b', stage: 'ONTAPE' },
    { path: '/late/files/c', stage: expect.stringMatching(/^(UNVERIFIED|ONDISK)$/) }, // an engine may have verified the copy
  ]);
});

test('a withdrawn file is purged by command once its copy has left', async () => {
  const plain = await startApp({ library });
  try {
    await addQuota(plain.ctx, 'alice', 10n ** 9n);
    await purgeByCommands(plain);
  } finally {
    await plain.close();
  }
});

async function purgeByCommands(plain: TestApp): Promise<void> {
  await addTaped(plain.ctx, library, [{ path: '/bye/a', volume: 'F1' }]);
  const id = await ask(['/bye/a'], plain);
  await waitForState(plain, id, 'COMPLETED');
  const dir = makeDataDir();
  const place = { DATA_DIR: path.join(dir, 'none'), HOME: dir };
  const env = { env: { TAPEGATE_URL: plain.url, TAPEGATE_TOKEN: plain.token, ...place } };
  const renamed = await runCli(['rename', '/bye/a', '/bye/b'], env);
  expect(renamed.stderr).toBe('');
  expect(renamed.stdout).toBe('1 file, 1.00 kB, renamed\n1 active request is affected\n');
  await withdrawFiles(plain.ctx, { path: '/bye/b' });
  const busy = await runCli(['purge', '/bye/'], env);
  expect([busy.code, busy.stderr]).toEqual([1, `tapegate: "/bye/b" cannot be purged yet: request ${id} contains it\n`]);
  await cancel(plain, id);
  await waitFor('its copy to leave', async () => {
    await ring(plain, 'event');
    return await purgeFiles(plain.ctx, { path: '/bye/b', isDryRun: true }).then(
      () => true,
      () => false,
    );
  });
  expect((await runCli(['purge', '/bye/'], env)).stdout).toBe('1 file, 1.00 kB, purged\n');
  expect((await runCli(['rename', '/bye/b', '/bye/c'], env)).stderr).toContain('there is no file "/bye/b"');
}

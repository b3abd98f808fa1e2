/** Metadata of restored files and of the catalogue: checksums from first restores, mode, owner and times. */
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { readDirectoryModes, recordDirectories } from '../../src/domain/catalogue/directory-modes.js';
import { importRows } from '../../src/domain/import/import.js';
import { type CatalogueRow, readRows } from '../../src/domain/import/import-rows.js';
import { archiveTree } from '../../src/engine/archive/archive.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { addDisk, removeDiskAndMarker } from '../../src/restore-area/setup.js';
import type { TestApp } from '../support/app.js';
import { withEngine } from '../support/engine-by-hand.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { readTries } from '../support/suspend.js';
import { makeDiskDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { adler32 } from '../support/wlcg-storage.js';

const { app, library, tape, ask, place, query } = useMemorySite({ isIdle: true });
const never = new AbortController().signal;
const isRoot = process.getuid?.() === 0;
const umask = process.umask();

afterEach(() => void process.umask(umask));

const bytes = randomBytes(1000);
const computed = { checksum: checksumOf(bytes), checksumOrigin: 'FIRST_RESTORE' };
const unknown = { checksum: null, checksumOrigin: null };
const adler = adler32(bytes).toString('hex');

interface OnTape {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
}

/** Puts `bytes` on a new volume, and adds a file without a checksum to the catalogue. */
async function register(file: string): Promise<OnTape> {
  const onTape = { path: file, size: 1000n, volume: file.replaceAll(/\W/g, '_').slice(-40), position: 1n };
  putOnTape(library, { ...onTape, bytes });
  await importRows(app.ctx, [buildRow({ ...onTape, checksum: null })]);
  return onTape;
}

const complete = (...ids: number[]) =>
  withEngine(app, library, async () => {
    for (const id of ids) await waitForState(app, id, 'COMPLETED');
  });

/** Restores a file with an engine of this configuration. @returns the id of the request */
async function restore(file: string, config: Partial<TestApp['ctx']['config']> = {}): Promise<number> {
  const id = await ask(file);
  const ctx = { ...app.ctx, config: { ...app.ctx.config, ...config } };
  await withEngine({ ...app, ctx }, library, () => waitForState(app, id, 'COMPLETED'), { part: 'drive' });
  return id;
}

/** Cancels a request and removes its copy. */
async function remove(file: string, id: number): Promise<void> {
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect(readRestored(app, file)).toBeUndefined();
}

async function viewChecksum(file: string): Promise<{ checksum: string | null; checksumOrigin: string | null }> {
  const text = 'query ($path: String!) { tapeFile(path: $path) { checksum checksumOrigin } }';
  return (await askData<{ tapeFile: typeof computed }>(app, text, { path: file })).tapeFile;
}

test('the first restore of a file stores its checksum, with this origin', async () => {
  await register('/first/unknown');
  expect(await viewChecksum('/first/unknown')).toEqual(unknown);
  await restore('/first/unknown');
  expect(await viewChecksum('/first/unknown')).toEqual(computed);
  const kinds: string[] = [];
  const { examined } = await examine(app.ctx, { repair: false, checksums: true }, ({ kind }) => void kinds.push(kind));
  expect([kinds, examined.checksums]).toEqual([[], 1]); // the doctor compares the copy with the stored checksum
});

const readAdler32s = () =>
  query<{ path: string; adler32: string | null }>(
    `SELECT path, adler32 FROM tape_file WHERE path LIKE '/adler/%' ORDER BY path`,
  );

test('the first restore stores an Adler-32 beside the checksum, once the bytes are right, and a later one keeps it', async () => {
  const [right, wrong, known] = [
    await register('/adler/right'),
    await register('/adler/wrong'),
    await register('/adler/known'),
  ];
  const told = { checksum: computed.checksum };
  await importRows(app.ctx, [buildRow({ ...right, ...told })]);
  await importRows(app.ctx, [buildRow({ ...wrong, checksum: checksumOf('others') })]);
  await importRows(app.ctx, [buildRow({ ...known, ...told })]);
  await query(`UPDATE tape_file SET adler32 = '00000001' WHERE path = '/adler/known'`);
  const wrongId = await ask('/adler/wrong');
  const id = await ask('/adler/right', '/adler/known');
  await withEngine(app, library, async () => {
    await waitForState(app, id, 'COMPLETED');
    await waitFor('a failure', async () => (await readTries(app, wrongId))['/adler/wrong']?.lastErrorClass === 'MEDIA');
  });
  await cancel(app, wrongId);
  expect(await readAdler32s()).toEqual([
    { path: '/adler/known', adler32: '00000001' },
    { path: '/adler/right', adler32: adler },
    { path: '/adler/wrong', adler32: null },
  ]);
  const view = '{ tapeFile(path: "/adler/right") { checksum adler32 } }';
  expect(await askData(app, view, {})).toEqual({ tapeFile: { checksum: computed.checksum, adler32: adler } });
});

test('a checksum from the archive stays as it is', async () => {
  const onTape = await register('/first/told');
  await importRows(app.ctx, [buildRow({ ...onTape, checksum: computed.checksum })]);
  await restore('/first/told');
  expect(await viewChecksum('/first/told')).toEqual({ checksum: computed.checksum, checksumOrigin: 'ARCHIVE' });
});

test('other bytes at a later restore are an error of class MEDIA, with both checksums', async () => {
  const file = '/first/damaged';
  const onTape = await register(file);
  await remove(file, await restore(file));
  const others = randomBytes(1000);
  putOnTape(library, { ...onTape, bytes: others });
  const id = await ask(file);
  const error = `the tape copy has checksum ${checksumOf(others)}, but the first restore of the file computed ${computed.checksum}: ${file}`;
  const readTry = async () => {
    const tries = (await readTries(app, id))[file];
    return tries?.lastError != null && tries;
  };
  const tried = await withEngine(app, library, () => waitFor('a failure', readTry));
  expect(tried).toMatchObject({ lastErrorClass: 'MEDIA', lastError: error });
  expect(readRestored(app, file)).toBeUndefined();
  await cancel(app, id);
});

test('an Adler-32 stays as long as the checksum does', async () => {
  const names = ['same', 'left-out', 'moved', 'other', 'emptied'];
  const rows = names.map((name, n) => ({ path: `/adler/import/${name}`, position: BigInt(n + 1), volume: 'ADLER1' }));
  const row = { checksum: computed.checksum, adler32: adler };
  for (const each of rows) await importRows(app.ctx, [buildRow({ ...each, ...row })]);
  const said = [
    { checksum: computed.checksum, spotName: 'other' },
    { checksum: undefined, spotName: 'other' },
    { checksum: computed.checksum, volume: 'ADLER2' },
    another,
    { checksum: null },
  ];
  for (const [n, each] of rows.entries()) await importRows(app.ctx, [buildRow({ ...each, ...said[n] })]);
  const kept = (await readAdler32s()).filter(({ path: file }) => file.startsWith('/adler/import/'));
  expect(Object.fromEntries(kept.map((file) => [path.basename(file.path), file.adler32]))).toEqual({
    same: adler,
    'left-out': adler,
    moved: adler,
    other: null,
    emptied: null,
  });
});

type Said = Partial<CatalogueRow>;
const elsewhere = { volume: 'ELSEWHERE', position: 7n };
const another = { checksum: checksumOf('another'), checksumOrigin: 'ARCHIVE' };
const archived = { ...computed, checksumOrigin: 'ARCHIVE' };

/** Imports of a restored file: the fields of the row, and the stage and checksum of the file afterwards. */
const imports: [what: string, said: Said, stage: 'R' | 'T', expected: object][] = [
  ['without the checksum', { checksum: undefined }, 'R', computed],
  ['with an empty checksum at the same place', { checksum: null }, 'R', computed],
  ['with the size only', { checksum: undefined, volume: undefined, position: undefined }, 'R', computed],
  ['with the same checksum', { checksum: computed.checksum }, 'R', archived],
  ['with the same checksum at another place', { ...elsewhere, checksum: computed.checksum }, 'R', archived],
  ['with another checksum', { checksum: another.checksum }, 'T', another],
  [
    'with a checksum of another algorithm',
    { checksum: 'adler32:0a1b2c3d' },
    'T',
    { checksum: 'adler32:0a1b2c3d', checksumOrigin: 'ARCHIVE' },
  ],
  ['with another place, and without the checksum', { ...elsewhere, checksum: undefined }, 'T', unknown],
  ['with another position alone', { position: 7n, volume: undefined, checksum: undefined }, 'T', unknown],
  ['with another place, and an empty checksum', { ...elsewhere, checksum: null }, 'T', unknown],
];

test('an import keeps the checksum of the first restore unless it says that the file is another one', async () => {
  const files = await Promise.all(imports.map(async ([what]) => register(`/first/import/${what}`)));
  await complete(await ask(...files.map((file) => file.path)));
  for (const [n, [, said]] of imports.entries())
    await importRows(app.ctx, [buildRow({ ...(files[n] as OnTape), ...said })]);
  for (const [what, , stage, expected] of imports) {
    const file = `/first/import/${what}`;
    expect({ what, stage: await readStage(app, file), ...(await viewChecksum(file)) }).toEqual({
      what,
      stage,
      ...expected,
    });
  }
});

test('an import of known values changes nothing', async () => {
  const file = '/first/nightly';
  const onTape = await register(file);
  await restore(file);
  for (const checksum of [null, undefined]) {
    expect(await importRows(app.ctx, [buildRow({ ...onTape, checksum })])).toMatchObject({ added: 0, updated: 0 });
  }
  const moved = await importRows(app.ctx, [buildRow({ ...onTape, spotName: 'moved', checksum: null })]);
  expect(moved).toMatchObject({ updated: 1 });
  expect(await viewChecksum(file)).toEqual(computed);
});

/** A time that exceeds the range of the database's nanosecond columns. */
const LATE = new Date('2446-05-10T22:38:55Z');

test("a user's file with the same bytes counts as the copy, and its checksum is stored", async () => {
  const file = '/first/standing';
  await register(file);
  mkdirSync(place('first'), { recursive: true });
  writeFileSync(place(file), bytes, { mode: 0o644 });
  utimesSync(place(file), LATE, LATE);
  const id = await restore(file);
  expect(await viewRequest(app, id)).toMatchObject({ files: [{ path: file, stage: 'UNVERIFIED', state: 'ON_DISK' }] });
  expect(await viewChecksum(file)).toEqual(computed);
  expect(await query('SELECT adler32 FROM tape_file WHERE path = $1', [file])).toEqual([{ adler32: adler }]);
});

test("a user's file that stood for a copy serves no later request once its bytes have changed", async () => {
  const file = '/stood/changed';
  await register(file);
  await recordDirectories(app.ctx, [{ path: '/stood', mode: 0o755, gid: null }]);
  mkdirSync(place('stood'), { recursive: true });
  writeFileSync(place(file), bytes, { mode: 0o644 });
  const earlier = [await restore(file)];
  const { atime, mtime } = statSync(place(file));
  utimesSync(place(file), atime, mtime); // a new change time, but the same bytes
  earlier.push(await ask(file));
  await complete(...earlier);
  expect(await query('SELECT disk_path FROM tape_file WHERE path = $1', [file])).toEqual([{ disk_path: null }]);
  const others = randomBytes(1000);
  writeFileSync(place(file), others);
  utimesSync(place(file), atime, mtime);
  const id = await ask(file);
  await complete(id);
  const [row] = await query<{ disk_path: string }>('SELECT disk_path FROM tape_file WHERE path = $1', [file]);
  expect(row?.disk_path).toMatch(/^\/\.tapegate-renamed\//);
  expect([readFileSync(place(row?.disk_path ?? '')), readFileSync(place(file))]).toEqual([bytes, others]);
  // the same users may read the copy at its new path
  expect(modesOf('.tapegate-renamed', path.dirname(row?.disk_path ?? ''))).toEqual(['711', '755']);
  for (const each of earlier) await cancel(app, each);
  await remove(row?.disk_path ?? '', id);
  expect(existsSync(place('.tapegate-renamed'))).toBe(false);
});

// tests of mode, owner and times

const look = (file: string) => {
  const { mode, uid, gid, mtimeNs } = lstatSync(place(file), { bigint: true });
  return { mode: (Number(mode) & 0o7777).toString(8), uid: Number(uid), gid: Number(gid), micros: mtimeNs / 1000n };
};

const OWNER = isRoot ? { uid: 12_001, gid: 12_002 } : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };

let trees = 0;
async function archive(mode: number, seconds: number, owner = OWNER): Promise<string> {
  const dir = path.join(app.dataDir, `tree-${++trees}`);
  mkdirSync(dir);
  const file = path.join(dir, 'file');
  writeFileSync(file, 'original');
  chownSync(file, owner.uid, owner.gid);
  chmodSync(file, mode);
  utimesSync(file, seconds, seconds);
  const prefix = `/tree-${trees}/deep`;
  const result = await archiveTree(app.ctx, library, { dir, prefix, volumeSize: 10n ** 9n }, { signal: never });
  expect(result.failed).toEqual([]);
  rmSync(dir, { recursive: true });
  return `${prefix}/file`;
}

test.each([0o022, 0o077])(
  'a restored file has the mode, owner and time of its original, with the umask %o',
  async (mask) => {
    const file = await archive(0o640, 1_234_567_890.123456);
    process.umask(mask);
    const id = await restore(file);
    expect(look(file)).toEqual({ mode: '640', ...OWNER, micros: 1_234_567_890_123_456n });
    expect(statSync(path.dirname(place(file))).mode & 0o7777).toBe(0o755);
    await remove(file, id); // Tapegate recognises the copy by its time
  },
);

const YEARS = ['0001', '1600', '1969', '1970', '2262', '2446', '9999'];

/** Archives one file for each year. @returns the paths, and the times that `mountpoint` can store for their copies */
async function archiveYears(prefix: string, mountpoint: string): Promise<Map<string, bigint>> {
  const dir = path.join(app.dataDir, prefix);
  const probe = path.join(mountpoint, '.probe');
  mkdirSync(dir);
  writeFileSync(probe, '');
  const times = new Map<string, bigint>();
  for (const year of YEARS) {
    const file = path.join(dir, year);
    const time = new Date(`${year}-12-31T23:59:59Z`);
    writeFileSync(file, year);
    utimesSync(file, time, time);
    const { mtime } = statSync(file);
    utimesSync(probe, mtime, mtime); // each file system stores a limited range of times
    times.set(path.join(prefix, year), statSync(probe, { bigint: true }).mtimeNs);
  }
  rmSync(probe);
  const result = await archiveTree(app.ctx, library, { dir, prefix, volumeSize: 10n ** 9n }, { signal: never });
  expect(result.failed).toEqual([]);
  return times;
}

test.each(['memory', 'disk'])(
  'files of any year are restored on a file system in %s, and stay known',
  async (where) => {
    const mountpoint = where === 'memory' ? app.restoreDir : makeDiskDir();
    // files go to the disk with the most room
    if (where === 'disk') await addDisk(app.ctx, { mountpoint, size: 10n ** 12n });
    const times = await archiveYears(`/years-${where}`, mountpoint);
    const files = [...times.keys()];
    const id = await ask(...files);
    await complete(id);
    for (const [file, time] of times) {
      const copy = path.join(mountpoint, file);
      expect([file, readFileSync(copy, 'utf8')]).toEqual([file, path.basename(file)]);
      expect([file, statSync(copy, { bigint: true }).mtimeNs / 1000n]).toEqual([file, time / 1000n]);
    }
    await cancel(app, id);
    await removeUnheld(app.ctx, never);
    expect(files.filter((file) => existsSync(path.join(mountpoint, file)))).toEqual([]);
    if (where === 'disk') await removeDiskAndMarker(app.ctx, mountpoint);
  },
);

const modesOf = (...directories: string[]) =>
  directories.map((directory) => (statSync(place(directory)).mode & 0o7777).toString(8));

test('a restored directory is as closed as its original and the parents of the original', async () => {
  const closed = path.join(app.dataDir, 'closed');
  const dir = path.join(closed, 'tree');
  for (const directory of ['open', 'group', 'own']) mkdirSync(path.join(dir, directory), { recursive: true });
  for (const file of ['top', 'open/f', 'group/f', 'own/f']) writeFileSync(path.join(dir, file), file, { mode: 0o644 });
  for (const [directory, mode] of Object.entries({ open: 0o755, group: 0o750, own: 0o700 })) {
    chownSync(path.join(dir, directory), -1, OWNER.gid);
    chmodSync(path.join(dir, directory), mode);
  }
  chmodSync(dir, 0o755);
  chmodSync(closed, 0o700);
  const input = { dir, volumeSize: 10n ** 9n };
  for (const prefix of ['/closed/tree', '/'])
    await archiveTree(app.ctx, library, { ...input, prefix }, { signal: never });
  chmodSync(closed, 0o755);
  await archiveTree(app.ctx, library, { ...input, prefix: '/public' }, { signal: never });
  const files = ['open/f', 'group/f', 'own/f'].flatMap((file) => [
    `/closed/tree/${file}`,
    `/${file}`,
    `/public/${file}`,
  ]);
  await complete(await ask(...files, '/top', '/public/top'));
  expect(modesOf('closed', 'closed/tree', 'closed/tree/open', 'closed/tree/group', 'closed/tree/own')).toEqual(
    ['700', '700', '755', '750', '700'], // closed/tree protects the directories below it
  );
  expect(modesOf('open', 'group', 'own', 'top')).toEqual(['700', '700', '700', '600']);
  expect(modesOf('public', 'public/open', 'public/group', 'public/own', 'public/top')).toEqual([
    '755',
    '755',
    '750',
    '700',
    '644',
  ]);
  expect(statSync(place('public/group')).gid).toBe(OWNER.gid);
});

test('directories have the modes that an import says, and are closed to others where none is known', async () => {
  await register('/modes/said/f');
  await register('/modes/unknown/f');
  const list = '{"path":"/modes/said/","mode":"0705","gid":"0"}\n{"path":"/modes/said/","mode":"2775"}\n';
  expect(await importRows(app.ctx, readRows(Readable.from([Buffer.from(list)])))).toMatchObject({
    added: 0,
    directories: 1,
  });
  await complete(await ask('/modes/said/f', '/modes/unknown/f'));
  // no other user may write in these directories
  expect(modesOf('modes', 'modes/said', 'modes/unknown')).toEqual(['750', '755', '750']);
});

test('a directory of two archived trees permits only what both permit', async () => {
  const record = (mode: number, gid: bigint) => recordDirectories(app.ctx, [{ path: '/both', mode, gid }]);
  await record(0o775, 1n);
  await record(0o755, 2n);
  expect(await readDirectoryModes(app.ctx, ['/both'])).toEqual(new Map([['/both', { mode: 0o755, gid: 1n }]]));
  await record(0o750, 2n);
  expect(await readDirectoryModes(app.ctx, ['/both'])).toEqual(new Map([['/both', { mode: 0o700, gid: 1n }]]));
});

test('a directory that exists keeps its mode, and its empty directories leave with the copies', async () => {
  await register('/kept/sub/f');
  mkdirSync(place('kept'), { mode: 0o700 });
  const id = await restore('/kept/sub/f');
  expect(modesOf('kept', 'kept/sub')).toEqual(['700', '750']);
  await remove('/kept/sub/f', id);
  expect([existsSync(place('kept')), existsSync(place('kept/sub'))]).toEqual([true, false]);
  await restore('/kept/sub/f', { restoreMode: 0o644 });
  expect(modesOf('kept/sub')).toEqual(['755']);
});

test('a directory on disk is closed with its original, and one made before its mode was known leaves with its copies', async () => {
  for (const file of ['/proj/f', '/proj/g', '/late/f']) await register(file);
  await recordDirectories(app.ctx, [{ path: '/proj', mode: 0o755, gid: null }]);
  await restore('/proj/f');
  const id = await restore('/late/f');
  expect(modesOf('proj', 'late')).toEqual(['755', '750']);
  for (const [dir, mode] of Object.entries({ '/proj': 0o700, '/late': 0o755 }))
    await recordDirectories(app.ctx, [{ path: dir, mode, gid: null }]);
  await restore('/proj/g');
  expect(modesOf('proj', 'late')).toEqual(['700', '750']);
  await remove('/late/f', id);
  expect(existsSync(place('late'))).toBe(false);
});

test('the configuration overrides mode and group of the original, and no file gets a set-id bit', async () => {
  // a change of the owner removes set-id bits, so the same owner is tested too
  const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  for (const owner of [OWNER, self]) {
    const first = await archive(0o6755, 1_000_000_000, owner);
    await restore(first);
    expect(look(first)).toMatchObject({ mode: '755', ...owner });
  }
  const second = await archive(0o600, 1_000_000_000);
  const group = isRoot ? 12_003 : OWNER.gid;
  await restore(second, { restoreMode: 0o660, restoreGroup: group });
  expect(look(second)).toEqual({ mode: '660', uid: OWNER.uid, gid: group, micros: 1_000_000_000_000_000n });
});

test('a file without attributes in the catalogue is readable for everyone, whatever the umask', async () => {
  await tape('/plain/file');
  process.umask(0o077);
  await restore('/plain/file');
  expect(look('/plain/file').mode).toBe('644');
});

const importText = (text: string) => importRows(app.ctx, readRows(Readable.from([Buffer.from(text)])));

const readAttributes = async (file: string) =>
  (await query('SELECT mode, mtime, uid, gid FROM tape_file WHERE path = $1', [file]))[0];

test('an import sets mode, time, owner and group: missing columns change nothing, and empty values remove them', async () => {
  await importText('path,size,mode,mtime,uid,gid\n/i/a,1,0640,2020-01-02T03:04:05.678901,1001,4294967294\n');
  const known = { mode: 0o640, mtime: '2020-01-02T03:04:05.678901', uid: 1001n, gid: 4_294_967_294n };
  expect(await readAttributes('/i/a')).toEqual(known);
  expect(await importText('path,size\n/i/a,1\n')).toMatchObject({ added: 0, updated: 0 });
  expect(await readAttributes('/i/a')).toEqual(known);
  expect(await importText('{"path":"/i/a","size":1,"mode":"4755","mtime":"-1.5"}\n')).toMatchObject({
    added: 0,
    updated: 1,
  });
  expect(await readAttributes('/i/a')).toEqual({ ...known, mode: 0o4755, mtime: '1969-12-31T23:59:58.500000' });
  await importText('path,size,mode,mtime,uid,gid\n/i/a,1,,1700000000.1234567890,,\n');
  expect(await readAttributes('/i/a')).toEqual({
    mode: null,
    mtime: '2023-11-14T22:13:20.123456',
    uid: null,
    gid: null,
  });
});

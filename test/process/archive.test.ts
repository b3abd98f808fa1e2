/**
 * `archive` writes the files of a directory tree to tape, verifies and registers the copies, and removes the files with
 * --move.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { observeTransactions } from '../../src/db/transaction.js';
import { type ArchiveProgress, archiveTree } from '../../src/engine/archive/archive.js';
import { startEngine } from '../../src/engine/runner.js';
import { startChecksum } from '../../src/restore-area/checksum.js';
import { ownershipOf } from '../../src/restore-area/ownership.js';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import type { WritableLibrary } from '../../src/tape/drive-library.js';
import { useArchive } from '../support/archive.js';
import { readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { resume, suspend } from '../support/suspend.js';
import { dumpTables } from '../support/tables.js';
import { asUnprivilegedUser } from '../support/unprivileged-user.js';
import { adler32 } from '../support/wlcg-storage.js';

/** The archived directory. */
let dir: string;
let library: string;
const { app, archive, writeTree } = useArchive((directories) => {
  ({ dir, library } = directories);
});

const never = new AbortController().signal;

const isLeft = (name: string) => fs.existsSync(path.join(dir, name));

/** Returns name, type, size, modification time and link target of each entry below the archived directory. */
const photograph = () =>
  execFileSync('find', [dir, '-printf', '%P\\t%y\\t%s\\t%T@\\t%l\\0'], { encoding: 'utf8' }).split('\0').sort();

async function readCatalogue() {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.size, f.stage, f.checksum, f.adler32, f.spot_name AS spot, v.name AS volume, f.position,
       f.verified IS NOT NULL AS "isVerified" FROM tape_file f JOIN volume v ON v.id = f.volume_id ORDER BY f.path`,
  );
  return rows;
}

const done = { archived: 0, bytes: 0n, unchanged: 0, skipped: 0, failed: [] };

test('the regular files of a tree are written to tape and registered, and the source is unchanged', async () => {
  const big = randomBytes(3_000_000);
  writeTree({ 'b/2.nc': 'two', 'a.nc': big, 'b/1.nc': 'one', 'b/inner/żółw\nx': 'odd', 'c/empty': '' });
  fs.mkdirSync(path.join(dir, 'no-files'));
  fs.symlinkSync('a.nc', path.join(dir, 'link-to-file'));
  fs.symlinkSync('b', path.join(dir, 'link-to-directory'));
  fs.symlinkSync('/nowhere', path.join(dir, 'b', 'link-to-nothing'));
  execFileSync('mkfifo', [path.join(dir, 'pipe')]);
  const before = photograph();
  const result = await archive(createDirectoryLibrary(library), { prefix: '/badc//ocean/', spot: 'spot-7' });
  expect(result).toEqual({ ...done, archived: 5, bytes: 3_000_009n, skipped: 4 });
  expect(photograph()).toEqual(before);

  const files: [string, Uint8Array | string][] = [
    ['/badc/ocean/a.nc', big],
    ['/badc/ocean/b/1.nc', 'one'],
    ['/badc/ocean/b/2.nc', 'two'],
    ['/badc/ocean/b/inner/żółw\nx', 'odd'],
    ['/badc/ocean/c/empty', ''],
  ];
  const expected = files.map(([file, bytes], index) => ({
    path: file,
    size: BigInt(Buffer.byteLength(bytes)),
    stage: 'ONTAPE',
    checksum: checksumOf(bytes),
    adler32: adler32(Buffer.from(bytes)).toString('hex'),
    spot: 'spot-7',
    volume: 'TG0001',
    position: BigInt(index + 1),
    isVerified: true,
  }));
  expect(await readCatalogue()).toEqual(expected);
  for (const [index, [, bytes]] of files.entries()) {
    const written = fs.readFileSync(path.join(library, 'TG0001', `0000000${index + 1}`));
    expect(written.equals(Buffer.from(bytes))).toBe(true);
  }
  expect(await readMoves(app, '/')).toEqual(
    ['UD', 'DT'].flatMap((move) => files.map(([file]) => ({ path: file, move }))),
  );
});

test('a volume takes the files that fit, and a file larger than a volume gets its own', async () => {
  const sizes = [600, 400, 0, 1, 5000, 10, 990, 1];
  writeTree(Object.fromEntries(sizes.map((size, index) => [`f${index}`, randomBytes(size)])));
  await archive(createDirectoryLibrary(library), { volumeSize: 1000n });
  const places = (await readCatalogue()).map(({ volume, position }) => `${volume}:${position}`);
  expect(places).toEqual('TG0001:1 TG0001:2 TG0001:3 TG0002:1 TG0003:1 TG0004:1 TG0004:2 TG0005:1'.split(' '));
  expect(fs.readFileSync(path.join(library, 'TG0003', '00000001'))).toHaveLength(5000);
});

test('a second run compares the files, and writes and changes nothing', async () => {
  writeTree({ 'a/1': 'one', 'a/2': 'two', b: 'three' });
  const library = createMemoryLibrary();
  const progress: string[] = [];
  const onProgress = ({ files, bytes }: ArchiveProgress) => void progress.push(`${files}: ${bytes}`);
  const run = () => archiveTree(app.ctx, library, { dir, volumeSize: 10n ** 9n }, { signal: never, onProgress });
  await run();
  const before = await dumpTables(app.ctx);
  const positions = [...(library.volumes.get('TG0001') ?? []).keys()];
  expect(await run()).toEqual({ ...done, unchanged: 3 });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect([...(library.volumes.get('TG0001') ?? []).keys()]).toEqual(positions);
  expect(progress).toEqual(['1: 5', '2: 8', '3: 11', '1: 5', '2: 8', '3: 11']);
});

test('a file that is on tape with other bytes is refused, and the tape copy stays', async () => {
  writeTree({ same: 'same', other: 'first' });
  const library = createMemoryLibrary();
  await archive(library);
  const before = await dumpTables(app.ctx);
  writeTree({ other: 'later' });
  const result = await archive(library, { move: true });
  expect(result).toEqual({
    ...done,
    unchanged: 1,
    failed: [`${dir}/other: /other is already on tape with different bytes`],
  });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(isLeft('same')).toBe(false);
  expect(fs.readFileSync(path.join(dir, 'other'), 'utf8')).toBe('later');
});

test('a file whose tape copy has no checksum is refused, and its source stays', async () => {
  writeTree({ unknown: 'abc' });
  await addFiles(app.ctx, [{ path: '/unknown', size: 3n, checksum: null }]);
  const failed = [`${dir}/unknown: /unknown is already on tape, but the catalogue has no checksum to compare`];
  expect(await archive(createMemoryLibrary(), { move: true })).toEqual({ ...done, failed });
  expect(isLeft('unknown')).toBe(true);
});

test('a source is not removed because the catalogue says that it is on tape: it is written, or kept if its tape copy cannot be read', async () => {
  writeTree({ 'no-place': 'one', 'no-volume': 'two', 'no-position': 'three', damaged: 'four', good: 'five' });
  const library = createMemoryLibrary();
  library.volumes.set(
    'V00001',
    new Map([
      [1n, Buffer.from('FOUR')],
      [2n, Buffer.from('five')],
    ]),
  );
  const row = (name: string, bytes: string) => ({
    path: `/${name}`,
    size: BigInt(bytes.length),
    checksum: checksumOf(bytes),
  });
  await addFiles(app.ctx, [
    { ...row('no-place', 'one'), volume: null, position: null },
    { ...row('no-volume', 'two'), volume: 'GONE01', position: 7n },
    { ...row('no-position', 'three'), position: null },
    { ...row('damaged', 'four'), position: 1n },
    { ...row('good', 'five'), position: 2n },
  ]);
  const result = await archive(library, { move: true });
  expect(result).toEqual({
    ...done,
    archived: 2,
    bytes: 8n,
    unchanged: 1,
    failed: [
      `${dir}/damaged: on tape according to the catalogue, but its tape copy cannot be confirmed: the checksum read back from tape differs`,
      `${dir}/no-volume: on tape according to the catalogue, but its tape copy cannot be confirmed: the library has no volume GONE01`,
    ],
  });
  const left = ['no-place', 'no-volume', 'no-position', 'damaged', 'good'].filter(isLeft);
  expect(left).toEqual(['no-volume', 'damaged']);
  expect(
    (await readCatalogue()).map(({ path: file, stage, volume, position }) => [file, stage, volume, position]),
  ).toEqual([
    ['/damaged', 'ONTAPE', 'V00001', 1n],
    ['/good', 'ONTAPE', 'V00001', 2n],
    ['/no-place', 'ONTAPE', 'TG0001', 1n],
    ['/no-position', 'ONTAPE', 'TG0001', 2n],
    ['/no-volume', 'ONTAPE', 'GONE01', 7n],
  ]);
  expect(library.volumes.get('TG0001')?.get(1n)?.toString()).toBe('one');
});

test('a tape copy is compared byte by byte if the catalogue has a weak checksum', async () => {
  const other = Buffer.from([0, 2, 0, 0, 0]);
  const bytes = Buffer.from([1, 0, 1, 0, 0]);
  const library = createMemoryLibrary();
  library.volumes.set('V00001', new Map([[1n, other]]));
  writeTree({ weak: bytes });
  const sum = await startChecksum('adler32:00000000');
  sum.update(bytes);
  await addFiles(app.ctx, [{ path: '/weak', size: 5n, checksum: sum.digest() }]);
  expect((await archive(library, { move: true })).failed).toHaveLength(1);
  expect(isLeft('weak')).toBe(true);
});

test('--move removes only files that are confirmed on tape', async () => {
  writeTree({ 'a/good': 'good', 'a/bad': 'bad', 'b/good': 'also good' });
  fs.symlinkSync('good', path.join(dir, 'a', 'link'));
  const library = createMemoryLibrary();
  library.onRead = async (_volume, _position, bytes) => (bytes.toString() === 'bad' ? Buffer.from('BAD') : bytes);
  const result = await archive(library, { move: true });
  expect(result).toEqual({
    ...done,
    archived: 2,
    bytes: 13n,
    skipped: 1,
    failed: [`${dir}/a/bad: the checksum read back from tape differs`],
  });
  const left = photograph().map((line) => line.split('\t')[0]);
  expect(left).toEqual(['', '', 'a', 'a/bad', 'a/link', 'b']);
  expect([await readStage(app, '/a/good'), await readStage(app, '/a/bad')]).toEqual(['T', 'U']);

  Object.assign(library, { onRead: createMemoryLibrary().onRead });
  expect(await archive(library, { move: true })).toEqual({ ...done, archived: 1, bytes: 3n, skipped: 1 });
  expect(await readStage(app, '/a/bad')).toBe('T');
  expect(isLeft('a/bad')).toBe(false);
});

test('a takeover in the middle of a batch stops it: nothing more is registered, and no source is removed', async () => {
  writeTree({ one: 'one', two: 'two' });
  const setFence = async (reason: string | null) => {
    await app.ctx.db.pool.query('UPDATE site_identity SET fenced = $1', [reason]);
    await ownershipOf(app.ctx).check();
  };
  const library = createMemoryLibrary();
  library.onRead = async () => await setFence('it was taken over');
  try {
    await expect(archive(library, { move: true })).rejects.toThrow('it was taken over');
  } finally {
    await setFence(null);
  }
  expect((await readCatalogue()).map(({ stage }) => stage)).toEqual(['UNVERIFIED', 'UNVERIFIED']);
  expect([isLeft('one'), isLeft('two')]).toEqual([true, true]);
});

test.each<[string, (file: string) => void, RegExp]>([
  [
    'grows',
    (file) => fs.appendFileSync(file, 'more'),
    /the file changed from 2000000 to 2000004 bytes while it was being read$/,
  ],
  [
    'is written over',
    (file) => fs.writeFileSync(file, randomBytes(2_000_000)),
    /the file changed while it was being read$/,
  ],
  [
    'is cut short',
    (file) => fs.writeFileSync(file, ''),
    /the file changed from 2000000 to \d+ bytes while it was being read$/,
  ],
])('a file that %s while it is read is not registered, and the rest is', async (_what, change, reason) => {
  writeTree({ '1-changing': randomBytes(2_000_000), '2-still': 'still' });
  const file = path.join(dir, '1-changing');
  // an old time, so that a change is visible even if the disk has coarse timestamps
  fs.utimesSync(file, 1_000_000, 1_000_000);
  const memory = createMemoryLibrary();
  const changing = async function* (bytes: AsyncIterable<Uint8Array>) {
    let isFirst = true;
    for await (const chunk of bytes) {
      if (isFirst && fs.existsSync(file) && chunk.length > 100) change(file);
      isFirst = false;
      yield chunk;
    }
  };
  const library: WritableLibrary = {
    mount: memory.mount,
    write: (volume, position, bytes, signal) => memory.write(volume, position, changing(bytes), signal),
  };
  const result = await archive(library, { move: true });
  expect(result).toEqual({ ...done, archived: 1, bytes: 5n, failed: [expect.stringMatching(reason)] });
  expect((await readCatalogue()).map((row) => row.path)).toEqual(['/2-still']);
  expect(fs.existsSync(file)).toBe(true);
});

test('a source that changes after it was read is registered as it was read, and stays', async () => {
  writeTree({ log: 'first line\n' });
  fs.utimesSync(path.join(dir, 'log'), 1_000_000, 1_000_000);
  const library = createMemoryLibrary();
  library.onRead = async () => {
    fs.appendFileSync(path.join(dir, 'log'), 'second line\n');
  };
  const result = await archive(library, { move: true });
  expect(result).toEqual({
    ...done,
    archived: 1,
    bytes: 11n,
    failed: [`${dir}/log: the file changed after it was read`],
  });
  expect(fs.readFileSync(path.join(dir, 'log'), 'utf8')).toBe('first line\nsecond line\n');
});

test.each([
  ['writing', 'write'],
  ['reading back', 'mount'],
] as const)(
  'a run that is stopped while %s is continued by the next run, and its files can be restored',
  async (_what, step) => {
    const contents = new Map(['a', 'b', 'c', 'd', 'e'].map((name) => [`/again/${step}/${name}`, randomBytes(100_000)]));
    writeTree(Object.fromEntries(contents));
    const directory = createDirectoryLibrary(library);
    const abort = new AbortController();
    let calls = 0;
    const count = (what: string) => {
      if (what === step && ++calls === 3) abort.abort(new Error('stopped here'));
    };
    const stopping: WritableLibrary = {
      ...directory,
      mount: (volume, drive, signal) => {
        count('mount');
        return directory.mount(volume, drive, signal);
      },
      write: (volume, position, bytes, signal) => {
        count('write');
        return directory.write(volume, position, bytes, signal);
      },
    };
    const input = { volumeSize: 250_000n };
    await expect(archive(stopping, input, abort.signal)).rejects.toThrow('stopped here');
    expect((await archive(stopping, input)).archived).toBe(5);
    expect(await archive(stopping, input)).toEqual({ ...done, unchanged: 5 });
    expect((await readCatalogue()).map(({ stage, checksum }) => [stage, checksum])).toEqual(
      [...contents.values()].map((bytes) => ['ONTAPE', checksumOf(bytes)]),
    );

    await addQuota(app.ctx, 'alice', 10n ** 9n);
    const engine = await startEngine(app.ctx, directory, { drainMs: 100 });
    try {
      const id = await makeRequest(app, { quota: 'alice', patterns: `/again/${step}/` });
      await waitForState(app, id, 'COMPLETED');
      for (const [file, bytes] of contents) expect(readRestored(app, file)?.equals(bytes)).toBe(true);
    } finally {
      await engine.stop();
    }
  },
);

test('a name that is not UTF-8 is reported with its bytes, and skipped entries with their type', async () => {
  writeTree({ 'a/good': 'good', 'z/good': 'also' });
  const latin = Buffer.concat([Buffer.from(`${dir}/a/caf`), Buffer.from([0xe9])]);
  fs.writeFileSync(latin, 'bytes');
  fs.mkdirSync(Buffer.concat([Buffer.from(`${dir}/`), Buffer.from([0xff, 0x0a])]));
  fs.symlinkSync('good', path.join(dir, 'a/link'));
  execFileSync('mkfifo', [path.join(dir, 'z/pipe')]);
  const skipped: string[] = [];
  const onSkip = (file: string, kind: string) => void skipped.push(`${path.relative(dir, file)} is ${kind}`);
  const input = { dir, volumeSize: 10n ** 9n, move: true };
  const result = await archiveTree(app.ctx, createMemoryLibrary(), input, { signal: never, onSkip });
  expect({ ...result, failed: result.failed.sort() }).toEqual({
    ...done,
    archived: 2,
    bytes: 8n,
    skipped: 2,
    failed: [`${dir}/\\xff\\x0a: its name is not UTF-8`, `${dir}/a/caf\\xe9: its name is not UTF-8`],
  });
  expect(skipped).toEqual(['a/link is a link', 'z/pipe is a pipe']);
  expect(fs.existsSync(latin)).toBe(true);
});

test('files of a volume are synced together before they are registered, and not registered if that fails', async () => {
  writeTree({ a: 'aa', b: 'bb', c: 'cc', d: 'dd' });
  const memory = createMemoryLibrary();
  const log: string[] = [];
  const library: WritableLibrary = {
    mount: memory.mount,
    write: async (volume, position, bytes, signal) => {
      log.push(`write ${volume}`);
      return await memory.write(volume, position, bytes, signal);
    },
    sync: async (volume) => {
      log.push(`sync ${volume}`);
      expect(await readCatalogue()).toEqual([]);
      if (volume === 'TG0002') throw new TapeError('MEDIA', 'it cannot be synced');
    },
  };
  const result = await archive(library, { volumeSize: 4n, move: true });
  const writes = ['TG0001', 'TG0001', 'TG0002', 'TG0002'].map((volume) => `write ${volume}`);
  expect(log).toEqual([...writes, 'sync TG0001', 'sync TG0002']);
  expect(result).toEqual({
    ...done,
    archived: 2,
    bytes: 4n,
    failed: [`${dir}/c: it cannot be synced`, `${dir}/d: it cannot be synced`],
  });
  expect((await readCatalogue()).map((row) => row.path)).toEqual(['/a', '/b']);
  expect(['a', 'b', 'c', 'd'].filter(isLeft)).toEqual(['c', 'd']);
});

test('files that cannot be archived are reported, and the others are archived', async () => {
  const long = `${'x'.repeat(250)}/`.repeat(4);
  writeTree({ 'a/ok': 'ok', 'closed/x': 'x', [`${long}too-long`]: 'y', 'z/ok': 'ok' });
  fs.chmodSync(path.join(dir, 'closed'), 0o000);
  fs.writeFileSync(path.join(dir, 'secret'), 'secret', { mode: 0o000 });
  const prefix = `/${'p'.repeat(200)}`.repeat(6);
  const result = await asUnprivilegedUser(() => archive(createMemoryLibrary(), { prefix }));
  fs.chmodSync(path.join(dir, 'closed'), 0o755);
  expect(result).toEqual({
    ...done,
    archived: 2,
    bytes: 4n,
    failed: [
      expect.stringMatching(/\/closed: EACCES/),
      expect.stringMatching(/too-long: its path is longer than 2048 bytes/),
      expect.stringMatching(/\/secret: EACCES/),
    ],
  });
});

test('no file is written to a suspended volume: a new volume is begun', async () => {
  const library = createMemoryLibrary();
  writeTree({ one: '1' });
  await archive(library);
  for (const mode of ['IMMEDIATE', 'DRAINING'] as const) {
    const [newest = ''] = [...library.volumes.keys()].sort().reverse();
    await suspend(app, { kind: 'VOLUME', name: newest, mode });
    writeTree({ [`${mode}/1`]: 'a', [`${mode}/2`]: 'b' });
    await archive(library);
    await resume(app, 'VOLUME', newest);
  }
  expect((await readCatalogue()).map(({ path: name, volume, position }) => [name, volume, position])).toEqual([
    ['/DRAINING/1', 'TG0003', 1n],
    ['/DRAINING/2', 'TG0003', 2n],
    ['/IMMEDIATE/1', 'TG0002', 1n],
    ['/IMMEDIATE/2', 'TG0002', 2n],
    ['/one', 'TG0001', 1n],
  ]);
});

test('a file whose path is imported while it is written is refused, and the next run continues', async () => {
  writeTree({ 'a/plain': 'plain bytes', 'b/directory': 'directory bytes', 'c/taken': 'taken bytes' });
  const library = createMemoryLibrary();
  let writes = 0;
  const raced: WritableLibrary = {
    ...library,
    write: async (...args) => {
      const size = await library.write(...args);
      if (++writes === 3) {
        await addFiles(app.ctx, [
          { path: '/b/directory/below', volume: 'OTHER', position: 1n },
          { path: '/c/taken', volume: 'OTHER', position: 2n, size: 11n, checksum: checksumOf('other bytes') },
        ]);
      }
      return size;
    },
  };
  const first = await archive(raced, { move: true });
  expect(first).toMatchObject({ archived: 1, bytes: 11n, unchanged: 0 });
  const unused = (n: number) => ` (bytes at TG0001, position ${n} are unreferenced)`;
  expect(first.failed).toEqual([
    `${dir}/b/directory: while the file was being written to tape, "/b/directory" cannot be a file and also the directory of "/b/directory/below": rename one of them, then run the command again${unused(2)}`,
    `${dir}/c/taken: while the file was being written to tape, /c/taken was added to the catalogue as a tape file; run the command again to compare the file with the tape copy${unused(3)}`,
  ]);
  expect(await readCatalogue()).toMatchObject([
    { path: '/a/plain', stage: 'ONTAPE', volume: 'TG0001', position: 1n },
    { path: '/b/directory/below', volume: 'OTHER' },
    { path: '/c/taken', volume: 'OTHER', position: 2n, checksum: checksumOf('other bytes') },
  ]);
  expect(['a/plain', 'b/directory', 'c/taken'].map(isLeft)).toEqual([false, true, true]);
  const second = await archive(library, { move: true });
  expect(second.failed).toEqual([
    expect.stringContaining('cannot be a file and also the directory of'),
    expect.stringContaining('already on tape with different bytes'),
  ]);
  expect([second.archived, writes]).toEqual([0, 3]);
  fs.writeFileSync(`${dir}/b/renamed`, fs.readFileSync(`${dir}/b/directory`));
  fs.rmSync(`${dir}/b/directory`);
  expect(await archive(library)).toMatchObject({ archived: 1, bytes: 15n });
  expect((await readCatalogue()).find((row) => row.path === '/b/renamed')).toMatchObject({
    stage: 'ONTAPE',
    position: 4n,
  });
});

test('an import that commits just before a written file is registered is noticed', async () => {
  writeTree({ 'd/late': 'late bytes', 'd/other': 'other' });
  const end = observeTransactions({
    onBegin: ({ name }) => {
      if (name === 'importRows') begun.push(name);
    },
    onStatement: async ({ name }, statement) => {
      // another import commits just before this import checks for directories
      if (name !== 'importRows' || begun.length !== 1 || !/INSERT INTO tape_file/.test(statement.text)) return;
      begun.push('other');
      await app.ctx.db.pool.query(`INSERT INTO tape_file (path, size, stage) VALUES ('/d/late/below', 1, 'ONTAPE')`);
    },
  });
  const begun: string[] = [];
  try {
    const result = await archive(createMemoryLibrary());
    expect(result).toMatchObject({
      archived: 1,
      failed: [expect.stringContaining('"/d/late" cannot be a file and also the directory of')],
    });
  } finally {
    end();
  }
});

test('a link that replaces a directory is not followed, neither to read nor to remove files', async () => {
  const outside = path.join(app.dataDir, 'outside');
  fs.mkdirSync(outside);
  writeTree({ 'a/kept': 'kept', 'b/read': 'read' });
  // hard links: both paths lead to one file, so only the directory differs
  fs.linkSync(path.join(dir, 'a/kept'), path.join(outside, 'kept'));
  fs.linkSync(path.join(dir, 'b/read'), path.join(outside, 'read'));
  const swap = (name: string) => {
    fs.renameSync(path.join(dir, name), path.join(dir, `${name}-away`));
    fs.symlinkSync(outside, path.join(dir, name));
  };
  const library = createMemoryLibrary();
  const written = library.write.bind(library);
  library.write = async (...args) => {
    const size = await written(...args);
    if (isLeft('b/read') && !isLeft('b-away')) for (const name of ['a', 'b']) swap(name);
    return size;
  };
  const { archived, failed } = await archive(library, { move: true });
  const told = (name: string) =>
    expect.stringContaining(`the directory ${path.join(dir, name)} leads through a link to `);
  expect({ archived, failed }).toEqual({ archived: 1, failed: [told('b'), told('a')] });
  expect(fs.readdirSync(outside).sort()).toEqual(['kept', 'read']);
});

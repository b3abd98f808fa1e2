/**
 * `archive` to a library that is missing, unmounted, exchanged or writable by other users: it registers no file and
 * keeps the sources.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import type { WritableLibrary } from '../../src/tape/drive-library.js';
import { useArchive } from '../support/archive.js';
import { cleanUp, runCli } from '../support/process.js';

let dataDir: string;
/** The archived directory. */
let dir: string;
let library: string;
const { app, archive, writeTree } = useArchive((directories) => {
  ({ dataDir, dir, library } = directories);
});
afterAll(cleanUp);

const names = ['a', 'b', 'c', 'd'];
const fillTree = () => writeTree(Object.fromEntries(names.map((name) => [name, name.repeat(10)])));

/** Fills the archived directory and runs `archive --move`. */
const moveTree = (prefix: string, ...options: string[]) => {
  fillTree();
  return runCli(['archive', dir, '--prefix', prefix, '--move', ...options], {
    env: { DATABASE_URL: app.databaseUrl, DATA_DIR: dataDir },
  });
};

async function countRows(): Promise<{ files: number; volumes: number }> {
  const [files, volumes] = [await app.ctx.db.prisma.tapeFile.count(), await app.ctx.db.prisma.volume.count()];
  return { files, volumes };
}

test.each([
  ['is not there', () => {}, 'does not exist: ENOENT', () => existsSync(library)],
  [
    'is an empty directory, as where nothing is mounted',
    () => mkdirSync(library),
    'contains no volumes: its file system might not be mounted',
    () => readdirSync(library).length > 0,
  ],
])(
  'archive --move to a library that %s is refused, and writes and removes nothing',
  async (_what, take, reason, isMade) => {
    expect(await moveTree('/first')).toMatchObject({ code: 0 }); // the first run creates the library
    expect(readdirSync(dir)).toEqual([]);
    const before = await countRows();
    renameSync(library, `${library}-out`);
    take();
    const { code, stdout, stderr } = await moveTree('/second');
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`tapegate: the library ${library} ${reason}`);
    expect(stderr).toContain(
      'nothing was archived because the catalogue already contains volumes: mount the library, or give --new-library to create another library\n',
    );
    expect([readdirSync(dir), isMade(), await countRows()]).toEqual([names, false, before]);

    rmSync(library, { recursive: true, force: true });
    renameSync(`${library}-out`, library);
    expect(await moveTree('/second')).toMatchObject({ code: 0 });
    expect([readdirSync(dir), (await countRows()).files]).toEqual([[], 8]);
  },
);

test('archive --new-library makes a library even if the catalogue knows volumes', async () => {
  await moveTree('/first');
  rmSync(library, { recursive: true });
  expect(await moveTree('/second', '--new-library')).toMatchObject({ code: 0 });
  expect(readdirSync(path.join(library, 'TG0001'))).toHaveLength(4);
});

test.each([
  ['positions', 'UPDATE volume SET used = 0, next_position = 2'],
  ['volumes', 'DELETE FROM volume'],
])('after a backup is restored that lacks %s of the library, archive begins a new volume', async (_what, lose) => {
  writeTree({ a: 'a', b: 'b' });
  await archive(createDirectoryLibrary(library));
  await app.ctx.db.pool.query('DELETE FROM tape_file');
  await app.ctx.db.pool.query(lose);
  writeTree({ a: 'A', b: 'B' });
  for (let run = 0; run < 2; run++) {
    expect(await archive(createDirectoryLibrary(library))).toMatchObject({ failed: [] });
    expect(readdirSync(library).filter((name) => name.startsWith('TG'))).toEqual(['TG0001', 'TG0002']);
  }
  const written = ['TG0001', 'TG0002'].map((volume) =>
    ['00000001', '00000002'].map((name) => readFileSync(path.join(library, volume, name), 'utf8')),
  );
  expect(written).toEqual([
    ['a', 'b'],
    ['A', 'B'],
  ]);
});

test('a first run that fails before it has written anything does not prevent the next one', async () => {
  fillTree();
  const directory = createDirectoryLibrary(library);
  const broken: WritableLibrary = { ...directory, write: () => Promise.reject(new Error('no byte')) };
  expect((await archive(broken, { move: true })).failed).toHaveLength(4);
  expect(await countRows()).toEqual({ files: 0, volumes: 1 });
  expect(await moveTree('/again')).toMatchObject({ code: 0 });
});

test.each([
  ['gone', () => {}, 'does not exist: ENOENT'],
  ['unmounted', () => mkdirSync(library), 'is not the same directory as before: its file system might not be mounted'],
  [
    'covered by another one',
    () => mkdirSync(path.join(library, 'TG0001'), { recursive: true }),
    'is not the same directory as before',
  ],
])(
  'files that are archived while the library is %s are not registered, and their sources stay',
  async (_what, take, reason) => {
    fillTree();
    const directory = createDirectoryLibrary(library);
    let writes = 0;
    const failing: WritableLibrary = {
      ...directory,
      write: (...args) => {
        if (++writes === 3) {
          renameSync(library, `${library}-out`);
          take();
        }
        return directory.write(...args);
      },
    };
    const { archived, failed } = await archive(failing, { move: true });
    expect([archived, failed.length, readdirSync(dir), (await countRows()).files]).toEqual([0, 4, names, 0]);
    expect(failed.filter((line) => line.includes(reason)).length).toBeGreaterThanOrEqual(2);
    if (existsSync(library))
      expect(readdirSync(library, { recursive: true }).filter((name) => /\d{8}/.test(String(name)))).toEqual([]);
  },
);

test('a library or volume that all users may write to is refused, and new ones are closed to other users', async () => {
  const umask = process.umask(0);
  const made = await moveTree('/first');
  process.umask(umask);
  expect(made).toMatchObject({ code: 0 });
  const [volume = ''] = readdirSync(library).filter((name) => !name.startsWith('.'));
  const directories = [library, path.join(library, volume)];
  expect(directories.map((directory) => statSync(directory).mode & 0o022)).toEqual([0, 0]);
  for (const directory of directories) {
    chmodSync(directory, 0o777);
    const { code, stderr } = await moveTree('/second');
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`every user may write to ${directory} (mode 0777)`),
    });
    expect(readdirSync(dir)).toEqual(names);
    chmodSync(directory, 0o755);
  }
});

test('a sync fails if a pipe has replaced a written file, and does not block', async () => {
  const directory = createDirectoryLibrary(library);
  await directory.openLibrary?.(true);
  const signal = AbortSignal.timeout(20_000);
  await directory.write('V1', 1n, Readable.from([Buffer.from('bytes')]), signal);
  rmSync(path.join(library, 'V1/00000001'));
  execFileSync('mkfifo', [path.join(library, 'V1/00000001')]);
  await expect(directory.sync?.('V1', signal)).rejects.toThrow('is not a regular file');
});

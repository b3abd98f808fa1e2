/** A library that is not there, or not mounted, is never made in its place: what was moved there would be gone once it is. */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { archiveTree } from '../../src/engine/archive.js';
import type { WritableBackend } from '../../src/tape/backend.js';
import { createDirectoryBackend } from '../../src/tape/directory.js';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, runCli } from '../support/process.js';
import { emptyTables } from '../support/tables.js';
import { makeTempDir } from '../support/temp-dir.js';

let app: TestApp;
let dataDir: string;
let library: string;
let tree: string;

beforeAll(async () => {
  app = await startApp();
});
beforeEach(() => {
  dataDir = makeTempDir();
  library = path.join(dataDir, 'library');
  tree = path.join(dataDir, 'tree');
  mkdirSync(tree);
  fillTree();
});
afterEach(async () => {
  await emptyTables(app.ctx);
  rmSync(dataDir, { recursive: true, force: true });
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const names = ['a', 'b', 'c', 'd'];

function fillTree(): void {
  for (const name of names) writeFileSync(path.join(tree, name), name.repeat(10));
}

const archive = (prefix: string, ...options: string[]) =>
  runCli(['archive', tree, '--prefix', prefix, '--move', ...options], {
    env: { DATABASE_URL: app.databaseUrl, DATA_DIR: dataDir },
  });

async function countRows(): Promise<{ files: number; volumes: number }> {
  const [files, volumes] = [await app.ctx.db.prisma.tapeFile.count(), await app.ctx.db.prisma.volume.count()];
  return { files, volumes };
}

test.each([
  ['is not there', () => {}, 'is not there: ENOENT', () => existsSync(library)],
  [
    'is an empty folder, as where nothing is mounted',
    () => mkdirSync(library),
    'has no volume at all: it may not be mounted',
    () => readdirSync(library).length > 0,
  ],
])(
  'archive --move to a library that %s is refused, and removes and writes nothing',
  async (_what, take, reason, isMade) => {
    expect(await archive('/first')).toMatchObject({ code: 0 }); // the very first one makes the library
    expect(readdirSync(tree)).toEqual([]);
    fillTree();
    const before = await countRows();
    renameSync(library, `${library}-out`);
    take();
    const { code, stdout, stderr } = await archive('/second');
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`tapegate: the library ${library} ${reason}`);
    expect(stderr).toContain(
      'nothing was archived, since the catalogue knows volumes: mount the library, or have a new one made with --new-library\n',
    );
    expect([readdirSync(tree), isMade(), await countRows()]).toEqual([names, false, before]);

    rmSync(library, { recursive: true, force: true });
    renameSync(`${library}-out`, library);
    expect(await archive('/second')).toMatchObject({ code: 0 });
    expect([readdirSync(tree), (await countRows()).files]).toEqual([[], 8]);
  },
);

test('archive --new-library makes one where the catalogue knows volumes', async () => {
  await archive('/first');
  fillTree();
  rmSync(library, { recursive: true });
  expect(await archive('/second', '--new-library')).toMatchObject({ code: 0 });
  expect(readdirSync(path.join(library, 'TG0001'))).toHaveLength(4);
});

test('a first run that ends before its first byte is on tape does not keep the next one from working', async () => {
  const directory = createDirectoryBackend(library);
  const broken: WritableBackend = { ...directory, write: () => Promise.reject(new Error('no byte')) };
  const input = { dir: tree, volumeSize: 1000n, move: true };
  const signal = new AbortController().signal;
  expect((await archiveTree(app.ctx, broken, input, { signal })).failed).toHaveLength(4);
  expect(await countRows()).toEqual({ files: 0, volumes: 1 });
  expect(await archive('/again')).toMatchObject({ code: 0 });
});

test.each([
  ['gone', () => {}, 'is not there: ENOENT'],
  ['unmounted', () => mkdirSync(library), 'is not the folder that it was: it may not be mounted'],
  [
    'covered by another one',
    () => mkdirSync(path.join(library, 'TG0001'), { recursive: true }),
    'is not the folder that it was',
  ],
])('what is archived while the library is %s is not registered, and its sources stay', async (_what, take, reason) => {
  const directory = createDirectoryBackend(library);
  let writes = 0;
  const backend: WritableBackend = {
    ...directory,
    write: (...args) => {
      if (++writes === 3) {
        renameSync(library, `${library}-out`);
        take();
      }
      return directory.write(...args);
    },
  };
  const input = { dir: tree, volumeSize: 1000n, move: true };
  const { archived, failed } = await archiveTree(app.ctx, backend, input, { signal: new AbortController().signal });
  expect([archived, failed.length, readdirSync(tree), (await countRows()).files]).toEqual([0, 4, names, 0]);
  expect(failed.filter((line) => line.includes(reason)).length).toBeGreaterThanOrEqual(2);
  if (existsSync(library))
    expect(readdirSync(library, { recursive: true }).filter((name) => /\d{8}/.test(String(name)))).toEqual([]);
});

test('a library, or a volume, in which everybody may write is entrusted with nothing, and what is made is nobody else’s', async () => {
  const umask = process.umask(0);
  const made = await archive('/first');
  process.umask(umask);
  expect(made).toMatchObject({ code: 0 });
  const [volume = ''] = readdirSync(library).filter((name) => !name.startsWith('.'));
  const folders = [library, path.join(library, volume)];
  expect(folders.map((folder) => statSync(folder).mode & 0o022)).toEqual([0, 0]);
  for (const folder of folders) {
    fillTree();
    chmodSync(folder, 0o777);
    const { code, stderr } = await archive('/second');
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`everybody may write in ${folder} (mode 0777)`),
    });
    expect(readdirSync(tree)).toEqual(names);
    chmodSync(folder, 0o755);
  }
});

test('a pipe in the place of what was written holds up no sync, and is not relied on', async () => {
  const backend = createDirectoryBackend(library);
  await backend.openLibrary?.(true);
  const signal = AbortSignal.timeout(20_000);
  await backend.write('V1', 1n, Readable.from([Buffer.from('bytes')]), signal);
  rmSync(path.join(library, 'V1/00000001'));
  execFileSync('mkfifo', [path.join(library, 'V1/00000001')]);
  await expect(backend.sync?.('V1', signal)).rejects.toThrow('is not a plain file');
});

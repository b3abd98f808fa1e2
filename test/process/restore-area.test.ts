import { execFileSync } from 'node:child_process';
import {
  type BigIntStats,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { addDisk } from '../../src/engine/disk/setup.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, listTree, readDisks, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
/** Beside the restore area: nothing may ever happen there. */
let outside: string;
const backend = createMemoryBackend();
const clock = createClock();

beforeAll(async () => {
  app = await startApp({ backend, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  outside = path.join(app.dataDir, 'outside');
  mkdirSync(path.join(outside, 'folder'), { recursive: true });
  writeFileSync(path.join(outside, 'file'), 'outside');
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const place = (file: string) => path.join(app.restoreDir, file);
let volumes = 0;

async function request(...files: string[]) {
  volumes++;
  const volume = `V${volumes}`;
  const contents = await addTaped(
    app.ctx,
    backend,
    files.map((file, index) => ({ path: file, volume, position: BigInt(index + 1) })),
  );
  return { contents, id: await makeRequest(app, { quota: 'alice', files, retention: addSeconds(clock.now(), 9999) }) };
}

/** Everything in and around the restore area, with the bytes of files and the targets of links. */
function photograph(): Record<string, string> {
  const entries = readdirSync(app.dataDir, { recursive: true, withFileTypes: true });
  return Object.fromEntries(
    entries.map((entry) => {
      const place = path.join(entry.parentPath, entry.name);
      const kind = entry.isDirectory() ? 'folder' : entry.isFIFO() ? 'pipe' : 'other';
      const link = entry.isSymbolicLink() && `link to ${readlinkSync(place)}`;
      return [path.relative(app.dataDir, place), entry.isFile() ? `${lstatSync(place).size} bytes` : link || kind];
    }),
  );
}

test.each<[string, string, () => void, string]>([
  [
    'a folder is a link that leads out',
    '/link-out/a',
    () => symlinkSync(path.join(outside, 'folder'), place('link-out')),
    'a link leads away from the place of the file',
  ],
  [
    'a folder further up is a link that leads out',
    '/up/link/b/c/a',
    () => {
      mkdirSync(place('up'));
      symlinkSync(outside, place('up/link'));
    },
    'a link leads away from the place of the file',
  ],
  [
    'a folder is a link to the mount point itself',
    '/link-in/a',
    () => symlinkSync('.', place('link-in')),
    'a link leads away from the place of the file',
  ],
  [
    'a folder is a link that leads nowhere',
    '/link-gone/a',
    () => symlinkSync(path.join(outside, 'missing'), place('link-gone')),
    'a link that leads nowhere is in the way',
  ],
  ['a folder is a ring of links', '/ring/a', () => symlinkSync('ring', place('ring')), 'a ring of links is in the way'],
  [
    'a file is in the way of a folder',
    '/file-up/a',
    () => writeFileSync(place('file-up'), 'x'),
    'a file is in the way',
  ],
  [
    'a link to a file stands at the place',
    '/place-link',
    () => symlinkSync(path.join(outside, 'file'), place('place-link')),
    'another file stands at',
  ],
  [
    'a link to nothing stands at the place',
    '/place-gone',
    () => symlinkSync(path.join(outside, 'new'), place('place-gone')),
    'another file stands at',
  ],
  [
    'a folder stands at the place',
    '/place-folder',
    () => mkdirSync(place('place-folder/inner'), { recursive: true }),
    'another file stands at',
  ],
  [
    'a pipe stands at the place',
    '/place-pipe',
    () => execFileSync('mkfifo', [place('place-pipe')]),
    'another file stands at',
  ],
  [
    'another file stands at the place',
    '/place-file',
    () => writeFileSync(place('place-file'), 'by hand'),
    'another file stands at',
  ],
])('when %s, the file fails as POLICY and everything on disk stays as it is', async (_what, file, arrange, error) => {
  arrange();
  const before = photograph();
  const { id } = await request(file);
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.holds).toMatchObject([{ state: 'FAILED', errorClass: 'POLICY', error: expect.stringContaining(error) }]);
  expect(photograph()).toEqual(before);
  expect(readFileSync(path.join(outside, 'file'), 'utf8')).toBe('outside');
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('a path that leads out, put into the catalogue past all checks, fails as POLICY', async () => {
  const before = photograph();
  const ways = ['/../outside/x', '/../new', '/a/../../outside/x', '/a/..', '/..'];
  await addTaped(
    app.ctx,
    backend,
    ways.map((_, index) => ({ path: `/way/${index}`, volume: 'WAYS', position: BigInt(index + 1) })),
  );
  for (const [index, way] of ways.entries()) {
    await app.ctx.db.pool.query('UPDATE tape_file SET path = $1 WHERE path = $2', [way, `/way/${index}`]);
  }
  const id = await makeRequest(app, { quota: 'alice', patterns: '/..' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.holds.map(({ errorClass }) => errorClass)).toEqual(ways.map(() => 'POLICY'));
  const made = Object.keys(photograph()).filter((name) => !(name in before) && name !== 'restore/a');
  expect(made).toEqual([]);
  await cancel(app, id);
});

test("a user's own file with the same bytes is not taken for the file: it stays as it is, also at the end", async () => {
  const bytes = Buffer.from('the very same');
  writeFileSync(place('same'), bytes, { mode: 0o600 });
  const before = statSync(place('same'), { bigint: true });
  await addTaped(app.ctx, backend, [{ path: '/same', volume: 'SAME', bytes }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/same'], retention: addSeconds(clock.now(), 9999) });
  const { holds } = await waitForState(app, id, 'PARTIAL');
  expect(holds).toMatchObject([{ errorClass: 'POLICY', error: expect.stringContaining('another file stands at') }]);
  clock.advance(10_000);
  await ring(app, 'event');
  await waitForState(app, id, 'EXPIRED');
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(0);
  expect(readFileSync(place('same'))).toEqual(bytes);
  expect(pickStats(statSync(place('same'), { bigint: true }))).toEqual(pickStats(before));
});

const pickStats = ({ ino, uid, mode, mtimeNs, ctimeNs }: BigIntStats) => ({ ino, uid, mode, mtimeNs, ctimeNs });

test('names as odd and as long as a disk takes them are restored under these very names', async () => {
  const names = [
    'with blanks  and\ttab',
    'two\nlines\r\n',
    ' leading and trailing ',
    '-rf *',
    'back\\slash "quotes" \'single\' $HOME `x` %s %2e%2e',
    'żółć 北京 🧊',
    'e\u0301 decomposed',
    '\u00e9 composed',
    '...',
    '..a',
    '.hidden',
    '\u202egnp.exe',
    '\u0001\u001b[31m',
    'x'.repeat(255),
    'é'.repeat(127),
    '北'.repeat(85),
    `${'long/'.repeat(380)}${'y'.repeat(100)}`,
  ];
  const { id, contents } = await request(...names.map((name) => `/odd/${name}`));
  await waitForState(app, id, 'COMPLETED');
  for (const [file, bytes] of contents) expect(readFileSync(place(file))).toEqual(bytes);
  const tops = [...new Set(names.map((name) => name.split('/')[0]))].sort();
  expect(listTree(place('odd')).filter((name) => !name.includes('/'))).toEqual(tops);
  clock.advance(10_000);
  await ring(app, 'event');
  await waitFor('the files to go', async () => !existsSync(place('odd')));
});

test('a copy whose folder was moved out and replaced by a link is left alone and becomes UNVERIFIED', async () => {
  const { id } = await request('/moved/a');
  await waitForState(app, id, 'COMPLETED');
  renameSync(place('moved'), path.join(outside, 'moved'));
  symlinkSync(path.join(outside, 'moved'), place('moved'));
  clock.advance(10_000);
  await ring(app, 'event');
  await waitFor('the file to be let go', async () => (await readStage(app, '/moved/a')) === 'U');
  expect(listTree(path.join(outside, 'moved'))).toEqual(['a']);
  expect(readlinkSync(place('moved'))).toBe(path.join(outside, 'moved'));
});

test('what an engine was about to remove when it was killed is removed by the next one', async () => {
  const { id } = await request('/aside/deep/a', '/aside/gone/a');
  await waitForState(app, id, 'COMPLETED');
  const { ino, mtimeNs } = statSync(place('aside/deep/a'), { bigint: true });
  renameSync(place('aside/deep/a'), place(`aside/deep/.tapegate-removed-${ino}-${mtimeNs}.part`));
  rmSync(place('aside/gone/a'));
  clock.advance(10_000);
  await ring(app, 'event');
  await waitFor('the folders to go', async () => !listTree(app.restoreDir).some((name) => name.startsWith('aside')));
  await waitFor('the note to go', async () => {
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT FROM tape_file WHERE path LIKE '/aside/%' AND disk_id IS NULL AND stage = 'ONTAPE'`,
    );
    return rowCount === 2;
  });
});

test('a mount point that is missing is not made: files wait for it, and copies on it are removed once it is back', async () => {
  const mountpoint = path.join(app.dataDir, 'mount', 'point');
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  await setDisk(app.ctx, { mountpoint, size: 10_000n });
  const { id } = await request('/mount/a');
  const limits = `${app.restoreDir} has 0 of its allocation of 0 bytes left; the restore disk ${mountpoint} is not there`;
  const error = `no restore disk has room for 1000 bytes: ${limits}`;
  await waitFor('the recall to wait', async () => {
    const { rows } = await app.ctx.db.pool.query('SELECT error_class, error FROM recall');
    // whoever has looked at the disk before the recall has held it
    const found = rows[0]?.error?.replace(/; (\S+) is held \((the restore disk \S+ is not there)\)$/, '; $2');
    return rows[0]?.error_class === 'TRANSIENT' && found === error;
  });
  expect(listTree(app.dataDir)).not.toContain('mount');
  mkdirSync(mountpoint, { recursive: true });
  await waitFor('the file', async () => {
    clock.advance(10);
    await ring(app, 'recall');
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
  expect(listTree(mountpoint)).toEqual(['mount', 'mount/a']);

  const { used } = await readDisks(app);
  renameSync(mountpoint, `${mountpoint}-away`);
  const { id: other } = await request('/mount/other');
  clock.advance(10_000);
  await ring(app, 'event');
  await waitForState(app, id, 'EXPIRED');
  await waitForState(app, other, 'EXPIRED');
  expect(listTree(app.dataDir)).not.toContain('mount/point');
  expect((await readDisks(app)).used).toBe(used);
  renameSync(`${mountpoint}-away`, mountpoint);
  await ring(app, 'event');
  await waitFor('the copy to go', async () => listTree(mountpoint).length === 0);
  await waitFor('the room', async () => (await readDisks(app)).used === used - 1000n);
  expect(await readStage(app, '/mount/a')).toBe('T');
});

test('a mount point may itself be a link', async () => {
  const mountpoint = path.join(app.dataDir, 'by-link');
  mkdirSync(path.join(app.dataDir, 'real'));
  symlinkSync('real', mountpoint);
  await addDisk(app.ctx, { mountpoint, size: 10n ** 9n });
  const { id, contents } = await request('/linked/a');
  await waitForState(app, id, 'COMPLETED');
  expect(readFileSync(path.join(mountpoint, 'linked/a'))).toEqual(contents.get('/linked/a'));
  rmSync(mountpoint);
});

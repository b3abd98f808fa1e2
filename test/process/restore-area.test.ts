/** Unexpected entries in the restore area: Tapegate never changes users' files, and never writes outside the area. */
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
import { beforeAll, expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { ownerName } from '../../src/tape/directory/index.js';
import { listTree, readDisks, readStage, ring } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readTries } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

/** Directory beside the restore area, in which nothing may change. */
let outside: string;
const { app, library, clock, tape, ask, restore, place, query } = useMemorySite();

beforeAll(async () => {
  outside = path.join(app.dataDir, 'outside');
  mkdirSync(path.join(outside, 'directory'), { recursive: true });
  writeFileSync(path.join(outside, 'file'), 'outside');
});

/** Requests files with a retention of a few hours. */
const askShortly = (...files: string[]) =>
  makeRequest(app, { quota: 'alice', files, retention: addSeconds(clock.now(), 9999) });

async function restoreShortly(...files: string[]): Promise<void> {
  await tape(...files);
  await waitForState(app, await askShortly(...files), 'COMPLETED');
}

async function endRequests(): Promise<void> {
  clock.advance(10_000);
  await ring(app, 'event');
}

/** Returns all entries in and around the restore area except the owner record, with file sizes and link targets. */
function photograph(): Record<string, string> {
  const all = readdirSync(app.dataDir, { recursive: true, withFileTypes: true });
  const entries = all.filter(({ name }) => !name.startsWith(ownerName));
  return Object.fromEntries(
    entries.map((entry) => {
      const place = path.join(entry.parentPath, entry.name);
      const kind = entry.isDirectory() ? 'directory' : entry.isFIFO() ? 'pipe' : 'other';
      const link = entry.isSymbolicLink() && `link to ${readlinkSync(place)}`;
      return [path.relative(app.dataDir, place), entry.isFile() ? `${lstatSync(place).size} bytes` : link || kind];
    }),
  );
}

type Obstacle = [what: string, file: string, arrange: (at: string) => void, error: string];

const away = 'leads through a link to';
const other = 'another file exists at';
const obstacles: Obstacle[] = [
  ['a link that leads out', '/link-out/a', () => symlinkSync(path.join(outside, 'directory'), place('link-out')), away],
  [
    'a link that leads out, further up',
    '/up/link/b/c/a',
    () => {
      mkdirSync(place('up'));
      symlinkSync(outside, place('up/link'));
    },
    away,
  ],
  ['a link to the mount point', '/link-in/a', () => symlinkSync('.', place('link-in')), away],
  [
    'a dangling link',
    '/link-gone/a',
    () => symlinkSync(path.join(outside, 'missing'), place('link-gone')),
    'the path leads to a dangling link',
  ],
  [
    'a loop of symbolic links',
    '/ring/a',
    () => symlinkSync('ring', place('ring')),
    'the path leads to a loop of symbolic links',
  ],
  [
    'a file instead of a directory',
    '/file-up/a',
    () => writeFileSync(place('file-up'), 'x'),
    'the path leads to a file',
  ],
  ['a link to a file', '/place-link', (at) => symlinkSync(path.join(outside, 'file'), at), other],
  ['a link to nothing', '/place-gone', (at) => symlinkSync(path.join(outside, 'new'), at), other],
  ['a directory', '/place-directory', (at) => mkdirSync(path.join(at, 'inner'), { recursive: true }), other],
  ['a pipe', '/place-pipe', (at) => execFileSync('mkfifo', [at]), other],
  ['another file', '/place-file', (at) => writeFileSync(at, 'own'), other],
];

test('a file whose path on disk is blocked fails as POLICY, and everything on disk stays as it is', async () => {
  mkdirSync(app.restoreDir, { recursive: true });
  for (const [, file, arrange] of obstacles) arrange(place(file));
  const before = photograph();
  const files = obstacles.map(([, file]) => file);
  await tape(...files);
  const view = await waitForState(app, await ask(...files), 'PARTIAL');
  expect(view.files.length).toBe(obstacles.length);
  for (const [what, file, , error] of obstacles) {
    const requestFile = view.files.find(({ path }) => path === file);
    expect({ what, ...requestFile }).toMatchObject({
      state: 'FAILED',
      errorClass: 'POLICY',
      error: expect.stringContaining(error),
    });
  }
  expect(photograph()).toEqual(before);
  expect(readFileSync(path.join(outside, 'file'), 'utf8')).toBe('outside');
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('a path that leads out, put into the catalogue past all checks, fails as POLICY', async () => {
  const before = photograph();
  const ways = ['/../outside/x', '/../new', '/a/../../outside/x', '/a/..', '/..'];
  await tape(...ways.map((_, index) => `/way/${index}`));
  for (const [index, way] of ways.entries()) {
    await query('UPDATE tape_file SET path = $1 WHERE path = $2', [way, `/way/${index}`]);
  }
  const id = await makeRequest(app, { quota: 'alice', patterns: '/..' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.files.map(({ errorClass }) => errorClass)).toEqual(ways.map(() => 'POLICY'));
  const made = Object.keys(photograph()).filter((name) => !(name in before) && name !== 'restore/a');
  expect(made).toEqual([]);
  await cancel(app, id);
});

const pickStats = ({ ino, uid, mode, mtimeNs, ctimeNs }: BigIntStats) => ({ ino, uid, mode, mtimeNs, ctimeNs });

test("a user's private file with the same bytes is not taken for the copy, and stays when the request ends", async () => {
  const bytes = Buffer.from('the very same');
  writeFileSync(place('same'), bytes, { mode: 0o600 });
  const before = statSync(place('same'), { bigint: true });
  await addTaped(app.ctx, library, [{ path: '/same', volume: 'SAME', bytes }]);
  const id = await askShortly('/same');
  const { files } = await waitForState(app, id, 'PARTIAL');
  expect(files).toMatchObject([{ errorClass: 'POLICY', error: expect.stringContaining('another file exists at') }]);
  await endRequests();
  await waitForState(app, id, 'EXPIRED');
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(0);
  expect(readFileSync(place('same'))).toEqual(bytes);
  expect(pickStats(statSync(place('same'), { bigint: true }))).toEqual(pickStats(before));
});

test('names as odd and as long as a disk takes them are restored as they are', async () => {
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
    `${'deep/'.repeat(40)}${`${'l'.repeat(240)}/`.repeat(6)}${'y'.repeat(100)}`,
  ];
  const files = names.map((name) => `/odd/${name}`);
  const contents = await tape(...files);
  await waitForState(app, await askShortly(...files), 'COMPLETED');
  for (const [file, bytes] of contents) expect(readFileSync(place(file))).toEqual(bytes);
  const tops = [...new Set(names.map((name) => name.split('/')[0]))].sort();
  expect(listTree(place('odd')).filter((name) => !name.includes('/'))).toEqual(tops);
  await endRequests();
  await waitFor('the removal of the files', async () => !existsSync(place('odd')));
});

test('a copy whose directory was moved out and replaced by a link stays, and its file becomes UNVERIFIED', async () => {
  await restoreShortly('/moved/a');
  renameSync(place('moved'), path.join(outside, 'moved'));
  symlinkSync(path.join(outside, 'moved'), place('moved'));
  await endRequests();
  await waitFor('the file to be UNVERIFIED', async () => (await readStage(app, '/moved/a')) === 'U');
  expect(listTree(path.join(outside, 'moved'))).toEqual(['a']);
  expect(readlinkSync(place('moved'))).toBe(path.join(outside, 'moved'));
});

test('a directory that an operator moves away while its file is read gets no copy', async () => {
  mkdirSync(place('shift/sub'), { recursive: true });
  const { onRead } = library;
  let isMoved = false;
  library.onRead = async (_volume, _position, bytes) => {
    if (!isMoved) {
      renameSync(place('shift/sub'), path.join(outside, 'sub'));
      mkdirSync(place('shift/sub'));
    }
    isMoved = true;
    return bytes;
  };
  const contents = await tape('/shift/sub/file');
  await waitThroughPauses(app, clock, await askShortly('/shift/sub/file'), 'COMPLETED');
  library.onRead = onRead;
  expect([isMoved, listTree(path.join(outside, 'sub'))]).toEqual([true, []]);
  expect(readFileSync(place('shift/sub/file'))).toEqual(contents.get('/shift/sub/file'));
});

test('copies that an engine had removed when it was killed are forgotten by the next one, with their directories', async () => {
  await restoreShortly('/aside/deep/a', '/aside/gone/a');
  rmSync(place('aside/deep/a'));
  rmSync(place('aside/gone'), { recursive: true });
  await endRequests();
  await waitFor(
    'the removal of the directories',
    async () => !listTree(app.restoreDir).some((name) => name.startsWith('aside')),
  );
  const cleared = `SELECT FROM tape_file WHERE path LIKE '/aside/%' AND disk_id IS NULL AND stage = 'ONTAPE'`;
  await waitFor('the records of the copies to be cleared', async () => (await query(cleared)).length === 2);
});

test('a missing mount point is not made: files wait for it', async () => {
  const mountpoint = path.join(app.dataDir, 'mount', 'point');
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  await setDisk(app.ctx, { mountpoint, size: 10n ** 9n });
  await tape('/mount/a');
  const id = await ask('/mount/a');
  const limits = `${app.restoreDir} has 0 bytes left of the 0 bytes allocated to Tapegate; the restore disk ${mountpoint} does not exist`;
  const tries = await waitFor('the recall to wait', async () => {
    const now = (await readTries(app, id))['/mount/a'];
    return now?.lastError != null && now;
  });
  // if an engine checked the disk before the recall, the disk is suspended
  const error = tries.lastError?.replace(/; (\S+) is suspended \((the restore disk \S+ does not exist)\)$/, '; $2');
  expect([tries.lastErrorClass, error]).toEqual(['TRANSIENT', `no restore disk has room for 1.00 kB: ${limits}`]);
  expect(listTree(app.dataDir)).not.toContain('mount');
  mkdirSync(mountpoint, { recursive: true });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(listTree(mountpoint)).toEqual(['mount', 'mount/a']);
});

test('a mount point may itself be a link', async () => {
  const mountpoint = path.join(app.dataDir, 'by-link');
  mkdirSync(path.join(app.dataDir, 'real'));
  symlinkSync('real', mountpoint);
  await addDisk(app.ctx, { mountpoint, size: 10n ** 12n });
  await restore('/linked/a');
  expect(readFileSync(path.join(mountpoint, 'linked/a'))).toHaveLength(1000);
  rmSync(mountpoint);
});

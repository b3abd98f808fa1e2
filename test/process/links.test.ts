/** Links at archive paths to restored files: which links are created, and which files and directories of users stay. */
import {
  chmodSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { recordDirectories } from '../../src/domain/catalogue/directory-modes.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import type { Finding } from '../../src/domain/doctor/findings.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { linkDirectoryAttributes } from '../../src/restore-area/links/directories.js';
import { beginLinks, LinkKeeper } from '../../src/restore-area/links/keeper.js';
import { makeLink, removeLink, tidyLinkDirectories } from '../../src/restore-area/links/link.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { giveToUnprivilegedUser, isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
let root: string;
let library: ReturnType<typeof createMemoryLibrary>;

beforeEach(async () => {
  clock = createClock();
  root = makeTempDir();
  library = createMemoryLibrary();
  app = await start({ library, config: { linkRoot: root } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));
const start = createFreshApp({ now: () => clock.now() });

/** Restores files. @returns the id of the request, and the bytes of each file */
async function restore(...paths: string[]) {
  const files = paths.map((file) => ({ path: file, volume: 'V1' }));
  const contents = await addTaped(app.ctx, library, files);
  const id = await makeRequest(app, { quota: 'alice', files: paths, retention: '2099-01-01' });
  await waitForState(app, id, 'COMPLETED');
  return { id, bytesOf: (file: string) => Buffer.from(contents.get(file) ?? []) };
}

const at = (file: string) => path.join(root, file);
const tidy = (file: string) => tidyLinkDirectories(root, at(file), linkDirectoryAttributes(app.ctx));
const copyOf = (file: string) => path.join(app.restoreDir, file);

/** Returns the doctor's findings. @param repair whether the doctor also repairs */
async function findLinks(repair = false): Promise<Finding[]> {
  const found: Finding[] = [];
  await examine(app.ctx, { repair, checksums: false }, (finding) => found.push(finding));
  return found;
}

const listFindings = async () => (await findLinks()).map(({ kind, object }) => [kind, object]);

/** Makes the engine check for work until a condition is met. */
const waitForWork = (what: string, isDone: () => Promise<boolean> | boolean) =>
  waitFor(what, async () => {
    await ring(app, 'event');
    return await isDone();
  });
const count = async (query: string, values: unknown[] = []) =>
  (await app.ctx.db.pool.query(query, values)).rowCount ?? 0;

/** Cancels a request, and waits until its copies are removed. */
async function end(id: number, ...files: string[]): Promise<void> {
  await cancel(app, id);
  await waitForWork('the copies to leave', () => !files.some((file) => existsSync(copyOf(file))));
}

const settleDue = () =>
  waitForWork('no link to be due', async () => {
    const settled = 'check_at IS NULL OR problem IS NOT NULL OR NOT is_there AND at IS NOT NULL';
    return (await count(`SELECT FROM archive_link WHERE check_at = '1970-01-01' OR NOT (${settled})`)) === 0;
  });
const waitForNoRows = () =>
  waitForWork('the rows of links to go', async () => (await count('SELECT FROM archive_link')) === 0);

test('a link exists before a file is reported as restored, and leaves before the copy', async () => {
  const paths = ['/badc/deep/a', '/badc/deep/b', '/neodc/c'];
  const { id, bytesOf } = await restore(...paths);
  for (const file of paths) {
    expect(readFileSync(at(file))).toEqual(bytesOf(file));
    expect(readlinkSync(at(file))).toBe(copyOf(file));
  }
  await settleDue();
  expect(await findLinks()).toEqual([]);
  await end(id, ...paths);
  expect(listTree(root)).toEqual([]);
  expect(await findLinks()).toEqual([]);
});

test('a foreign file, directory or link at an archive path stays, is reported, and prevents no restore', async () => {
  mkdirSync(at('/badc/directory'), { recursive: true });
  writeFileSync(at('/badc/file'), 'mine');
  writeFileSync(at('/elsewhere'), 'elsewhere');
  symlinkSync(at('/elsewhere'), at('/badc/link'));
  const paths = ['/badc/directory', '/badc/file', '/badc/link'];
  const { id } = await restore(...paths);
  await settleDue();
  const found = await findLinks();
  expect(found.map(({ kind, object }) => [kind, object])).toEqual(paths.map((file) => ['link-stuck', at(file)]));
  expect(found[2]?.found).toContain(`a link to ${at('/elsewhere')}`);
  expect(readFileSync(at('/badc/file'), 'utf8')).toBe('mine');
  expect(readlinkSync(at('/badc/link'))).toBe(at('/elsewhere'));
  // once the user's file is removed, Tapegate creates the link
  unlinkSync(at('/badc/file'));
  clock.advance(300);
  await waitForWork('the link', () => existsSync(at('/badc/file')));
  await end(id, ...paths);
  expect(readFileSync(at('/badc/link'), 'utf8')).toBe('elsewhere');
  expect(lstatSync(at('/badc/directory')).isDirectory()).toBe(true);
  expect(existsSync(at('/badc/file'))).toBe(false);
});

test('a dangling link and a link into the restore area are replaced, and a linked directory is followed', async () => {
  mkdirSync(at('/badc'), { recursive: true });
  mkdirSync(at('/pot'), { recursive: true });
  symlinkSync('/nowhere/at/all', at('/badc/dangling'));
  symlinkSync('loop', at('/badc/loop'));
  symlinkSync(at('/pot'), at('/badc/set'));
  writeFileSync(copyOf('/old-name'), 'what the system before has restored');
  symlinkSync(copyOf('/old-name'), at('/badc/theirs'));
  const paths = ['/badc/dangling', '/badc/loop', '/badc/set/file', '/badc/theirs'];
  const { bytesOf } = await restore(...paths);
  for (const file of paths) expect(readFileSync(at(file))).toEqual(bytesOf(file));
  expect(readlinkSync(at('/pot/file'))).toBe(copyOf('/badc/set/file'));
  expect(listTree(root).filter((name) => name.includes('.tapegate'))).toEqual([]);
});

test('a link that cannot be made delays no restore, and no copy leaves while a link may point to it', async () => {
  writeFileSync(at('/badc'), 'no directory');
  const { id } = await restore('/badc/a');
  await settleDue();
  expect((await findLinks()).map(({ kind }) => kind)).toEqual(['link-stuck']);
  unlinkSync(at('/badc'));
  clock.advance(300);
  await waitForWork('the link', () => existsSync(at('/badc/a')));
  await settleDue();
  renameSync(at('/badc'), at('/away'));
  renameSync(at('/away'), at('/badc'));
  await end(id, '/badc/a');
  expect(existsSync(at('/badc/a'))).toBe(false);
});

test('a link that was replaced or removed is reported, and only the removed one is made again', async () => {
  const { id } = await restore('/a', '/b');
  await settleDue();
  unlinkSync(at('/a'));
  unlinkSync(at('/b'));
  writeFileSync(at('/b'), 'mine');
  expect(await listFindings()).toEqual([
    ['link-missing', at('/a')],
    ['link-changed', at('/b')],
  ]);
  const mended = await findLinks(true);
  expect(mended.map(({ object, isRepaired }) => [object, isRepaired])).toEqual([
    [at('/a'), true],
    [at('/b'), false],
  ]);
  expect(readlinkSync(at('/a'))).toBe(copyOf('/a'));
  await end(id, '/b');
  expect(readFileSync(at('/b'), 'utf8')).toBe('mine');
});

test('links follow TAPEGATE_LINK_ROOT when it is set, changed and unset', async () => {
  app.ctx.config.linkRoot = undefined;
  await beginLinks(app.ctx);
  const { id } = await restore('/badc/a');
  await settleDue();
  expect(existsSync(at('/badc'))).toBe(false);
  for (const to of [root, path.join(root, 'other'), undefined]) {
    app.ctx.config.linkRoot = to;
    await beginLinks(app.ctx);
    await settleDue();
    const links = listTree(root).filter((name) => name.endsWith('/a'));
    expect(links).toEqual(to === undefined ? [] : [path.relative(root, path.join(to, 'badc/a'))]);
  }
  await end(id, '/badc/a');
});

test.runIf(isRoot).each([
  ['belongs to another user', () => lchownSync(at('/badc'), UNPRIVILEGED_UID, UNPRIVILEGED_UID)],
  [
    'is reached by one',
    () => {
      mkdirSync(at('/home'));
      renameSync(at('/badc'), at('/home/current'));
      lchownSync(at('/home/current'), UNPRIVILEGED_UID, UNPRIVILEGED_UID);
      symlinkSync('home/../home/./current/', at('/badc'));
    },
  ],
])('a directory that %s is not followed', async (_what, change) => {
  mkdirSync(at('/elsewhere'));
  symlinkSync(at('/elsewhere'), at('/badc'));
  change();
  await restore('/badc/a');
  await settleDue();
  expect(listTree(at('/elsewhere'))).toEqual([]);
  const [found] = await findLinks();
  expect([found?.kind, found?.found]).toEqual(['link-stuck', expect.stringContaining('belongs to another user')]);
});

test('a copy that was changed outside Tapegate keeps its link as long as it exists', async () => {
  const { id } = await restore('/badc/a');
  await settleDue();
  writeFileSync(copyOf('/badc/a'), 'changed');
  await cancel(app, id);
  await waitForWork(
    'the file to be UNVERIFIED',
    async () => (await count("SELECT FROM tape_file WHERE stage = 'UNVERIFIED'")) === 1,
  );
  await settleDue();
  expect(readFileSync(at('/badc/a'), 'utf8')).toBe('changed');
  expect(await findLinks()).toEqual([]);
});

test('two engines that settle the same link leave it right, and a late link of a stalled one is removed', async () => {
  const { id } = await restore('/badc/a');
  await settleDue();
  const stop = new AbortController().signal;
  expect(await count(`UPDATE archive_link SET check_at = '1970-01-01'`)).toBe(1);
  const [early, late] = [new LinkKeeper(app.ctx), new LinkKeeper(app.ctx)];
  await Promise.all([early.settleAll(stop), late.settleAll(stop)]);
  expect(readlinkSync(at('/badc/a'))).toBe(copyOf('/badc/a'));
  await end(id, '/badc/a');
  // a stalled engine creates the link again; the last check removes the link
  mkdirSync(at('/badc'), { recursive: true, mode: 0o750 });
  symlinkSync(copyOf('/badc/a'), at('/badc/a'));
  clock.advance(600);
  await waitForNoRows();
  expect(listTree(root)).toEqual([]);
});

/** Restores a file below a directory, renames the file, and restores a file at the path of the directory. */
async function replaceDirectory(directory: string, file: string): Promise<void> {
  const { id } = await restore(file);
  await settleDue();
  await end(id, file);
  await settleDue();
  await renameFiles(app.ctx, { from: file, to: `${directory}-moved` });
  await restore(directory);
  await settleDue();
}

test('a link replaces a directory of links of any depth, but no foreign directory', async () => {
  await replaceDirectory('/kk/a', '/kk/a/b/c');
  // the copy of /kk/a has another path while the directory /kk/a exists in the restore area
  const { rows: copies } = await app.ctx.db.pool.query<{ place: string }>(
    `SELECT coalesce(disk_path, path) AS place FROM tape_file WHERE path = '/kk/a'`,
  );
  expect(readlinkSync(at('/kk/a'))).toBe(copyOf(copies[0]?.place ?? ''));
  mkdirSync(at('/kk/theirs'), { mode: 0o755 });
  await replaceDirectory('/kk/theirs', '/kk/theirs/b/c');
  expect(await listFindings()).toEqual([['link-stuck', at('/kk/theirs')]]);
  expect(lstatSync(at('/kk/theirs')).isDirectory()).toBe(true);
  // a user's directory in a directory of Tapegate
  const { id } = await restore('/kk/ours/x');
  mkdirSync(at('/kk/ours/theirs'));
  await end(id, '/kk/ours/x');
  await renameFiles(app.ctx, { from: '/kk/ours/x', to: '/kk/moved' });
  await restore('/kk/ours');
  await settleDue();
  expect(listTree(root)).toContain('kk/ours/theirs');
});

test('directories that match those of Tapegate are removed with the last link in them, and no others', async () => {
  mkdirSync(at('/badc'), { mode: 0o755 });
  const paths = ['/badc/deep/er/a', '/badc/b', '/neodc/c', '/used/by/d'];
  const { id } = await restore(...paths);
  await settleDue();
  expect(lstatSync(at('/neodc')).mode & 0o7777).toBe(0o750);
  writeFileSync(at('/used/mine'), 'mine');
  await end(id, ...paths);
  expect(listTree(root)).toEqual(['badc', 'used', 'used/mine']);
});

test.each([0o022, 0o077])('directories of links have the modes of the originals with umask %o', async (umask) => {
  const before = process.umask(umask);
  try {
    await recordDirectories(app.ctx, [
      { path: '/open', mode: 0o755, gid: null },
      { path: '/open/private', mode: 0o700, gid: null },
    ]);
    const paths = ['/open/private/a', '/unknown/b'];
    const { id } = await restore(...paths);
    await settleDue();
    const modeOf = (dir: string) => lstatSync(at(dir)).mode & 0o7777;
    expect(['/open', '/open/private', '/unknown'].map(modeOf)).toEqual([0o755, 0o700, 0o750]);
    process.umask(0o027);
    await end(id, ...paths);
    expect(listTree(root)).toEqual([]);
  } finally {
    process.umask(before);
  }
});

test('a directory that an engine was killed before it finished gets its mode with the next link', async () => {
  await recordDirectories(app.ctx, [{ path: '/open', mode: 0o755, gid: null }]);
  mkdirSync(at('/open'));
  chmodSync(at('/open'), 0o1700);
  await restore('/open/a');
  await settleDue();
  expect(lstatSync(at('/open')).mode & 0o7777).toBe(0o755);
});

test('a directory that a killed process did not remove is removed when the link is checked again', async () => {
  const { id } = await restore('/badc/deep/a');
  await settleDue();
  await end(id, '/badc/deep/a');
  mkdirSync(at('/badc/deep'), { recursive: true, mode: 0o750 });
  clock.advance(600);
  await waitForNoRows();
  expect(listTree(root)).toEqual([]);
});

test.runIf(isRoot)('an empty directory of another user stays', async () => {
  mkdirSync(at('/theirs'));
  giveToUnprivilegedUser(at('/theirs'));
  await tidy('/theirs/a');
  expect(listTree(root)).toEqual(['theirs']);
});

test('a directory behind a link that leads out of the link directory stays', async () => {
  const outside = makeTempDir();
  mkdirSync(path.join(outside, 'empty'), 0o750);
  mkdirSync(at('/in/empty'), { recursive: true, mode: 0o750 });
  symlinkSync(outside, at('/out'));
  symlinkSync('in', at('/same'));
  await tidy('/out/empty/a');
  await tidy('/same/empty/a');
  expect([listTree(outside), listTree(at('/in'))]).toEqual([['empty'], []]);
});

test('links are created while another engine removes their empty directories', async () => {
  const links = Array.from({ length: 60 }, (_, n) => ({ at: at(`/busy/in/${n}`), target: copyOf(`/busy/in/${n}`) }));
  for (const link of links) {
    const tidyBusy = () => tidy('/busy/in/x');
    const making = makeLink(link, {
      fileId: 1n,
      mountpoints: [app.restoreDir],
      attributesOf: linkDirectoryAttributes(app.ctx),
    });
    await Promise.all([making, tidyBusy().then(tidyBusy).then(tidyBusy)]);
    expect(readlinkSync(link.at)).toBe(link.target);
    await removeLink(link);
  }
  await tidy('/busy/in/x');
  expect(listTree(root)).toEqual([]);
});

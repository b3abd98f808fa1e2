/** Restored files at their archive paths: what is made there, what is left alone, and what a program that opens it sees. */
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
import { examine } from '../../src/engine/doctor/doctor.js';
import { tidyLinkFolders } from '../../src/engine/links/folders.js';
import { makeLink, removeLink } from '../../src/engine/links/link.js';
import { beginLinks, LinkKeeper } from '../../src/engine/links/pass.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import type { Finding } from '../../src/operations/doctor/findings.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { isRoot, STRANGER } from '../support/stranger.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
let root: string;
let backend: ReturnType<typeof createMemoryBackend>;

beforeEach(async () => {
  clock = createClock();
  root = makeTempDir();
  backend = createMemoryBackend();
  app = await start({ backend, config: { linkRoot: root } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));
const start = createFreshApp({ now: () => clock.now() });

async function ask(paths: readonly string[]): Promise<{ id: number; contents: Map<string, Uint8Array> }> {
  const contents = await addTaped(
    app.ctx,
    backend,
    paths.map((file) => ({ path: file, volume: 'V1' })),
  );
  return { id: await makeRequest(app, { quota: 'alice', files: [...paths], retention: '2099-01-01' }), contents };
}

const at = (file: string) => path.join(root, file);
const copyOf = (file: string) => path.join(app.restoreDir, file);

/** @returns what the doctor finds of links; @param repair mends it */
async function findLinks(repair = false): Promise<Finding[]> {
  const found: Finding[] = [];
  await examine(app.ctx, { repair, checksums: false }, (finding) => found.push(finding));
  return found;
}

async function expectGone(file: string): Promise<void> {
  await waitFor('the copy to leave', async () => {
    await ring(app, 'event');
    return !existsSync(copyOf(file));
  });
}

async function settleDue(): Promise<void> {
  await waitFor('no link to be due', async () => {
    await ring(app, 'event');
    const settled = 'look_at IS NULL OR problem IS NOT NULL OR NOT is_there AND at IS NOT NULL';
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT FROM archive_link WHERE look_at = '1970-01-01' OR NOT (${settled})`,
    );
    return rowCount === 0;
  });
}

test('a restored file is at its archive path before anybody is told of it, and leaves it before its copy does', async () => {
  const paths = ['/badc/deep/a', '/badc/deep/b', '/neodc/c'];
  const { id, contents } = await ask(paths);
  await waitForState(app, id, 'COMPLETED');
  for (const file of paths) {
    expect(readFileSync(at(file))).toEqual(Buffer.from(contents.get(file) ?? []));
    expect(readlinkSync(at(file))).toBe(copyOf(file));
  }
  await settleDue();
  expect(await findLinks()).toEqual([]);
  await cancel(app, id);
  for (const file of paths) await expectGone(file);
  expect(listTree(root)).toEqual(['badc', 'badc/deep', 'neodc']);
  expect(await findLinks()).toEqual([]);
});

test('what stands at an archive path stays, is told of, and keeps nothing from being restored', async () => {
  mkdirSync(at('/badc/folder'), { recursive: true });
  writeFileSync(at('/badc/file'), 'mine');
  writeFileSync(at('/elsewhere'), 'elsewhere');
  symlinkSync(at('/elsewhere'), at('/badc/link'));
  const paths = ['/badc/file', '/badc/folder', '/badc/link'];
  const { id } = await ask(paths);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  const found = await findLinks();
  expect(found.map(({ kind, thing }) => [kind, thing])).toEqual(paths.map((file) => ['link-stuck', at(file)]));
  expect(found[2]?.found).toContain(`a link to ${at('/elsewhere')}`);
  expect(readFileSync(at('/badc/file'), 'utf8')).toBe('mine');
  expect(readlinkSync(at('/badc/link'))).toBe(at('/elsewhere'));
  // what was in the way goes, and the link comes
  unlinkSync(at('/badc/file'));
  clock.advance(300);
  await waitFor('the link', async () => {
    await ring(app, 'event');
    return existsSync(at('/badc/file'));
  });
  await cancel(app, id);
  for (const file of paths) await expectGone(file);
  expect(readFileSync(at('/badc/link'), 'utf8')).toBe('elsewhere');
  expect(lstatSync(at('/badc/folder')).isDirectory()).toBe(true);
  expect(existsSync(at('/badc/file'))).toBe(false);
});

test('a link to nothing is replaced, and so is one into the restore area; a folder that is a link is followed', async () => {
  mkdirSync(at('/badc'), { recursive: true });
  mkdirSync(at('/pot'), { recursive: true });
  symlinkSync('/nowhere/at/all', at('/badc/dangling'));
  symlinkSync('loop', at('/badc/loop'));
  symlinkSync(at('/pot'), at('/badc/set'));
  writeFileSync(copyOf('/old-name'), 'what the system before has restored');
  symlinkSync(copyOf('/old-name'), at('/badc/theirs'));
  const paths = ['/badc/dangling', '/badc/loop', '/badc/set/file', '/badc/theirs'];
  const { id, contents } = await ask(paths);
  await waitForState(app, id, 'COMPLETED');
  for (const file of paths) expect(readFileSync(at(file))).toEqual(Buffer.from(contents.get(file) ?? []));
  expect(readlinkSync(at('/pot/file'))).toBe(copyOf('/badc/set/file'));
  expect(listTree(root).filter((name) => name.includes('.tapegate'))).toEqual([]);
});

test('a folder of links that cannot be written holds up no restore, and no copy leaves while a link may point to it', async () => {
  writeFileSync(at('/badc'), 'no folder');
  const { id } = await ask(['/badc/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  expect((await findLinks()).map(({ kind }) => kind)).toEqual(['link-stuck']);
  unlinkSync(at('/badc'));
  clock.advance(300);
  await waitFor('the link', async () => {
    await ring(app, 'event');
    return existsSync(at('/badc/a'));
  });
  await settleDue();
  renameSync(at('/badc'), at('/away'));
  renameSync(at('/away'), at('/badc'));
  await cancel(app, id);
  await expectGone('/badc/a');
  expect(existsSync(at('/badc/a'))).toBe(false);
});

test('a link that somebody has replaced, or taken away, is told of; what was put there stays', async () => {
  const { id } = await ask(['/a', '/b']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  unlinkSync(at('/a'));
  unlinkSync(at('/b'));
  writeFileSync(at('/b'), 'mine');
  expect((await findLinks()).map(({ kind, thing }) => [kind, thing])).toEqual([
    ['link-missing', at('/a')],
    ['link-changed', at('/b')],
  ]);
  const mended = await findLinks(true);
  expect(mended.map(({ thing, isRepaired }) => [thing, isRepaired])).toEqual([
    [at('/a'), true],
    [at('/b'), false],
  ]);
  expect(readlinkSync(at('/a'))).toBe(copyOf('/a'));
  await cancel(app, id);
  await expectGone('/b');
  expect(readFileSync(at('/b'), 'utf8')).toBe('mine');
});

test('links follow LINK_ROOT when it is set, changed and unset', async () => {
  app.ctx.config.linkRoot = undefined;
  await beginLinks(app.ctx);
  const { id } = await ask(['/badc/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  expect(existsSync(at('/badc'))).toBe(false);
  for (const to of [root, path.join(root, 'other'), undefined]) {
    app.ctx.config.linkRoot = to;
    await beginLinks(app.ctx);
    await settleDue();
    const links = listTree(root).filter((name) => name.endsWith('/a'));
    expect(links).toEqual(to === undefined ? [] : [path.relative(root, path.join(to, 'badc/a'))]);
  }
  await cancel(app, id);
  await expectGone('/badc/a');
});

test.runIf(isRoot).each([
  ['is a link of somebody else', () => lchownSync(at('/badc'), STRANGER, STRANGER)],
  [
    'is reached by one',
    () => {
      mkdirSync(at('/home'));
      renameSync(at('/badc'), at('/home/current'));
      lchownSync(at('/home/current'), STRANGER, STRANGER);
      symlinkSync('home/../home/./current/', at('/badc'));
    },
  ],
])('a folder that %s is not followed', async (_what, change) => {
  mkdirSync(at('/elsewhere'));
  symlinkSync(at('/elsewhere'), at('/badc'));
  change();
  const { id } = await ask(['/badc/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  expect(listTree(at('/elsewhere'))).toEqual([]);
  const [found] = await findLinks();
  expect([found?.kind, found?.found]).toEqual(['link-stuck', expect.stringContaining('a link of somebody else')]);
});

test('a copy that was changed by hand keeps its link as long as it is there', async () => {
  const { id } = await ask(['/badc/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  writeFileSync(copyOf('/badc/a'), 'changed');
  await cancel(app, id);
  await waitFor('the file to be UNVERIFIED', async () => {
    await ring(app, 'event');
    const { rows } = await app.ctx.db.pool.query("SELECT FROM tape_file WHERE stage = 'UNVERIFIED'");
    return rows.length === 1;
  });
  await settleDue();
  expect(readFileSync(at('/badc/a'), 'utf8')).toBe('changed');
  expect(await findLinks()).toEqual([]);
});

test('who settles links late, after others did, puts right what it has made and removed', async () => {
  const { id } = await ask(['/badc/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  const stop = new AbortController().signal;
  const { rows } = await app.ctx.db.pool.query<{ change: bigint }>(
    `UPDATE archive_link SET look_at = '1970-01-01' RETURNING change`,
  );
  expect(rows).toHaveLength(1);
  const [early, late] = [new LinkKeeper(app.ctx), new LinkKeeper(app.ctx)];
  await Promise.all([early.settleAll(stop), late.settleAll(stop)]);
  expect(readlinkSync(at('/badc/a'))).toBe(copyOf('/badc/a'));
  await cancel(app, id);
  await expectGone('/badc/a');
  // once more, long after, for whoever stood still meanwhile
  mkdirSync(at('/badc'), { recursive: true });
  symlinkSync(copyOf('/badc/a'), at('/badc/a'));
  clock.advance(600);
  await waitFor('the row to go', async () => {
    await ring(app, 'event');
    return (await app.ctx.db.pool.query('SELECT FROM archive_link')).rowCount === 0;
  });
  expect(listTree(root)).toEqual([]);
});

/** Another file comes into the place of a folder that was restored to. */
async function replaceFolder(folder: string, file: string): Promise<number> {
  const { id } = await ask([file]);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  await cancel(app, id);
  await expectGone(file);
  await settleDue();
  await renameFiles(app.ctx, { from: file, to: `${folder}-moved` });
  const next = await ask([folder]);
  await waitForState(app, next.id, 'COMPLETED');
  await settleDue();
  return next.id;
}

test('a link comes where a folder of links was, however deep, and not where somebody has made one', async () => {
  await replaceFolder('/kk/a', '/kk/a/b/c');
  // where the copy is, is another place while the folder stands there in the restore area
  const { rows: copies } = await app.ctx.db.pool.query<{ place: string }>(
    `SELECT coalesce(disk_path, path) AS place FROM tape_file WHERE path = '/kk/a'`,
  );
  expect(readlinkSync(at('/kk/a'))).toBe(copyOf(copies[0]?.place ?? ''));
  mkdirSync(at('/kk/theirs'));
  await replaceFolder('/kk/theirs', '/kk/theirs/b/c');
  expect((await findLinks()).map(({ kind, thing }) => [kind, thing])).toEqual([['link-stuck', at('/kk/theirs')]]);
  expect(lstatSync(at('/kk/theirs')).isDirectory()).toBe(true);
  // theirs is in one of Tapegate's
  const { id } = await ask(['/kk/ours/x']);
  await waitForState(app, id, 'COMPLETED');
  mkdirSync(at('/kk/ours/theirs'));
  await cancel(app, id);
  await expectGone('/kk/ours/x');
  await renameFiles(app.ctx, { from: '/kk/ours/x', to: '/kk/moved' });
  const next = await ask(['/kk/ours']);
  await waitForState(app, next.id, 'COMPLETED');
  await settleDue();
  expect(listTree(root)).toContain('kk/ours/theirs');
});

test('folders that were made for links go some time after these, and no others', async () => {
  mkdirSync(at('/badc'));
  const paths = ['/badc/deep/er/a', '/badc/b', '/neodc/c', '/used/by/d'];
  const { id } = await ask(paths);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  expect(lstatSync(at('/neodc')).mode & 0o7777).toBe(0o777 & ~process.umask());
  writeFileSync(at('/used/mine'), 'mine');
  // as another one, which looks the same
  renameSync(at('/neodc'), at('/away'));
  mkdirSync(at('/neodc'));
  symlinkSync(copyOf('/neodc/c'), at('/neodc/c'));
  rmSync(at('/away'), { recursive: true });
  await cancel(app, id);
  for (const file of paths) await expectGone(file);
  await settleDue();
  expect(listTree(root)).toContain('badc/deep/er');
  clock.advance(600);
  await waitFor('the rows to go', async () => {
    await ring(app, 'event');
    return (await app.ctx.db.pool.query('SELECT FROM archive_link')).rowCount === 0;
  });
  expect(listTree(root)).toEqual(['badc', 'neodc', 'used', 'used/mine']);
  const { rows } = await app.ctx.db.pool.query('SELECT path FROM link_folder ORDER BY path');
  expect(rows).toEqual([{ path: at('/neodc') }, { path: at('/used') }]);
});

test('a folder that a process was killed over is finished by the next one; a like one of somebody is not', async () => {
  await app.ctx.db.pool.query('INSERT INTO link_folder (path) VALUES ($1)', [at('/half')]);
  for (const folder of ['/half', '/like']) {
    mkdirSync(at(folder));
    chmodSync(at(folder), 0o1700);
  }
  const { id } = await ask(['/half/a', '/like/a']);
  await waitForState(app, id, 'COMPLETED');
  await settleDue();
  expect(['/half', '/like'].map((folder) => lstatSync(at(folder)).mode & 0o7777)).toEqual([
    0o777 & ~process.umask(),
    0o1700,
  ]);
  const { rows } = await app.ctx.db.pool.query('SELECT path, ino FROM link_folder');
  expect(rows).toEqual([{ path: at('/half'), ino: lstatSync(at('/half'), { bigint: true }).ino }]);
});

test('a folder that a process was killed over goes, also where those within it were never made', async () => {
  await app.ctx.db.pool.query('INSERT INTO link_folder (path) VALUES ($1)', [at('/killed')]);
  mkdirSync(at('/killed'));
  chmodSync(at('/killed'), 0o1700);
  await tidyLinkFolders(app.ctx, at('/killed/before/these/a'));
  expect(listTree(root)).toEqual([]);
  expect((await app.ctx.db.pool.query('SELECT FROM link_folder')).rowCount).toBe(0);
});

test('links are made while another engine takes their empty folders away', async () => {
  const links = Array.from({ length: 200 }, (_, n) => ({ at: at(`/busy/in/${n}`), target: copyOf(`/busy/in/${n}`) }));
  for (const link of links) {
    const tidy = () => tidyLinkFolders(app.ctx, at('/busy/in/x'));
    const making = makeLink(app.ctx, link, { fileId: 1n, mountpoints: [app.restoreDir] });
    await Promise.all([making, tidy().then(tidy).then(tidy)]);
    expect(readlinkSync(link.at)).toBe(link.target);
    await removeLink(link);
  }
  await tidyLinkFolders(app.ctx, at('/busy/in/x'));
  expect(listTree(root)).toEqual([]);
  expect((await app.ctx.db.pool.query('SELECT FROM link_folder')).rowCount).toBe(0);
});

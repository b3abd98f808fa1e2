/** Tapegate removes only its own copies and directories from the restore area, even if a removal is interrupted. */
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { codeOf, TapeError } from '../../src/core/errors.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { beginLinks, LinkKeeper } from '../../src/restore-area/links/keeper.js';
import { openCopyDirectory, removeEmptyDirectories } from '../../src/restore-area/made-directories.js';
import type { TestApp } from '../support/app.js';
import { claim, restoreByHand, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, kill, startProcess } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { giveToUnprivilegedUser, isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { waitFor } from '../support/wait.js';

/** Called just before a step. An exception ends the work there, as a kill would. */
const before = vi.hoisted(() => {
  process.umask(0o027); // the umask of the units in deploy/systemd
  return { mkdir: () => {}, chmod: () => {}, rmdir: () => {} };
});

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  const step =
    <Given extends unknown[], Result>(name: keyof typeof before, call: (...given: Given) => Promise<Result>) =>
    async (...given: Given) => {
      if (name === 'rmdir' || String(given[0]).startsWith('/proc/self/fd/')) before[name]();
      return await call(...given);
    };
  return {
    ...real,
    mkdir: step('mkdir', real.mkdir),
    chmod: step('chmod', real.chmod),
    rmdir: step('rmdir', real.rmdir),
  };
});

const steps = { ...before };
let app: TestApp;
const library = createMemoryLibrary();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  Object.assign(before, steps);
  library.onRead = async (_volume, _position, bytes) => bytes;
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const place = (file: string) => path.join(app.restoreDir, file);
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);
const openOf = (file: string) => openCopyDirectory(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: file });
const die = () => {
  throw new Error('killed');
};
let volumes = 0;

async function restore(file: string): Promise<number> {
  const contents = await addTaped(app.ctx, library, [{ path: file, volume: `MADE${++volumes}` }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await restoreByHand(app, file, contents.get(file) ?? Buffer.of());
  return id;
}

/** Creates a directory as Tapegate does. */
function makeLikeTapegate(name: string, mode = 0o750): void {
  mkdirSync(place(name));
  chmodSync(place(name), mode);
}

test('directories that were made for a copy are removed with it, up to one with other contents', async () => {
  makeLikeTapegate('there');
  writeFileSync(place('there/mine'), 'mine');
  const id = await restore('/there/made/below/file');
  expect(statSync(place('there/made/below')).mode & 0o7777).toBe(0o750);
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(readdirSync(place('there'))).toEqual(['mine']);
  rmSync(place('there'), { recursive: true });
});

const changes: [what: string, change: (directory: string) => void][] = [
  ['mode', (directory) => chmodSync(directory, 0o770)],
  ['set-id bit', (directory) => chmodSync(directory, 0o2750)],
  ['group', (directory) => chownSync(directory, -1, UNPRIVILEGED_UID)],
  ['owner', giveToUnprivilegedUser],
];

test.each(changes.slice(0, isRoot ? undefined : 2))(
  'an empty directory stays if someone changed its %s',
  async (_what, change) => {
    const id = await restore('/changed/made/file');
    change(place('changed'));
    await cancel(app, id);
    expect(await removeAll()).toBe(1);
    expect(listTree(place('changed'))).toEqual([]);
    rmdirSync(place('changed'));
  },
);

test('a directory whose engine was killed before it set the mode gets it from the next engine', async () => {
  before.chmod = die;
  await expect(openOf('/narrow/file')).rejects.toThrow('killed');
  before.chmod = () => {};
  makeLikeTapegate('private', 0o740);
  const ids = [await restore('/narrow/file'), await restore('/private/file')];
  expect(['narrow', 'private'].map((name) => statSync(place(name)).mode & 0o7777)).toEqual([0o750, 0o740]);
  for (const id of ids) await cancel(app, id);
  await removeAll();
  expect(['narrow', 'private'].map((name) => existsSync(place(name)))).toEqual([false, true]);
  rmSync(place('private'), { recursive: true });
});

test('a directory whose engine was killed before it set the mode is removed if its request is cancelled', async () => {
  const file = '/dead/made/file';
  await addTaped(app.ctx, library, [{ path: file, volume: 'MADEDEAD' }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await startByHand(app, await claim(app), [file]);
  before.chmod = die;
  await expect(openOf(file)).rejects.toThrow('killed');
  before.chmod = () => {};
  expect(statSync(place('dead')).mode & 0o7777).toBe(0o1700);
  await cancel(app, id);
  await addTaped(app.ctx, library, [{ path: '/living/file', volume: 'LIVING' }]);
  const other = await makeRequest(app, { quota: 'alice', files: ['/living/file'] });
  await withEngine(app, library, async () => {
    await waitForState(app, other, 'COMPLETED');
    await waitFor('the directory to be removed', async () => !existsSync(place('dead')));
  });
  await cancel(app, other);
  await removeAll();
});

test('an engine that was killed between the removals of two directories leaves the second to the next one', async () => {
  const id = await restore('/outer/inner/file');
  await cancel(app, id);
  let removals = 0;
  before.rmdir = () => {
    if (++removals === 2) die();
  };
  expect([await removeAll(), listTree(place('outer'))]).toEqual([0, []]);
  expect([await removeAll(), existsSync(place('outer'))]).toEqual([1, false]);
});

test('a directory of links that cannot be removed keeps no copy on disk', async () => {
  const root = makeTempDir();
  app.ctx.config.linkRoot = root;
  await beginLinks(app.ctx);
  const id = await restore('/linked/file');
  const settle = () => new LinkKeeper(app.ctx).settleAll(new AbortController().signal);
  await settle();
  expect(listTree(root)).toEqual(['linked', 'linked/file']);
  await cancel(app, id);
  before.rmdir = die;
  await removeAll(); // marks the link
  await settle();
  before.rmdir = steps.rmdir;
  expect([await removeAll(), listTree(root), existsSync(place('linked'))]).toEqual([1, ['linked'], false]);
  app.ctx.config.linkRoot = undefined;
  await beginLinks(app.ctx);
});

test('a directory that disappears while a directory below it is made is made again', async () => {
  const at = { diskId: 1, mountpoint: app.restoreDir, path: '/below/made/file' };
  let calls = 0;
  before.mkdir = () => {
    if (++calls === 2) rmdirSync(place('below'));
  };
  await (await openOf(at.path)).handle.close();
  expect(calls).toBe(4);
  await removeEmptyDirectories(app.ctx, at);
  expect(existsSync(place('below'))).toBe(false);
});

test('a directory that another process removes repeatedly is opened, or found missing', async () => {
  const script = `const { rmdirSync } = require('node:fs');
    const remove = (directory) => { try { rmdirSync(directory); } catch {} };
    console.log('removing');
    for (;;) { remove('busy/b'); remove('busy'); }`;
  const remover = startProcess(process.execPath, ['-e', script], { cwd: app.restoreDir });
  await remover.waitForOutput(/removing/);
  const failures = new Set<unknown>();
  for (let round = 0; round < 100; round++) {
    await openOf('/busy/b/file').then(
      ({ handle }) => handle.close(),
      (error) => failures.add(codeOf(error) ?? String(error)),
    );
  }
  await kill(remover);
  failures.delete('ENOENT'); // the engine retries a recall that failed with ENOENT
  expect([...failures]).toEqual([]);
  await removeEmptyDirectories(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/busy/b/file' });
});

test('many recalls of a batch that fail together cause no warning about listeners', async () => {
  const warnings: string[] = [];
  const hear = ({ name }: Error) => warnings.push(name);
  process.on('warning', hear);
  mkdirSync(place('everybodys'));
  chmodSync(place('everybodys'), 0o777);
  const files = Array.from({ length: 30 }, (_, index) => `/everybodys/${index}/file`);
  const rows = files.map((file, index) => ({ path: file, volume: 'MADEMANY', position: BigInt(index + 1) }));
  await addTaped(app.ctx, library, rows);
  const id = await makeRequest(app, { quota: 'alice', files });
  await withEngine(app, library, () => waitForState(app, id, 'PARTIAL'));
  process.off('warning', hear);
  rmSync(place('everybodys'), { recursive: true });
  expect(warnings).toEqual([]);
});

test('a failed recall leaves no directory that was created for it', async () => {
  const file = '/failing/made/file';
  await addTaped(app.ctx, library, [{ path: file, volume: 'MADEFAIL' }]);
  library.onRead = async () => {
    throw new TapeError('PERMANENT', 'nothing is there');
  };
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, library, () => waitForState(app, id, 'PARTIAL'));
  expect(existsSync(place('failing'))).toBe(false);
});

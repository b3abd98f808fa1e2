/** Tapegate removes its own copies and directories from the restore area, and nothing else, even if it is interrupted. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { HungError } from '../../src/engine/calls.js';
import { DiskError } from '../../src/engine/disk/failures.js';
import { openFolder, removeEmptyFolders } from '../../src/engine/disk/made-folders.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { addDisk, removeDisk } from '../../src/engine/disk/setup.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { codeOf, TapeError } from '../../src/errors.js';
import { noteMade, noteMaking } from '../../src/operations/disks/folders.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, restoreByHand, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, kill, startProcess } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

/** Called just before a record is written; throwing ends the work there, as a kill would. */
const dying = vi.hoisted(() => ({ beforeNote: () => {}, beforeForget: async () => {} }));

vi.mock('../../src/operations/disks/folders.js', async (original) => {
  const real = await original<typeof import('../../src/operations/disks/folders.js')>();
  const noteMade: typeof real.noteMade = async (...given) => {
    dying.beforeNote();
    await real.noteMade(...given);
  };
  const forgetFolders: typeof real.forgetFolders = async (...given) => {
    await dying.beforeForget();
    return await real.forgetFolders(...given);
  };
  return { ...real, noteMade, forgetFolders };
});

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  dying.beforeNote = () => {};
  dying.beforeForget = async () => {};
  backend.onRead = async (_volume, _position, bytes) => bytes;
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const place = (file: string) => path.join(app.restoreDir, file);
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);
const openOf = (file: string) => openFolder(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: file });
const die = () => {
  throw new Error('killed');
};
let volumes = 0;

async function restore(file: string): Promise<number> {
  const contents = await addTaped(app.ctx, backend, [{ path: file, volume: `MADE${++volumes}` }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await restoreByHand(app, file, contents.get(file) ?? Buffer.of());
  return id;
}

/** Returns the recorded folders at and below one. */
async function listNoted(top: string): Promise<string[]> {
  const { rows } = await app.ctx.db.pool.query<{ path: string }>(
    `SELECT path FROM made_folder WHERE path = $1 OR path LIKE $1 || '/%' ORDER BY path`,
    [top],
  );
  return rows.map((row) => row.path);
}

/** Makes a folder as Tapegate does. */
function makeLikeTapegate(name: string, mode = 0o755): void {
  mkdirSync(place(name));
  chmodSync(place(name), mode);
}

/** Returns the findings of the doctor about folders. */
async function askDoctor(options: { repair?: boolean; adopt?: boolean } = {}): Promise<string[]> {
  const found: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false, ...options }, ({ kind, thing, isRepaired }) => {
    if (/folder/.test(kind))
      found.push(`${kind} ${path.relative(app.restoreDir, thing)}${isRepaired ? ' repaired' : ''}`);
  });
  return found;
}

test('a folder that was made for a copy is removed with it, and one that existed before stays', async () => {
  mkdirSync(place('there'));
  chmodSync(place('there'), 0o755);
  const id = await restore('/there/made/below/file');
  expect(await listNoted('/there')).toEqual(['/there/made', '/there/made/below']);
  expect(statSync(place('there/made/below')).mode & 0o7777).toBe(0o755);
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(readdirSync(place('there'))).toEqual([]);
  expect(await listNoted('/there')).toEqual([]);
  rmdirSync(place('there'));
});

test('a folder that replaces a made one stays, and so does the made one that was moved away', async () => {
  const id = await restore('/moved/made/file');
  renameSync(place('moved/made'), place('moved/elsewhere'));
  mkdirSync(place('moved/made'));
  renameSync(place('moved/elsewhere/file'), place('moved/made/file'));
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(await readStage(app, '/moved/made/file')).toBe('T');
  expect(readdirSync(place('moved')).sort()).toEqual(['elsewhere', 'made']);
  rmSync(place('moved'), { recursive: true });
  expect(await askDoctor({ repair: true })).toEqual([
    'note-without-folder moved repaired',
    'note-without-folder moved/made repaired',
  ]);
});

test('a folder that was not recorded when its engine was killed is removed with the first copy that is put there', async () => {
  dying.beforeNote = die;
  await expect(openOf('/half/made/file')).rejects.toThrow('killed');
  expect(existsSync(place('half'))).toBe(true);
  dying.beforeNote = () => {};
  const id = await restore('/half/made/other');
  await cancel(app, id);
  await removeAll();
  expect(existsSync(place('half'))).toBe(false);
  expect(await listNoted('/half')).toEqual([]);
});

test('a folder whose mode was not set yet when its engine was killed gets it from the next engine', async () => {
  await noteMaking(app.ctx, 1, ['/narrow']);
  for (const name of ['narrow', 'private']) makeLikeTapegate(name, 0o700);
  const ids = [await restore('/narrow/file'), await restore('/private/file')];
  expect(['narrow', 'private'].map((name) => statSync(place(name)).mode & 0o7777)).toEqual([0o755, 0o700]);
  for (const id of ids) await cancel(app, id);
  await removeAll();
  expect(['narrow', 'private'].map((name) => existsSync(place(name)))).toEqual([false, true]);
  rmdirSync(place('private'));
});

test('a folder that was removed outside Tapegate, and that an engine made again before it was killed, is removed', async () => {
  await (await openOf('/anew/file')).handle.close();
  rmdirSync(place('anew'));
  makeLikeTapegate('other'); // so that the next folder has another inode
  dying.beforeNote = die;
  await expect(openOf('/anew/file')).rejects.toThrow('killed');
  dying.beforeNote = () => {};
  await removeEmptyFolders(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/anew/file' });
  expect([existsSync(place('anew')), await listNoted('/anew')]).toEqual([false, []]);
  rmdirSync(place('other'));
});

test('a folder that another engine has just made stays recorded if the next one cannot be made', async () => {
  const at = { diskId: 1, mountpoint: app.restoreDir, path: '/shared/blocked/made/file' };
  let calls = 0;
  const opened = openFolder(app.ctx, at, async (call) => {
    const result = await call();
    if (++calls === 1) {
      makeLikeTapegate('shared');
      const { ino } = statSync(place('shared'), { bigint: true });
      await noteMade(app.ctx, 1, [{ path: '/shared', ino, birthNs: null }]);
      writeFileSync(place('shared/blocked'), 'my own');
    }
    return result;
  });
  await expect(opened).rejects.toThrow('a file is in the way');
  expect(await listNoted('/shared')).toEqual(['/shared', '/shared/blocked']);
  rmSync(place('shared'), { recursive: true });
  expect(await askDoctor({ repair: true })).toEqual([
    'note-without-folder shared repaired',
    'note-without-folder shared/blocked repaired',
  ]);
});

test('a folder that an engine made before it was killed is removed if its request is cancelled', async () => {
  const file = '/dead/made/file';
  await addTaped(app.ctx, backend, [{ path: file, volume: 'MADEDEAD' }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await startByHand(app, await claim(app), [file]);
  dying.beforeNote = die;
  await expect(openOf(file)).rejects.toThrow('killed');
  dying.beforeNote = () => {};
  expect(existsSync(place('dead/made'))).toBe(true);
  await cancel(app, id);
  await addTaped(app.ctx, backend, [{ path: '/living/file', volume: 'LIVING' }]);
  const other = await makeRequest(app, { quota: 'alice', files: ['/living/file'] });
  await withEngine(app, backend, () => waitForState(app, other, 'COMPLETED'));
  expect(existsSync(place('dead'))).toBe(false);
  expect(await listNoted('/dead')).toEqual([]);
  await cancel(app, other);
  await removeAll();
});

test('a folder that was removed just before a kill is forgotten by the next check', async () => {
  const id = await restore('/gone/made/file');
  await cancel(app, id);
  dying.beforeForget = async () => die();
  await removeAll();
  expect(existsSync(place('gone'))).toBe(false);
  expect(await listNoted('/gone')).toEqual(['/gone', '/gone/made']);
  dying.beforeForget = async () => {};
  await app.ctx.db.pool.query('DELETE FROM removal'); // its claim is over
  await removeAll();
  expect(await listNoted('/gone')).toEqual([]);
});

test('a folder that a hanging disk makes late is still recorded, and removed', async () => {
  const at = { diskId: 1, mountpoint: app.restoreDir, path: '/hung/file' };
  let calls = 0;
  const hang = async <T>(call: () => Promise<T>): Promise<T> => {
    if (++calls === 2) throw new DiskError(new HungError({ kind: 'disk', mountpoint: app.restoreDir }, 1));
    return await call();
  };
  await expect(openFolder(app.ctx, at, hang)).rejects.toThrow('has not answered for 1 s');
  makeLikeTapegate('hung');
  await removeEmptyFolders(app.ctx, at);
  expect(existsSync(place('hung'))).toBe(false);
  expect(await listNoted('/hung')).toEqual([]);
});

test('a folder that disappears while a folder below it is made is made again', async () => {
  const at = { diskId: 1, mountpoint: app.restoreDir, path: '/below/made/file' };
  await (await openOf('/below/file')).handle.close();
  let calls = 0;
  const folder = await openFolder(app.ctx, at, async (call) => {
    if (++calls === 2) rmdirSync(place('below'));
    return await call();
  });
  await folder.handle.close();
  await removeEmptyFolders(app.ctx, at);
  expect(existsSync(place('below'))).toBe(false);
});

test('a folder that another process removes again and again is opened, or found missing', async () => {
  const script = `const { rmdirSync } = require('node:fs');
    const remove = (folder) => { try { rmdirSync(folder); } catch {} };
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
  failures.delete('ENOENT'); // such a recall is tried again later
  expect([...failures]).toEqual([]);
  await removeEmptyFolders(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/busy/b/file' });
});

test('a folder that is made again while its old record is removed stays recorded', async () => {
  const id = await restore('/again/file');
  await cancel(app, id);
  dying.beforeForget = async () => {
    dying.beforeForget = async () => {};
    await noteMaking(app.ctx, 1, ['/again']);
    makeLikeTapegate('again');
  };
  await removeAll();
  const folder = await openOf('/again/other');
  await folder.handle.close();
  expect(await listNoted('/again')).toEqual(['/again']);
  expect(await askDoctor({ repair: true })).toEqual(['folder-left again repaired']);
  expect(await listNoted('/again')).toEqual([]);
});

test('many recalls of a batch that fail together cause no warning about listeners', async () => {
  const warnings: string[] = [];
  const hear = ({ name }: Error) => warnings.push(name);
  process.on('warning', hear);
  mkdirSync(place('everybodys'));
  chmodSync(place('everybodys'), 0o777);
  const files = Array.from({ length: 30 }, (_, index) => `/everybodys/${index}/file`);
  const rows = files.map((file, index) => ({ path: file, volume: 'MADEMANY', position: BigInt(index + 1) }));
  await addTaped(app.ctx, backend, rows);
  const id = await makeRequest(app, { quota: 'alice', files });
  await withEngine(app, backend, () => waitForState(app, id, 'PARTIAL'));
  process.off('warning', hear);
  rmSync(place('everybodys'), { recursive: true });
  expect(warnings).toEqual([]);
});

test('a recall that fails leaves no folder that was made for it', async () => {
  const file = '/failing/made/file';
  await addTaped(app.ctx, backend, [{ path: file, volume: 'MADEFAIL' }]);
  backend.onRead = async () => {
    throw new TapeError('PERMANENT', 'nothing is there');
  };
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, () => waitForState(app, id, 'PARTIAL'));
  expect(existsSync(place('failing'))).toBe(false);
  expect(await listNoted('/failing')).toEqual([]);
});

test('the doctor reports records without folders and empty folders without records, repairs records, and removes folders with adopt', async () => {
  mkdirSync(place('doctor/anybodys'), { recursive: true });
  chmodSync(place('doctor/anybodys'), 0o755);
  mkdirSync(place('doctor/closed'));
  chmodSync(place('doctor/closed'), 0o700);
  await restore('/doctor/one/file');
  await restore('/doctor/two/file');
  expect(await askDoctor()).toEqual(['folder-unnoted doctor/anybodys']);
  rmSync(place('doctor/one'), { recursive: true });
  renameSync(place('doctor/two'), place('doctor/three'));
  mkdirSync(place('doctor/two'));
  const gone = ['note-without-folder doctor/one', 'note-without-folder doctor/two'];
  const unnoted = 'folder-unnoted doctor/anybodys';
  expect((await askDoctor({ repair: true })).sort()).toEqual([
    unnoted,
    'folder-unnoted doctor/two',
    ...gone.map((finding) => `${finding} repaired`),
  ]);
  expect(await listNoted('/doctor')).toEqual([]);
  expect((await askDoctor({ repair: true, adopt: true })).sort()).toEqual([
    `${unnoted} repaired`,
    'folder-unnoted doctor/two repaired',
  ]);
  expect(readdirSync(place('doctor')).sort()).toEqual(['closed', 'three']);
});

test('a disk that is removed loses its records of folders, and keeps the folders', async () => {
  const mountpoint = path.join(app.dataDir, 'other');
  const { disk } = await addDisk(app.ctx, { mountpoint, size: 10n, create: true });
  const folder = await openFolder(app.ctx, { diskId: disk.id, mountpoint, path: '/other/file' });
  await folder.handle.close();
  expect(await listNoted('/other')).toEqual(['/other']);
  await removeDisk(app.ctx, mountpoint);
  expect(await listNoted('/other')).toEqual([]);
  expect(readdirSync(mountpoint)).toEqual(['other']);
});

/** Tapegate removes its own copies and directories from the restore area, and nothing else, even if it is interrupted. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { HungError } from '../../src/engine/calls.js';
import { DiskError } from '../../src/engine/disk/failures.js';
import { MAKING_MODE } from '../../src/engine/disk/made-folder.js';
import { openFolder } from '../../src/engine/disk/making.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { addDisk, removeDisk } from '../../src/engine/disk/setup.js';
import { removeEmptyFolders } from '../../src/engine/disk/tidying.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { codeOf, TapeError } from '../../src/errors.js';
import { noteMaking } from '../../src/operations/disks/folders.js';
import { letGo, readUnheld } from '../../src/operations/disks/removals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, restoreByHand, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree, readStage } from '../support/engine-watch.js';
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

/** Called before a file is moved, and before a link is made. */
const disk = vi.hoisted(() => ({ beforeRename: (): void => {}, link: undefined as (() => void) | undefined }));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  return {
    ...real,
    renameSync: (from: string, to: string) => {
      disk.beforeRename();
      real.renameSync(from, to);
    },
    linkSync: (from: string, to: string) => {
      disk.link?.();
      real.linkSync(from, to);
    },
  };
});

let app: TestApp;
let errors: string[] = [];
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
  app.ctx.log = pino({ level: 'error' }, { write: (line: string) => errors.push(line) });
});
afterEach(() => {
  dying.beforeNote = () => {};
  dying.beforeForget = async () => {};
  disk.beforeRename = () => {};
  disk.link = undefined;
  errors = [];
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
  expect(statSync(place('half')).mode & 0o7777).toBe(MAKING_MODE);
  dying.beforeNote = () => {};
  const id = await restore('/half/made/other');
  expect(statSync(place('half/made')).mode & 0o7777).toBe(0o755);
  await cancel(app, id);
  await removeAll();
  expect(existsSync(place('half'))).toBe(false);
  expect(await listNoted('/half')).toEqual([]);
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
  mkdirSync(place('hung'));
  chmodSync(place('hung'), MAKING_MODE);
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
    mkdirSync(place('again'), MAKING_MODE);
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

const noLinks = () => {
  throw Object.assign(new Error('EPERM: no links here'), { code: 'EPERM' });
};

/** Restores a file and releases its copy. @returns the temporary path at which the copy is removed */
async function releaseCopy(file: string): Promise<string> {
  const id = await restore(file);
  await cancel(app, id);
  await letGo(app.ctx, {
    unchanged: (await readUnheld(app.ctx, { requestId: id, after: 0, limit: 1 })).copies,
    changed: [],
  });
  const { ino, mtimeNs } = statSync(place(file), { bigint: true });
  return path.join(path.dirname(place(file)), `.tapegate-removed-${ino}-${mtimeNs}.part`);
}

/** Replaces the copy by a file of another user, once, just before it is moved. */
function swapBeforeRename(file: string): void {
  disk.beforeRename = () => {
    disk.beforeRename = () => {};
    renameSync(place(file), path.join(app.dataDir, `swapped-${volumes}`));
    writeFileSync(place(file), 'my own');
  };
}

test.each([
  ['with links', undefined],
  ['without links', noLinks],
])("on a file system %s, another user's file that was moved by mistake is moved back", async (what, link) => {
  const file = `/aside/back ${what}/file`;
  await releaseCopy(file);
  swapBeforeRename(file);
  disk.link = link;
  await removeAll();
  expect([readFileSync(place(file), 'utf8'), listTree(path.dirname(place(file)))]).toEqual(['my own', ['file']]);
  await removeAll();
  expect([readFileSync(place(file), 'utf8'), await readStage(app, file)]).toEqual(['my own', 'U']);
});

test.each([
  ['with links', () => {}],
  ['without links', noLinks],
])("on a file system %s, another user's file that cannot be moved back stays, and is logged", async (what, link) => {
  const file = `/aside/taken/${what}`;
  const aside = await releaseCopy(file);
  swapBeforeRename(file);
  disk.link = () => {
    writeFileSync(place(file), 'a third one');
    link();
  };
  await removeAll();
  expect([readFileSync(aside, 'utf8'), readFileSync(place(file), 'utf8')]).toEqual(['my own', 'a third one']);
  expect(errors.join()).toContain('was moved out of its place by mistake, and cannot be put back');
  disk.link = undefined;
  await removeAll();
  expect([readFileSync(aside, 'utf8'), readFileSync(place(file), 'utf8')]).toEqual(['my own', 'a third one']);
});

test('a copy that a process moved before it was killed is removed', async () => {
  const aside = await releaseCopy('/aside/killed/copy');
  renameSync(place('/aside/killed/copy'), aside);
  expect(await removeAll()).toBe(1);
  expect(existsSync(place('/aside/killed'))).toBe(false);
});

test("another user's file that a process moved before it was killed is moved back", async () => {
  const aside = await releaseCopy('/aside/killed/other');
  renameSync(place('/aside/killed/other'), path.join(app.dataDir, 'killed'));
  writeFileSync(aside, 'my own');
  expect(await removeAll()).toBe(0);
  expect(readFileSync(place('/aside/killed/other'), 'utf8')).toBe('my own');
  expect(listTree(place('/aside/killed'))).toEqual(['other']);
});

/** The restore area on a host whose other users may write to some of its folders. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { putInPlace } from '../../src/engine/disk/copy.js';
import { linkPath } from '../../src/engine/disk/descriptors.js';
import { removeLeftBehind } from '../../src/engine/disk/left-behind.js';
import { openFolder } from '../../src/engine/disk/making.js';
import { partialName } from '../../src/engine/disk/partial-name.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { addDisk, removeDisk } from '../../src/engine/disk/setup.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { listDisks } from '../../src/operations/disks/disks.js';
import { resume } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, restoreByHand, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { cleanUp } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { giveToUnprivilegedUser, isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { waitFor } from '../support/wait.js';

/** Called just before a file or a folder is removed. */
const disk = vi.hoisted(() => ({
  beforeUnlink: (_file: string): void => {},
  beforeRmdir: (_folder: string): void => {},
}));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  return {
    ...real,
    unlink: async (file: string) => {
      disk.beforeUnlink(file);
      await real.unlink(file);
    },
    rmdir: async (folder: string) => {
      disk.beforeRmdir(folder);
      await real.rmdir(folder);
    },
  };
});

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  disk.beforeUnlink = () => {};
  disk.beforeRmdir = () => {};
  backend.onRead = async (_volume, _position, bytes) => bytes;
});
afterAll(async () => {
  await app.close();
  await cleanUp();
});

const place = (file: string) => path.join(app.restoreDir, file);
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);
let volumes = 0;

async function request(file: string): Promise<{ id: number; bytes: Uint8Array }> {
  const contents = await addTaped(app.ctx, backend, [{ path: file, volume: `STRANGE${++volumes}` }]);
  return { id: await makeRequest(app, { quota: 'alice', files: [file] }), bytes: contents.get(file) ?? Buffer.of() };
}

const complete = (id: number) => withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));

async function restore(file: string): Promise<number> {
  const { id, bytes } = await request(file);
  await restoreByHand(app, file, bytes);
  return id;
}

/** Runs a script as another user. @returns its output; the code of an error */
function asStranger(script: string, ...args: string[]): string {
  const whole = `const fs = require('node:fs'); const path = require('node:path'); const args = process.argv.slice(1);
    try { ${script} } catch (error) { console.log(error.code); }`;
  const user = { uid: UNPRIVILEGED_UID, gid: UNPRIVILEGED_UID, cwd: '/' };
  const { stdout } = spawnSync(process.execPath, ['-e', whole, ...args], { ...user, encoding: 'utf8' });
  return stdout.trim();
}

/** Makes a folder that belongs to the other user. */
function makeStrangers(folder: string): string {
  mkdirSync(folder, { recursive: true });
  giveToUnprivilegedUser(folder);
  return folder;
}

const asRoot = test.runIf(isRoot && process.platform === 'linux');

asRoot('a folder that is moved away while its file is read gets none of the bytes', async () => {
  const outside = makeStrangers(path.join(app.dataDir, 'outside'));
  makeStrangers(place('theirs'));
  makeStrangers(place('theirs/sub'));
  const moved: string[] = [];
  backend.onRead = async (_volume, _position, bytes) => {
    if (moved.length === 0) {
      const move = 'fs.renameSync(args[0], args[1]); fs.mkdirSync(args[0]); console.log("moved");';
      moved.push(asStranger(move, place('theirs/sub'), path.join(outside, 'sub')));
    }
    return bytes;
  };
  const { id, bytes } = await request('/theirs/sub/file');
  await complete(id);
  expect(moved).toEqual(['moved']);
  expect(listTree(outside)).toEqual(['sub']);
  expect(readFileSync(place('theirs/sub/file'))).toEqual(Buffer.from(bytes));
});

asRoot('a folder that is moved away while its file is put in place gets no file', async () => {
  const folderOf = makeStrangers(place('swap'));
  const folder = await openFolder(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/swap/file' });
  writeFileSync(path.join(folderOf, 'part'), 'copy');
  const { ino } = statSync(path.join(folderOf, 'part'), { bigint: true });
  const link: typeof linkPath = async (from, to) => {
    const { status } = spawnSync('mv', [folderOf, `${app.dataDir}/swap-away`]);
    expect(status).toBe(0);
    await linkPath(from, to);
  };
  await expect(putInPlace(folder, 'part', 'file', { link, ino })).rejects.toThrow('was moved away');
  await folder.handle.close();
  expect(readdirSync(`${app.dataDir}/swap-away`)).toEqual(['part']);
});

asRoot('a file that replaces the partial file is neither put in place nor removed', async () => {
  const folderOf = makeStrangers(place('exchange'));
  const folder = await openFolder(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/exchange/file' });
  writeFileSync(path.join(folderOf, 'part'), 'copy');
  const { ino } = statSync(path.join(folderOf, 'part'), { bigint: true });
  const link: typeof linkPath = async (from, to) => {
    expect(
      asStranger(
        "fs.writeFileSync(args[0] + '.own', 'my own'); fs.renameSync(args[0] + '.own', args[0])",
        `${folderOf}/part`,
      ),
    ).toBe('');
    await linkPath(from, to);
  };
  await expect(putInPlace(folder, 'part', 'file', { link, ino })).rejects.toThrow('was exchanged by somebody else');
  await folder.handle.close();
  expect(readdirSync(folderOf)).toEqual(['part']);
  expect(readFileSync(path.join(folderOf, 'part'), 'utf8')).toBe('my own');
});

asRoot("another user's file that replaces a copy just before its removal stays", async () => {
  const folderOf = makeStrangers(place('remove'));
  const own = path.join(folderOf, 'own');
  const id = await restore('/remove/file');
  asStranger("fs.writeFileSync(args[0], 'my own')", own);
  const { ino } = statSync(own);
  disk.beforeUnlink = (file) => {
    const real = path.join(readlinkSync(path.dirname(file)), path.basename(file));
    asStranger('fs.renameSync(args[0], args[1])', own, real);
  };
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(await readStage(app, '/remove/file')).toBe('T');
  expect([readdirSync(folderOf), statSync(own).ino]).toEqual([['own'], ino]);
});

asRoot("another user's folder that replaces an empty one just before its removal stays", async () => {
  const folderOf = makeStrangers(place('tidy'));
  const id = await restore('/tidy/made/file');
  disk.beforeRmdir = () => {
    asStranger('fs.renameSync(args[0], args[0] + ".theirs"); fs.mkdirSync(args[0])', path.join(folderOf, 'made'));
    asStranger('fs.mkdirSync(args[0])', path.join(folderOf, 'made'));
  };
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(readdirSync(folderOf)).toEqual(['made']);
  expect(statSync(path.join(folderOf, 'made')).uid).toBe(UNPRIVILEGED_UID);
});

asRoot("another user's file with the name of a partial file stays, and the recall waits and names it", async () => {
  const folderOf = makeStrangers(place('names'));
  const files = ['/names/first', '/names/second'];
  await addTaped(app.ctx, backend, [
    { path: '/names/first', volume: 'NAMES', position: 1n },
    { path: '/names/second', volume: 'NAMES', position: 2n },
  ]);
  const { rows } = await app.ctx.db.pool.query(`SELECT id FROM tape_file WHERE path = '/names/second'`);
  const planted: string[] = [];
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n && planted.length === 0) {
      // a partial file is opened while its first bytes are read
      const part = await waitFor('the first partial file', async () =>
        readdirSync(folderOf).find((name) => name.endsWith('.part')),
      );
      planted.push(path.join(folderOf, part.replace(/^\.tapegate-\d+/, `.tapegate-${rows[0].id}`)));
      asStranger("fs.writeFileSync(args[0], 'my own')", ...planted);
    }
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files });
  const [own = ''] = await withEngine(app, backend, () =>
    waitFor('the recall to have failed', async () => {
      const failed = await app.ctx.db.pool.query(`SELECT error FROM recall WHERE error_class IS NOT NULL`);
      return failed.rows[0]?.error.includes(`${planted[0]} is somebody else's`) ? planted : undefined;
    }),
  );
  expect(readFileSync(own, 'utf8')).toBe('my own');
  asStranger('fs.unlinkSync(args[0])', own);
  await app.ctx.db.pool.query('UPDATE recall SET not_before = NULL');
  await complete(id);
});

asRoot("another user's file at the temporary path of a removal stays", async () => {
  const folderOf = makeStrangers(place('aside'));
  const id = await restore('/aside/file');
  const { ino, mtimeNs } = statSync(path.join(folderOf, 'file'), { bigint: true });
  const own = path.join(folderOf, `.tapegate-removed-${ino}-${mtimeNs}.part`);
  asStranger("fs.writeFileSync(args[0], 'my own')", own);
  await cancel(app, id);
  expect(await removeAll()).toBe(1);
  expect(readdirSync(folderOf)).toEqual([path.basename(own)]);
  expect(readFileSync(own, 'utf8')).toBe('my own');
});

/** Moves files as a process does that removes them and is killed then. @returns their temporary paths */
function killedWhileTaking(...files: string[]): string[] {
  const aside = path.join(app.restoreDir, '.tapegate-aside');
  mkdirSync(aside, { recursive: true, mode: 0o700 });
  return files.map((file) => {
    renameSync(file, path.join(aside, path.basename(file)));
    return path.join(aside, path.basename(file));
  });
}

asRoot.each([
  ['in its folder', true],
  ['whose folder is gone', false],
])('a partial file %s that an engine moved before it was killed is removed', async (_what, isKept) => {
  const file = `/taken-${isKept}/file`;
  makeStrangers(path.dirname(place(file)));
  const { id } = await request(file);
  const lease = await claim(app);
  const [started] = await startByHand(app, lease, [file]);
  const name = partialName({ fileId: started?.fileId ?? 0n, ...lease });
  writeFileSync(path.join(path.dirname(place(file)), name), 'a part');
  const [aside = ''] = killedWhileTaking(path.join(path.dirname(place(file)), name));
  if (!isKept) rmdirSync(path.dirname(place(file)));
  await complete(id);
  expect(existsSync(aside)).toBe(false);
});

asRoot('a stale partial file that a process moved before it was killed is removed', async () => {
  const folderOf = makeStrangers(place('left-aside'));
  await addTaped(app.ctx, backend, [{ path: '/left-aside/file', volume: 'ASIDELEFT' }]);
  const fileId = await idOf(app, '/left-aside/file');
  const part = path.join(folderOf, partialName({ fileId, driveId: 1, epoch: 1n }));
  writeFileSync(part, 'a part');
  const [aside = ''] = killedWhileTaking(part);
  await app.ctx.db.pool.query(
    'INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size) VALUES ($1, 1, 1, 1, 6)',
    [fileId],
  );
  expect(await removeLeftBehind(app.ctx, new AbortController().signal)).toBe(1);
  expect(existsSync(aside)).toBe(false);
});

asRoot('a partial file whose removal failed after it was moved is removed at the next try', async () => {
  makeStrangers(place('stuck-aside'));
  let failures = 0;
  disk.beforeUnlink = (file) => {
    if (!file.endsWith('.part') || failures++ > 0) return;
    throw Object.assign(new Error('EIO: the disk fails'), { code: 'EIO' });
  };
  const { id } = await request('/stuck-aside/file');
  await withEngine(app, backend, async () => {
    await waitFor('the failure', async () => failures > 0 || undefined);
    await app.ctx.db.pool.query('UPDATE recall SET not_before = NULL');
    await waitForState(app, id, 'COMPLETED');
  });
  expect(listTree(path.join(app.restoreDir, '.tapegate-aside'))).toEqual([]);
});

asRoot("another user's file that was moved by mistake before a kill is moved back", async () => {
  const folderOf = makeStrangers(place('given-back'));
  const { id } = await request('/given-back/file');
  const lease = await claim(app);
  const [started] = await startByHand(app, lease, ['/given-back/file']);
  const part = path.join(folderOf, partialName({ fileId: started?.fileId ?? 0n, ...lease }));
  asStranger("fs.writeFileSync(args[0], 'my own')", part);
  killedWhileTaking(part);
  await complete(id);
  expect(readFileSync(part, 'utf8')).toBe('my own');
});

test.each(['EIO', 'EROFS', 'ENOSPC'])(
  'a folder whose removal failed with %s is removed when its disk works again',
  async (code) => {
    const id = await restore(`/fails/${code}/file`);
    disk.beforeRmdir = () => {
      throw Object.assign(new Error(`${code}: the disk fails`), { code });
    };
    await cancel(app, id);
    expect([await removeAll(), listTree(place('fails'))]).toEqual([0, [code]]);
    disk.beforeRmdir = () => {};
    await app.ctx.db.pool.query('DELETE FROM failing_disk');
    expect([await removeAll(), existsSync(place('fails'))]).toEqual([1, false]);
  },
);

test('the doctor reports a folder that its disk does not remove, and logs why', async () => {
  const id = await restore('/doctor-fails/file');
  disk.beforeRmdir = () => {
    throw Object.assign(new Error('EROFS: the disk fails'), { code: 'EROFS' });
  };
  await cancel(app, id);
  await removeAll();
  const warn = vi.spyOn(app.ctx.log, 'warn');
  const doctor = async () => {
    const found: object[] = [];
    await examine(app.ctx, { repair: true, checksums: false }, (finding) => found.push(finding));
    return found;
  };
  const left = { kind: 'folder-left', thing: place('doctor-fails') };
  expect(await doctor()).toContainEqual(expect.objectContaining({ ...left, isRepaired: false }));
  expect(warn.mock.calls).toContainEqual([{ folder: place('doctor-fails') }, expect.stringContaining('EROFS')]);
  disk.beforeRmdir = () => {
    throw new Error('a mistake of the program');
  };
  await expect(doctor()).rejects.toThrow('a mistake of the program');
  disk.beforeRmdir = () => {};
  warn.mockRestore();
  expect(await doctor()).toContainEqual(expect.objectContaining({ ...left, isRepaired: true }));
});

test('no file is restored to a folder that all users may write to', async () => {
  mkdirSync(place('everybodys'));
  chmodSync(place('everybodys'), 0o777);
  const { id } = await request('/everybodys/below/file');
  const { holds } = await withEngine(app, backend, () => waitForState(app, id, 'PARTIAL'));
  const error = expect.stringContaining(`everybody may write in ${place('everybodys')} (mode 0777)`);
  expect(holds).toMatchObject([{ state: 'FAILED', errorClass: 'POLICY', error }]);
  expect(listTree(place('everybodys'))).toEqual([]);
  chmodSync(place('everybodys'), 0o1777);
  const { id: again } = await request('/everybodys/sticky/file');
  await complete(again);
  expect(existsSync(place('everybodys/sticky/file'))).toBe(true);
});

test('a restore disk that all users may write to is suspended with that reason, until it is repaired and resumed', async () => {
  chmodSync(app.restoreDir, 0o777);
  const { id } = await request('/root/file');
  const { rows } = await withEngine(app, backend, () =>
    waitFor('the disk to be held', async () => {
      const held = await app.ctx.db.pool.query("SELECT reason FROM suspension WHERE kind = 'DISK'");
      return held.rowCount === 1 ? held : undefined;
    }),
  );
  expect(rows[0].reason).toContain(`everybody may write in ${app.restoreDir} (mode 0777)`);
  expect(listTree(app.restoreDir)).not.toContain('root');
  chmodSync(app.restoreDir, 0o755);
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir });
  await complete(id);
});

test('a mount point that others may write to, or above, is refused as a restore disk', async () => {
  const above = path.join(app.dataDir, 'above');
  const mountpoint = path.join(above, 'disk');
  mkdirSync(mountpoint, { recursive: true });
  const add = (input = {}) =>
    addDisk(app.ctx, { mountpoint, size: 10n, ...input }).then(
      ({ disk }) => disk.mountpoint,
      (error: Error) => error.message,
    );
  chmodSync(mountpoint, 0o777);
  expect(await add()).toContain(`is open to others: everybody may write in ${mountpoint} (mode 0777)`);
  chmodSync(mountpoint, 0o775);
  expect(await add()).toContain(`group ${statSync(mountpoint).gid} may write in ${mountpoint} (mode 0775)`);
  chmodSync(mountpoint, 0o755);
  chmodSync(above, 0o777);
  expect(await add()).toContain(`everybody may write in ${above} (mode 0777)`);
  chmodSync(above, 0o755);
  if (isRoot) {
    giveToUnprivilegedUser(mountpoint);
    expect(await add()).toContain(`${mountpoint} belongs to another user (uid ${UNPRIVILEGED_UID})`);
  }
  expect(readdirSync(mountpoint)).toEqual([]);
  expect((await listDisks(app.ctx)).map((disk) => disk.mountpoint)).toEqual([app.restoreDir]);
  const umask = process.umask(0);
  const made = path.join(app.dataDir, 'made/disk');
  expect(await add({ mountpoint: made, create: true })).toBe(made);
  process.umask(umask);
  expect([made, path.dirname(made)].map((folder) => statSync(folder).mode & 0o777)).toEqual([0o755, 0o755]);
});

test('the group of RESTORE_GROUP may write to a restore disk', async () => {
  const mountpoint = path.join(app.dataDir, 'of-the-group');
  mkdirSync(mountpoint);
  chmodSync(mountpoint, 0o2775);
  const ctx = { ...app.ctx, config: { ...app.ctx.config, restoreGroup: statSync(mountpoint).gid } };
  expect(await addDisk(ctx, { mountpoint, size: 10n })).toMatchObject({ problem: undefined });
  await removeDisk(ctx, mountpoint);
});

test('the doctor reports folders that others may write to', async () => {
  const kept = path.join(app.restoreDir, 'anybodys');
  mkdirSync(kept);
  chmodSync(kept, 0o777);
  chmodSync(app.restoreDir, 0o777);
  const findings: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false }, ({ kind, thing }) => findings.push(`${kind} ${thing}`));
  chmodSync(app.restoreDir, 0o755);
  expect(findings.filter((finding) => finding.includes('-open '))).toEqual([
    `disk-open ${app.restoreDir}`,
    `folder-open ${kept}`,
  ]);
});

test.each([
  ['is removed', true],
  ['stays if its bytes differ', false],
])('a file with the inode, size and time of a stale copy %s', async (_what, isCopy) => {
  const file = `/left/${isCopy}`;
  const contents = await addTaped(app.ctx, backend, [{ path: file, volume: `LEFT${isCopy}` }]);
  const bytes = contents.get(file) ?? Buffer.of();
  mkdirSync(path.dirname(place(file)), { recursive: true });
  writeFileSync(place(file), isCopy ? bytes : Buffer.alloc(bytes.length));
  const { ino, mtimeNs, size } = statSync(place(file), { bigint: true });
  await app.ctx.db.pool.query(
    `INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size, ino, mtime_ns, checksum)
     SELECT id, 1, 1, 1, $2, $3, $4, checksum FROM tape_file WHERE path = $1`,
    [file, size, ino, mtimeNs],
  );
  expect(await removeLeftBehind(app.ctx, new AbortController().signal)).toBe(1);
  expect(existsSync(place(file))).toBe(!isCopy);
});

/**
 * Restore disks with directories in which unprivileged users may write, and directories and stale copies that cannot be
 * removed.
 */
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { listDisks } from '../../src/domain/disks/disks.js';
import { resume } from '../../src/domain/health/suspensions.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { removeStaleFiles, removeUnheld } from '../../src/restore-area/copies/removal.js';
import { openCopyDirectory } from '../../src/restore-area/made-directories.js';
import { addDisk, removeDiskAndMarker as removeRestoreDisk } from '../../src/restore-area/setup.js';
import type { TestApp } from '../support/app.js';
import { restoreByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { cleanUp } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { giveToUnprivilegedUser, isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { waitFor } from '../support/wait.js';

/** Called just before a directory is removed. */
const disk = vi.hoisted(() => ({ beforeRmdir: (): void => {} }));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  const rmdir = async (directory: string) => {
    disk.beforeRmdir();
    await real.rmdir(directory);
  };
  return { ...real, rmdir };
});

let app: TestApp;
const library = createMemoryLibrary();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  disk.beforeRmdir = () => {};
});
afterAll(async () => {
  await app.close();
  await cleanUp();
});

const place = (file: string) => path.join(app.restoreDir, file);
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);
let volumes = 0;

async function request(file: string): Promise<{ id: number; bytes: Uint8Array }> {
  const contents = await addTaped(app.ctx, library, [{ path: file, volume: `STRANGE${++volumes}` }]);
  return { id: await makeRequest(app, { quota: 'alice', files: [file] }), bytes: contents.get(file) ?? Buffer.of() };
}

async function restore(file: string): Promise<number> {
  const { id, bytes } = await request(file);
  await restoreByHand(app, file, bytes);
  return id;
}

test.each(['EIO', 'EROFS', 'ENOSPC'])(
  'a directory whose removal failed with %s is removed when its disk works again',
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

/** Changes that each make a directory untrusted. */
const changes: [what: string, change: (directory: string) => void, isAllowed: boolean, problem: string][] = [
  [
    'all users may write in',
    (directory) => chmodSync(directory, 0o777),
    true,
    'every user may write to the directory (mode 0777)',
  ],
  [
    'has the sticky bit',
    (directory) => chmodSync(directory, 0o1777),
    true,
    'every user may write to the directory (mode 1777)',
  ],
  [
    'a group may write in',
    (directory) => {
      chownSync(directory, -1, UNPRIVILEGED_UID);
      chmodSync(directory, 0o775);
    },
    isRoot,
    `group ${UNPRIVILEGED_UID} may write to the directory (mode 0775)`,
  ],
  ['belongs to another user', giveToUnprivilegedUser, isRoot, `the directory belongs to user ${UNPRIVILEGED_UID}`],
];
const possible = changes.filter(([, , isAllowed]) => isAllowed);

test.each(possible)('no file is restored below a directory that %s', async (what, change, _isAllowed, problem) => {
  const directory = place(what);
  mkdirSync(directory);
  change(directory);
  const { id } = await request(`/${what}/below/file`);
  const { files } = await withEngine(app, library, () => waitForState(app, id, 'PARTIAL'));
  const error = expect.stringContaining(`untrusted directory ${directory}: ${problem}; `);
  expect(files).toMatchObject([{ state: 'FAILED', errorClass: 'POLICY', error }]);
  expect(listTree(directory)).toEqual([]);
});

test.each(possible)(
  'a restore disk whose mount point %s is suspended, and used again once it is repaired',
  async (what, change, _isAllowed, problem) => {
    const { uid, gid } = statSync(app.restoreDir);
    change(app.restoreDir);
    const { id } = await request(`/whole/${what}`);
    const reason = await withEngine(app, library, () => waitFor('the disk to be suspended', readReason));
    expect(reason).toContain(`untrusted directory ${app.restoreDir}: ${problem}; `);
    expect(listTree(app.restoreDir)).not.toContain('whole');
    chownSync(app.restoreDir, uid, gid);
    chmodSync(app.restoreDir, 0o755);
    await app.ctx.db.pool.query("UPDATE restore_disk SET retry_at = '1970-01-01'");
    await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
    await cancel(app, id);
    await removeAll();
  },
);

async function readReason(): Promise<string | undefined> {
  const { rows } = await app.ctx.db.pool.query<{ reason: string }>("SELECT reason FROM suspension WHERE kind = 'DISK'");
  return rows[0]?.reason;
}

test('a restore disk below a directory that all users may write in is suspended', async () => {
  chmodSync(app.dataDir, 0o777);
  const { id } = await request('/above/file');
  const reason = await withEngine(app, library, () => waitFor('the disk to be suspended', readReason));
  chmodSync(app.dataDir, 0o755);
  expect(reason).toContain(`untrusted directory ${app.dataDir}: every user may write to the directory (mode 0777)`);
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir });
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
});

test('a copy leaves a directory that has become untrusted', async () => {
  const id = await restore('/opened/file');
  chmodSync(place('opened'), 0o777);
  await cancel(app, id);
  expect([await removeAll(), listTree(place('opened'))]).toEqual([1, []]);
});

test('a mount point is refused as a restore disk if it, or a directory above it, is untrusted', async () => {
  const above = path.join(app.dataDir, 'above');
  const mountpoint = path.join(above, 'disk');
  mkdirSync(mountpoint, { recursive: true });
  const add = (input = {}) =>
    addDisk(app.ctx, { mountpoint, size: 10n, ...input }).then(
      ({ disk }) => disk.mountpoint,
      (error: Error) => error.message,
    );
  for (const [, change, , problem] of possible) {
    for (const directory of [mountpoint, above]) {
      const isSticky = problem.includes('1777');
      change(directory);
      if (!isSticky || directory === mountpoint)
        expect(await add()).toContain(`is unsafe: untrusted directory ${directory}: ${problem}; `);
      chownSync(directory, process.geteuid?.() ?? 0, process.getegid?.() ?? 0);
      chmodSync(directory, 0o755);
    }
  }
  expect(readdirSync(mountpoint)).toEqual([]);
  expect((await listDisks(app.ctx)).map((disk) => disk.mountpoint)).toEqual([app.restoreDir]);
  chmodSync(above, 0o1777);
  expect(await add()).toBe(mountpoint);
  await removeRestoreDisk(app.ctx, mountpoint);
  const umask = process.umask(0);
  const made = path.join(app.dataDir, 'made/disk');
  expect(await add({ mountpoint: made, create: true })).toBe(made);
  process.umask(umask);
  expect([made, path.dirname(made)].map((directory) => statSync(directory).mode & 0o777)).toEqual([0o755, 0o755]);
  await removeRestoreDisk(app.ctx, made);
});

test.runIf(isRoot)(
  'the group of TAPEGATE_RESTORE_GROUP may write in a restore disk and in directories below it',
  async () => {
    const mountpoint = path.join(app.dataDir, 'of-the-group');
    mkdirSync(path.join(mountpoint, 'shared'), { recursive: true });
    for (const directory of [mountpoint, path.join(mountpoint, 'shared')]) {
      chownSync(directory, 0, UNPRIVILEGED_UID);
      chmodSync(directory, 0o2775);
    }
    const ctx = { ...app.ctx, config: { ...app.ctx.config, restoreGroup: UNPRIVILEGED_UID } };
    const { disk, problem } = await addDisk(ctx, { mountpoint, size: 10n ** 6n });
    expect(problem).toBeUndefined();
    const at = { diskId: disk.id, mountpoint, path: '/shared/made/file' };
    await (await openCopyDirectory(ctx, at)).handle.close();
    expect(listTree(mountpoint)).toEqual(['shared', 'shared/made']);
    expect(statSync(path.join(mountpoint, 'shared/made')).mode & 0o7777).toBe(0o750);
    await expect(openCopyDirectory(app.ctx, at)).rejects.toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining(`set TAPEGATE_RESTORE_GROUP to this group`),
    });
    await removeRestoreDisk(app.ctx, mountpoint);
  },
);

test('the private group of a trusted user may write', async () => {
  const directory = place('private');
  mkdirSync(directory);
  chmodSync(directory, 0o775);
  const { uid, gid } = statSync(directory);
  const { id } = await request('/private/file');
  const state = uid === gid ? 'COMPLETED' : 'PARTIAL';
  await withEngine(app, library, () => waitForState(app, id, state));
});

test('the doctor reports untrusted directories, and what to do', async () => {
  const kept = place('anybodys');
  mkdirSync(kept);
  chmodSync(kept, 0o777);
  chmodSync(app.restoreDir, 0o777);
  const findings: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false }, ({ kind, object, found }) =>
    findings.push(`${kind} ${object}: ${found}`),
  );
  chmodSync(app.restoreDir, 0o755);
  rmdirSync(kept);
  const says = (directory: string) =>
    `untrusted directory ${directory}: every user may write to the directory (mode 0777); remove this permission (chmod o-w)`;
  expect(findings.filter((finding) => /^(disk|directory)-open.*(anybodys|restore):/.test(finding))).toEqual([
    `disk-open ${app.restoreDir}: ${says(app.restoreDir)}`,
    `directory-open ${kept}: ${says(kept)}`,
  ]);
});

test.each([
  ['is removed', true],
  ['stays if its bytes differ', false],
])('a file with the inode, size and time of a stale copy %s', async (_what, isCopy) => {
  const file = `/left/${isCopy}`;
  const contents = await addTaped(app.ctx, library, [{ path: file, volume: `LEFT${isCopy}` }]);
  const bytes = contents.get(file) ?? Buffer.of();
  mkdirSync(path.dirname(place(file)), { recursive: true });
  writeFileSync(place(file), isCopy ? bytes : Buffer.alloc(bytes.length));
  const { ino, mtimeNs, size } = statSync(place(file), { bigint: true });
  await app.ctx.db.pool.query(
    `INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size, ino, mtime_ns, checksum)
     SELECT id, 1, 1, 1, $2, $3, $4, checksum FROM tape_file WHERE path = $1`,
    [file, size, ino, mtimeNs],
  );
  expect(await removeStaleFiles(app.ctx, new AbortController().signal)).toBe(1);
  expect(existsSync(place(file))).toBe(!isCopy);
});

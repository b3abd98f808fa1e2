/** Directories and special files on restore disks: syncs, nested disks, and pipes that would block a reader. */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { listDisks, setDisk } from '../../src/domain/disks/disks.js';
import { withSource } from '../../src/engine/archive/walk.js';
import { readChecksum } from '../../src/restore-area/copies/copy.js';
import { markerName, writeMarker } from '../../src/restore-area/marker.js';
import { ownerName } from '../../src/tape/directory/index.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

let env: Record<string, string>;
const library = createMemoryLibrary();

const app = useApp({ library }, async () => {
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => vi.restoreAllMocks());
afterAll(cleanUp);

const makePipe = (file: string) => execFileSync('mkfifo', [file]);

test.runIf(process.platform === 'linux')(
  'before a file counts as restored, its directory and all directories above it are synced',
  async () => {
    const handle = await open(app.dataDir);
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const sync = prototype.sync;
    const synced = new Set<string>();
    vi.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
      synced.add(readlinkSync(`/proc/self/fd/${this.fd}`));
      await sync.call(this);
    });
    await addTaped(app.ctx, library, [{ path: '/new/deep/er/file', volume: 'NEW' }]);
    await waitForState(app, await makeRequest(app, { quota: 'alice', files: ['/new/deep/er/file'] }), 'COMPLETED');
    const root = realpathSync(app.restoreDir);
    const parents = ['', 'new', 'new/deep', 'new/deep/er'].map((dir) => path.join(root, dir));
    const ownRecord = path.join(root, ownerName); // temporary files of the owner record have longer names
    expect([...synced].filter((at) => !at.startsWith(ownRecord)).sort()).toEqual(parents.sort());
  },
);

test('a restore disk below or above another one is refused and not made', async () => {
  const before = await listDisks(app.ctx);
  mkdirSync(path.join(app.dataDir, 'links'));
  symlinkSync(app.restoreDir, path.join(app.dataDir, 'links/restore'));
  const inner = path.join(app.restoreDir, 'inner/disk');
  for (const mountpoint of [inner, app.dataDir, `${app.dataDir}/links/restore/inner`]) {
    const { code, stderr } = await runCli(['disk', 'add', mountpoint, '--size', '1G'], { env });
    const error = `tapegate: mountpoint must neither contain restore disk ${app.restoreDir} nor be inside it: "${mountpoint}"\n`;
    expect({ code, stderr }).toEqual({ code: 2, stderr: error });
  }
  expect(existsSync(path.dirname(inner))).toBe(false);
  expect(await listDisks(app.ctx)).toEqual(before);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n }); // the size of a disk may change
  // the paths of the two disks begin with the same text
  await setDisk(app.ctx, { mountpoint: `${app.restoreDir}-2`, size: 10n ** 9n });
  expect((await listDisks(app.ctx)).length).toBe(before.length + 1);
});

test.each<[string, (copy: string) => void]>([
  ['a pipe', makePipe],
  [
    'a link to a pipe',
    (copy) => {
      makePipe(`${copy}.pipe`);
      symlinkSync('copy.pipe', copy);
    },
  ],
  ['a directory', (copy) => mkdirSync(copy)],
])('reading %s in the place of a copy fails at once', async (_what, put) => {
  const mountpoint = path.join(app.dataDir, 'copies');
  mkdirSync(mountpoint);
  await writeMarker({ diskId: 1, mountpoint });
  put(path.join(mountpoint, 'copy'));
  const copy = { diskId: 1, mountpoint, path: '/copy' };
  await expect(readChecksum(copy, 'sha256:')).rejects.toThrow('is not a regular file');
  rmSync(mountpoint, { recursive: true });
});

test('archiving a file that has become a pipe since it was found fails at once', async () => {
  const file = path.join(app.dataDir, 'source');
  writeFileSync(file, 'bytes');
  const { size, ino, mtimeNs } = lstatSync(file, { bigint: true });
  rmSync(file);
  makePipe(file);
  const source = { file, directory: app.dataDir, path: '/source', size, ino, mtimeNs };
  await expect(withSource(source, async () => {})).rejects.toThrow(`${file} is not a regular file`);
});

test('a disk whose marker is a pipe counts as missing', async () => {
  const mountpoint = path.join(app.dataDir, 'disk');
  mkdirSync(mountpoint);
  makePipe(path.join(mountpoint, markerName));
  const added = await runCli(['disk', 'add', mountpoint, '--size', '1G'], { env });
  expect(added.stderr).toContain(`${path.join(mountpoint, markerName)} is not a regular file`);
  expect((await runCli(['disk', 'list'], { env })).stdout).toContain('is not a regular file');
});

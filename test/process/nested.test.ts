/** Folders in folders: what is synced, and restore disks that lie in each other. */
import { existsSync, mkdirSync, readlinkSync, realpathSync, symlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { listDisks, setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  await cleanUp();
  await app.close();
});

test.runIf(process.platform === 'linux')(
  'before a file counts as restored, its folder and all folders above it are synced',
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
    await addTaped(app.ctx, backend, [{ path: '/new/deep/er/file', volume: 'NEW' }]);
    await waitForState(app, await makeRequest(app, { quota: 'alice', files: ['/new/deep/er/file'] }), 'COMPLETED');
    const root = realpathSync(app.restoreDir);
    expect([...synced].sort()).toEqual(
      ['', 'new', 'new/deep', 'new/deep/er'].map((folder) => path.join(root, folder)).sort(),
    );
  },
);

test('a restore disk in another one, or around it, is refused and not made; its own size may change', async () => {
  const before = await listDisks(app.ctx);
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  mkdirSync(path.join(app.dataDir, 'links'));
  symlinkSync(app.restoreDir, path.join(app.dataDir, 'links/restore'));
  for (const mountpoint of [
    path.join(app.restoreDir, 'inner/disk'),
    app.dataDir,
    `${app.dataDir}/links/restore/inner`,
  ]) {
    const { code, stderr } = await runCli(['disk', 'add', mountpoint, '--size', '1G'], { env });
    const found = `tapegate: mountpoint must not lie in another restore disk, or have one in it: ${app.restoreDir}, not "${mountpoint}"\n`;
    expect({ code, stderr }).toEqual({ code: 2, stderr: found });
  }
  expect(existsSync(path.join(app.restoreDir, 'inner'))).toBe(false);
  expect(await listDisks(app.ctx)).toEqual(before);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
  await setDisk(app.ctx, { mountpoint: `${app.restoreDir}-2`, size: 10n ** 9n }); // a name that only begins like it
  expect((await listDisks(app.ctx)).length).toBe(before.length + 1);
});

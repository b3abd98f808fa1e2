/** What a copy is known by, and how it takes its place. */
import {
  chownSync,
  copyFileSync,
  linkSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CallWatch, limitsOf } from '../../src/engine/calls.js';
import { putInPlace } from '../../src/engine/disk/copy.js';
import { FailingDisks } from '../../src/engine/disk/failures.js';
import { openFolder } from '../../src/engine/disk/making.js';
import { writeMarker } from '../../src/engine/disk/marker.js';
import { partialName } from '../../src/engine/disk/partial-name.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { holdLease } from '../../src/engine/drive/lease.js';
import { cleanUp } from '../../src/engine/drive/left-behind.js';
import { isHeld, noteReady } from '../../src/operations/recalls/confirm.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

let app: TestApp;
const backend = createMemoryBackend();
const never = new AbortController().signal;
const isRoot = process.getuid?.() === 0;

beforeAll(async () => {
  app = await startIdleApp();
  await writeMarker({ diskId: 1, mountpoint: app.restoreDir });
});
afterAll(() => app.close());

const place = (file: string) => path.join(app.restoreDir, file);

function moveAwayAndBack(file: string): void {
  renameSync(file, `${file}-away`);
  renameSync(`${file}-away`, file);
}

let volumes = 0;
async function restore(file: string): Promise<number> {
  await addTaped(app.ctx, backend, [{ path: file, volume: `KNOWN${++volumes}` }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file], retention: '2099-01-01' });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  return id;
}

const rewrite = (file: string, bytes: Uint8Array) => {
  const { atimeMs, mtimeMs } = statSync(file);
  // whole milliseconds can be set again exactly
  utimesSync(file, atimeMs / 1000, Math.floor(mtimeMs / 1000));
  writeFileSync(file, bytes);
};

test.each<[string, string, (file: string) => void]>([
  [
    'was given to another group',
    'group',
    (file) => chownSync(file, statSync(file).uid, isRoot ? 12_345 : statSync(file).gid),
  ],
  ['got a second name', 'link', (file) => linkSync(file, path.join(app.dataDir, 'second-name'))],
  ['was moved away and back', 'moved', moveAwayAndBack],
])('a copy that %s leaves when nobody holds it', async (_what, name, change) => {
  const file = `/same/${name}`;
  const id = await restore(file);
  const { ctimeNs } = statSync(place(file), { bigint: true });
  change(place(file));
  expect(statSync(place(file), { bigint: true }).ctimeNs).not.toBe(ctimeNs);
  await cancel(app, id);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect([readRestored(app, file), await readStage(app, file)]).toEqual([undefined, 'T']);
});

/** Sets the time of modification to what is noted of the copy, which a plain `touch -r` does as well. */
async function noteTime(file: string): Promise<void> {
  const { mtimeNs } = statSync(place(file), { bigint: true });
  await app.ctx.db.pool.query('UPDATE tape_file SET disk_mtime_ns = $2 WHERE path = $1', [file, mtimeNs]);
}

test.each<[string, string, (file: string) => void]>([
  ['has other bytes, and the same inode, size and time', 'bytes', (file) => rewrite(file, new Uint8Array(1000))],
  [
    'is another file with the same bytes and time',
    'inode',
    (file) => {
      const { atime, mtime } = statSync(file);
      copyFileSync(file, `${file}-own`);
      utimesSync(`${file}-own`, atime, mtime);
      renameSync(`${file}-own`, file);
    },
  ],
])('what stands in the place of a copy and %s is left alone', async (_what, name, change) => {
  const file = `/other/${name}`;
  const id = await restore(file);
  change(place(file));
  await noteTime(file);
  const before = readFileSync(place(file));
  const { ino } = statSync(place(file));
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect(await readStage(app, file)).toBe('U');
  expect([readFileSync(place(file)), statSync(place(file)).ino]).toEqual([before, ino]);
  rmSync(place(file));
});

const disk = () => ({ diskId: 1, mountpoint: app.restoreDir });

test.each([
  ['with links', undefined],
  ['without links', async () => Promise.reject(Object.assign(new Error('no links here'), { code: 'EPERM' }))],
])('on a file system %s a copy takes its place, and replaces nothing', async (_what, link) => {
  const folder = await openFolder(app.ctx, { ...disk(), path: '/take/copy' });
  writeFileSync(place('take/part'), 'copy');
  const { ino } = statSync(place('take/part'));
  await putInPlace(folder, 'part', 'copy', link ? { link } : {});
  expect([listTree(place('take')), statSync(place('take/copy')).ino]).toEqual([['copy'], ino]);
  writeFileSync(place('take/part'), 'other');
  await expect(putInPlace(folder, 'part', 'copy', link ? { link } : {})).rejects.toMatchObject({ code: 'EEXIST' });
  expect([readFileSync(place('take/copy'), 'utf8'), statSync(place('take/copy')).ino]).toEqual(['copy', ino]);
  await folder.handle.close();
  rmSync(place('take'), { recursive: true });
});

test.each([
  ['has restored the file', true],
  ['has not come to it', false],
])(
  'who stands still between the confirmation and the taking of a place overwrites nothing, where its successor %s',
  async (_what, isRestored) => {
    const file = `/pause/${isRestored}`;
    const contents = await addTaped(app.ctx, backend, [{ path: file, volume: `PAUSE${isRestored}` }]);
    const id = await makeRequest(app, { quota: 'alice', files: [file], retention: '2099-01-01' });
    const [lease, fileId] = [await claim(app), await idOf(app, file)];
    const started = await startByHand(app, lease, [file]);
    expect(started).toHaveLength(1);
    const folder = await openFolder(app.ctx, { ...disk(), path: file });
    const partial = partialName({ ...lease, fileId });
    writeFileSync(path.join(folder.at, partial), contents.get(file) ?? '');
    const { ino, mtimeNs } = statSync(path.join(folder.at, partial), { bigint: true });
    expect(await noteReady(app.ctx, lease, [{ fileId, ino, mtimeNs }])).toEqual(new Set([fileId]));
    // it stands still here
    if (isRestored) await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
    else {
      const next = await claim(app);
      const calls = new CallWatch(limitsOf(app.ctx));
      const options = { leaseSeconds: 60, claimedAt: performance.now(), stop: never, held: new Set<number>(), calls };
      const held = holdLease(app.ctx, next, options);
      await cleanUp(app.ctx, held, new FailingDisks(app.ctx));
      held.endRenewal();
    }
    const before = isRestored ? statSync(place(file)).ino : undefined;
    await expect(putInPlace(folder, partial, path.basename(file))).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await noteReady(app.ctx, lease, [{ fileId, ino, mtimeNs }])).toEqual(new Set());
    expect(await isHeld(app.ctx, lease)).toBe(false);
    expect(statSync(place(file), { throwIfNoEntry: false })?.ino).toBe(before);
    await folder.handle.close();
    await cancel(app, id);
    await removeUnheld(app.ctx, never);
  },
);

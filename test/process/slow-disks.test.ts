/** Disks that are slow or hang. Calls on such disks hold no lock, so that no other work waits. */
import { chmodSync, statSync } from 'node:fs';
import { expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { readCopiesOf } from '../../src/domain/disks/disk-copies.js';
import { readUnheld, releaseCopies } from '../../src/domain/disks/removals.js';
import { finishRecalls } from '../../src/domain/recalls/ends.js';
import { startRecalls } from '../../src/domain/recalls/starts.js';
import { CallWatch, HungError } from '../../src/restore-area/call-watch.js';
import { recogniseCopy, removeCopy } from '../../src/restore-area/copies/copy.js';
import { callEach, removeStaleFiles, removeUnheld } from '../../src/restore-area/copies/removal.js';
import { DiskError, FailingDisks } from '../../src/restore-area/failures.js';
import { claim, idOf, measure, startByHand, withEngine } from '../support/engine-by-hand.js';
import { readDisks, readRestored } from '../support/engine-watch.js';
import { addFiles } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { readSuspensions } from '../support/suspend.js';
import { createGate } from '../support/wait.js';

const { app, library, tape, ask, restore, place, query } = useMemorySite({ isIdle: true });
const never = new AbortController().signal;

/** Imports a change of a file. The import waits while the row of the file is locked. */
const renameSpot = (file: string) =>
  addFiles(app.ctx, [{ path: file, spotName: 'renamed', volume: undefined, position: undefined, checksum: undefined }]);

/** Blocks calls on disks until the gate opens. `begun` opens with the first call. */
function holdCalls() {
  const [begun, gate] = [createGate(), createGate()];
  const calls = new CallWatch({ disk: 60, tape: 60 });
  const follow = calls.follow.bind(calls);
  calls.follow = async (place, call) => {
    begun.open();
    await gate.opened;
    return await follow(place, call);
  };
  return { begun, gate, disks: new FailingDisks(app.ctx, undefined, { calls }) };
}

test('a disk that is slow to report its room, while a recall starts, delays neither an import nor another start', async () => {
  await tape('/start/slow', '/start/soon');
  await ask('/start/slow', '/start/soon');
  const lease = await claim(app);
  const [begun, gate] = [createGate(), createGate()];
  const slow = startRecalls(app.ctx, lease, {
    fileIds: [await idOf(app, '/start/slow')],
    measure: async (disks) => {
      begun.open();
      await gate.opened;
      return measure(disks);
    },
  });
  await begun.opened;
  await renameSpot('/start/slow');
  expect(await ask('/start/slow')).toBeGreaterThan(0);
  const [soon] = await startByHand(app, lease, ['/start/soon']);
  expect(soon).toMatchObject({ path: '/start/soon' });
  gate.open();
  expect(await slow).toMatchObject([{ path: '/start/slow' }]);
  expect((await readDisks(app)).reserved).toBe(2000n);
});

test('a recall that ends between a check of a disk and a start counts against the room of the check', async () => {
  await tape('/room/first', '/room/second');
  await ask('/room/first', '/room/second');
  const lease = await claim(app);
  const [first] = await startByHand(app, lease, ['/room/first']);
  const { reserved } = await readDisks(app);
  const [begun, gate] = [createGate(), createGate()];
  const second = startRecalls(app.ctx, lease, {
    fileIds: [await idOf(app, '/room/second')],
    measure: async (disks) => {
      begun.open();
      // free space for the first file and half of the second; no byte of either file is on disk yet
      await gate.opened;
      return new Map(disks.map(({ id }) => [id, { freeBytes: reserved + 500n, fileSystem: 'one' }]));
    },
  });
  await begun.opened;
  const copy = { ino: 1n, mtimeNs: 1n, ctimeNs: null, checksum: null };
  await finishRecalls(app.ctx, lease, [{ fileId: first?.fileId ?? 0n, kind: 'restored', ...copy }]);
  gate.open();
  expect(await second).toEqual([]);
  const waits = `SELECT c.error_class, c.error FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = '/room/second'`;
  expect(await query(waits)).toEqual([{ error_class: 'SPACE', error: expect.stringContaining('500 bytes free') }]);
});

/** Restores a file, cancels its request, and records that the copy must be removed. */
async function leave(file: string): Promise<void> {
  const id = await restore(file);
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 });
  await releaseCopies(app.ctx, { unchanged: copies, changed: [] });
}

test('a disk that hangs while a copy is removed delays neither an import nor other removals', async () => {
  const other = await restore('/hang/other');
  await leave('/hang/remove'); // no engine runs after this, because an engine would remove the copy
  const { begun, gate, disks } = holdCalls();
  const removing = removeUnheld(app.ctx, never, disks);
  await begun.opened;
  await renameSpot('/hang/remove');
  await cancel(app, other);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/hang/other')).toBeUndefined();
  gate.open();
  expect(await removing).toBe(0); // the row of the file has changed since the copy was checked
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/hang/remove')).toBeUndefined();
});

test('a late removal of a copy that another engine has removed leaves the next copy of the file alone', async () => {
  await leave('/late/a');
  const { begun, gate, disks } = holdCalls();
  const late = removeUnheld(app.ctx, never, disks);
  await begun.opened;
  expect(await removeUnheld({ ...app.ctx, now: () => addSeconds(app.ctx.now(), 60) }, never)).toBe(1);
  const again = await ask('/late/a');
  await withEngine(app, library, () => waitForState(app, again, 'COMPLETED'));
  const { ino } = statSync(place('/late/a'), { bigint: true });
  gate.open();
  expect(await late).toBe(0);
  expect(statSync(place('/late/a'), { bigint: true }).ino).toBe(ino);
  await cancel(app, again);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
});

test('a disk that hangs while the engine searches for partial files delays no import', async () => {
  const id = await restore('/hang/left');
  const fileId = await idOf(app, '/hang/left');
  const { ino, mtimeNs, size } = statSync(place('/hang/left'), { bigint: true });
  await cancel(app, id);
  await query(
    `WITH gone AS (UPDATE tape_file SET stage = 'ONTAPE', disk_id = NULL WHERE id = $1)
     INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size, ino, mtime_ns)
     SELECT $1, id, 1, 1, $2, $3, $4 FROM restore_disk LIMIT 1`,
    [fileId, size, ino, mtimeNs],
  );
  await query('UPDATE restore_disk SET used = used - $1', [size]);
  const { begun, gate, disks } = holdCalls();
  const removing = removeStaleFiles(app.ctx, never, disks);
  await begun.opened;
  await renameSpot('/hang/left');
  gate.open();
  expect(await removing).toBeGreaterThanOrEqual(1); // recalls of other tests may have left stale files
  expect(readRestored(app, '/hang/left')).toBeUndefined();
});

test('a copy that was recognised is not removed if it has changed by then', async () => {
  const id = await restore('/fence/a');
  const [copy] = await readCopiesOf(app.ctx, [await idOf(app, '/fence/a')]);
  if (!copy) throw new Error('no copy is recorded');
  const found = await recogniseCopy(copy);
  if (found === 'changed') throw new Error('the copy is not as it was left');
  chmodSync(place('/fence/a'), 0o600); // changes ctime only; a later copy could have the same inode, size and mtime
  expect(await removeCopy(copy, found)).toBe(false);
  expect(readRestored(app, '/fence/a')).toHaveLength(1000);
  await cancel(app, id);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
});

test('a disk that hangs leaves threads for another one, which alone stays in service', async () => {
  const [hangs, works] = [
    { diskId: 1, mountpoint: app.restoreDir, path: '/a' },
    { diskId: 2, mountpoint: '/works', path: '/a' },
  ];
  const copies = [...Array.from({ length: 20 }, () => hangs), works, works, works];
  const disks = new FailingDisks(app.ctx, undefined, { calls: new CallWatch({ disk: 0.2, tape: 60 }) });
  let hung = 0;
  const done = await callEach(app.ctx, disks, { copies, what: 'checked' }, async (copy) => {
    if (copy === hangs) await new Promise(() => hung++);
  });
  expect([hung, done.map(({ copy }) => copy)]).toEqual([3, [works, works, works]]);
  expect(await readSuspensions(app)).toMatchObject([{ name: app.restoreDir }]);
  const waited = new DiskError(new HungError({ kind: 'disk', mountpoint: app.restoreDir }, 1));
  expect(await disks.blame(works, waited)).toBeUndefined();
});

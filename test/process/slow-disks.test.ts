/** Disks that take their time, or hang: what is asked of them is asked with nothing locked, so that nobody else waits. */
import { chmodSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CallWatch } from '../../src/engine/calls.js';
import { recogniseCopy, takeAway } from '../../src/engine/disk/copy.js';
import { FailingDisks } from '../../src/engine/disk/failures.js';
import { removeLeftBehind } from '../../src/engine/disk/left-behind.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { readCopiesOf } from '../../src/operations/disks/copies.js';
import { letGo, readUnheld } from '../../src/operations/disks/removals.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { startRecalls } from '../../src/operations/recalls/starts.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, measure, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { readDisks, readRestored } from '../support/engine-watch.js';
import { addFiles, addTaped, buildRow } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const never = new AbortController().signal;
const RETENTION = '2099-01-01';

beforeAll(async () => {
  app = await startIdleApp();
});
afterAll(() => app.close());

/** Calls on disks that begin when the test lets them; `begun` opens with the first one. */
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

const ask = (...files: string[]) => makeRequest(app, { quota: 'alice', files, retention: RETENTION });

test('a disk that is slow to tell its room, while a recall starts, delays neither an import nor the start of another', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/start/slow', volume: 'START', position: 1n },
    { path: '/start/soon', volume: 'START', position: 2n },
  ]);
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
  await addFiles(app.ctx, [
    { ...buildRow({ path: '/start/slow' }), spotName: 'renamed', volume: 'START', position: 1n },
  ]);
  expect(await ask('/start/slow')).toBeGreaterThan(0);
  const [soon] = await startByHand(app, lease, ['/start/soon']);
  expect(soon).toMatchObject({ path: '/start/soon' });
  gate.open();
  expect(await slow).toMatchObject([{ path: '/start/slow' }]);
  expect((await readDisks(app)).reserved).toBe(2000n);
});

test('what ends between a look at a disk and the start of a recall takes of the room that was seen', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/room/first', volume: 'ROOM', position: 1n },
    { path: '/room/second', volume: 'ROOM', position: 2n },
  ]);
  await ask('/room/first', '/room/second');
  const lease = await claim(app);
  const [first] = await startByHand(app, lease, ['/room/first']);
  const { reserved } = await readDisks(app);
  const [begun, gate] = [createGate(), createGate()];
  const second = startRecalls(app.ctx, lease, {
    fileIds: [await idOf(app, '/room/second')],
    measure: async (disks) => {
      begun.open();
      await gate.opened; // for the first file and half of the second, of which no byte is written yet
      return new Map(disks.map(({ id }) => [id, { freeBytes: reserved + 500n, fileSystem: 'one' }]));
    },
  });
  await begun.opened;
  const copy = { ino: 1n, mtimeNs: 1n, ctimeNs: null, checksum: null };
  await finishRecalls(app.ctx, lease, [{ fileId: first?.fileId ?? 0n, kind: 'restored', ...copy }]);
  gate.open();
  expect(await second).toEqual([]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT c.error_class, c.error FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = '/room/second'`,
  );
  expect(rows).toEqual([{ error_class: 'SPACE', error: expect.stringContaining('500 bytes really free') }]);
});

/** What somebody else does with the file, and would wait for its row. */
async function renameSpot(file: string, volume: string): Promise<void> {
  await addFiles(app.ctx, [{ path: file, spotName: `of ${volume}`, volume, position: 1n }]);
}

async function restoreOne(file: string, volume: string): Promise<{ id: number; fileId: bigint; place: string }> {
  await addTaped(app.ctx, backend, [{ path: file, volume, position: 1n }]);
  const id = await ask(file);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  return { id, fileId: await idOf(app, file), place: path.join(app.restoreDir, file) };
}

test('a disk that hangs while a copy is removed keeps neither an import nor other removals waiting', async () => {
  const { id } = await restoreOne('/hang/remove', 'REMOVE');
  const other = await restoreOne('/hang/other', 'OTHER');
  await cancel(app, id);
  await letGo(app.ctx, {
    unchanged: (await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 })).copies,
    changed: [],
  });
  const { begun, gate, disks } = holdCalls();
  const removing = removeUnheld(app.ctx, never, disks);
  await begun.opened;
  await renameSpot('/hang/remove', 'REMOVE');
  await cancel(app, other.id);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/hang/other')).toBeUndefined();
  gate.open();
  expect(await removing).toBe(0); // the import has changed its row meanwhile: nothing is taken on the word of before
  expect(await removeUnheld(app.ctx, never)).toBe(1);
  expect(readRestored(app, '/hang/remove')).toBeUndefined();
});

test('who comes back late to a copy that others have removed leaves the next copy of the same file alone', async () => {
  const { id, place } = await restoreOne('/late/a', 'LATE');
  await cancel(app, id);
  await letGo(app.ctx, {
    unchanged: (await readUnheld(app.ctx, { requestId: id, after: 0, limit: 10 })).copies,
    changed: [],
  });
  const { begun, gate, disks } = holdCalls();
  const late = removeUnheld(app.ctx, never, disks);
  await begun.opened;
  expect(await removeUnheld({ ...app.ctx, now: () => addSeconds(app.ctx.now(), 60) }, never)).toBe(1);
  const again = await ask('/late/a');
  await withEngine(app, backend, () => waitForState(app, again, 'COMPLETED'));
  const { ino } = statSync(place, { bigint: true });
  gate.open();
  expect(await late).toBe(0);
  expect(statSync(place, { bigint: true }).ino).toBe(ino);
  await cancel(app, again);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
});

test('a disk that hangs while what a recall left is looked for keeps no import waiting', async () => {
  const { id, fileId, place } = await restoreOne('/hang/left', 'LEFT');
  const { ino, mtimeNs, size } = statSync(place, { bigint: true });
  await cancel(app, id);
  await app.ctx.db.pool.query(
    `WITH gone AS (UPDATE tape_file SET stage = 'ONTAPE', disk_id = NULL WHERE id = $1)
     INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size, ino, mtime_ns)
     SELECT $1, id, 1, 1, $2, $3, $4 FROM restore_disk LIMIT 1`,
    [fileId, size, ino, mtimeNs],
  );
  await app.ctx.db.pool.query('UPDATE restore_disk SET used = used - $1', [size]);
  const { begun, gate, disks } = holdCalls();
  const removing = removeLeftBehind(app.ctx, never, disks);
  await begun.opened;
  await renameSpot('/hang/left', 'LEFT');
  gate.open();
  expect(await removing).toBe(1);
  expect(readRestored(app, '/hang/left')).toBeUndefined();
});

test('a copy that was recognised is not taken away when it is another one by then, whatever they have in common', async () => {
  const { id, fileId, place } = await restoreOne('/fence/a', 'FENCE');
  const [copy] = await readCopiesOf(app.ctx, [fileId]);
  if (!copy) throw new Error('no copy is noted');
  const found = await recogniseCopy(copy);
  if (found === 'changed') throw new Error('the copy is not as it was left');
  chmodSync(place, 0o600); // inode, size and times of modification are those of before, as those of a later copy may be
  expect(await takeAway(copy, found)).toBe(false);
  expect(readRestored(app, '/fence/a')).toHaveLength(1000);
  await cancel(app, id);
  expect(await removeUnheld(app.ctx, never)).toBe(1);
});

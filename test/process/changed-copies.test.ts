/** Changed copies in the restore area are never removed, and the files are restored at other paths. */
import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { verifyFiles } from '../../src/domain/catalogue/verifications.js';
import { readUnheld, releaseCopies } from '../../src/domain/disks/removals.js';
import { suspendDisk } from '../../src/domain/health/failing-disks.js';
import { resume } from '../../src/domain/health/suspensions.js';
import { importRows } from '../../src/domain/import/import.js';
import { checkChangedCopies } from '../../src/restore-area/copies/changed.js';
import { CopyCheck } from '../../src/restore-area/copies/missing.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { ownershipOf } from '../../src/restore-area/ownership.js';
import { withEngine } from '../support/engine-by-hand.js';
import { readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';

let disks: string[] = [];
const { app, library, ask, restore, place, query } = useMemorySite({ isIdle: true });
const never = new AbortController().signal;

beforeAll(async () => {
  disks = [app.restoreDir];
});

const stateOf = async (id: number) => (await viewRequest(app, id)).state;
const movesOf = async (file: string) => (await readMoves(app, file)).map(({ move }) => move);
const complete = (...ids: number[]) =>
  withEngine(app, library, async () => {
    for (const id of ids) await waitForState(app, id, 'COMPLETED');
  });
const findCopy = (file: string) => disks.map((disk) => path.join(disk, file)).find((copy) => existsSync(copy)) ?? '';
const readVolume = async (file: string) =>
  (
    await query<{ name: string }>(
      'SELECT v.name FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE path = $1',
      [file],
    )
  )[0]?.name ?? '';

/** Restores a file, changes the copy, and ends the request. @returns the bytes on tape */
async function leaveChanged(file: string): Promise<Buffer> {
  const id = await restore(file);
  const bytes = readFileSync(findCopy(file));
  appendFileSync(findCopy(file), 'changed');
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect(await readStage(app, file)).toBe('U');
  library.log.length = 0;
  return bytes;
}

test('an import that changes only the volume of a file leaves its changed copy as it is', async () => {
  const file = '/changed/moved';
  const bytes = await leaveChanged(file);
  putOnTape(library, { volume: 'NEWER', position: 7n, bytes });
  for (const stage of ['ONTAPE', 'RESTORED'] as const) {
    await importRows(app.ctx, [
      buildRow({ path: file, size: BigInt(bytes.length), stage, volume: 'NEWER', position: 7n, checksum: undefined }),
    ]);
    expect(await readStage(app, file)).toBe('U');
  }
});

test('a request that waits until a changed copy is looked for reports it, and that its disk fails', async () => {
  const file = '/changed/why';
  await leaveChanged(file);
  const id = await ask(file);
  const words = 'the copy in the restore area was changed outside Tapegate, and an engine must check the copy first';
  const waiting = `{ request(requestId: ${id}) { waiting { fileCount end { planned } parts { edges { node { reason fileCount explanation } } } } } }`;
  const told = (explanation: string) => ({
    request: {
      waiting: {
        fileCount: 1,
        end: null,
        parts: { edges: [{ node: { reason: 'CHANGED_COPY', fileCount: 1, explanation } }] },
      },
    },
  });
  expect(await askData(app, waiting)).toEqual(told(words));
  await suspendDisk(app.ctx, app.restoreDir, 'the cable is out');
  expect(await askData(app, waiting)).toEqual(told(`${words}: ${app.restoreDir} fails: the cable is out`));
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir });
  await complete(id);
  expect(await askData(app, waiting)).toEqual({ request: { waiting: null } });
  await cancel(app, id);
});

const pathOf = async (file: string) =>
  (await askData<{ tapeFile: { restoredPath: string } }>(app, `{ tapeFile(path: "${file}") { restoredPath } }`))
    .tapeFile.restoredPath;

test('a changed copy is left alone, and its file is restored at another path until the copy is gone', async () => {
  const file = '/changed/there';
  const bytes = await leaveChanged(file);
  const changed = readFileSync(place(file));
  const first = await ask(file);
  expect(await stateOf(first)).toBe('QUEUED'); // no engine has checked the copy yet
  await complete(first);
  const elsewhere = await pathOf(file);
  expect(elsewhere).toMatch(/\/\.tapegate-renamed\/.*\/there$/);
  expect([readFileSync(elsewhere), readFileSync(place(file))]).toEqual([bytes, changed]);
  expect(await findFaults(app)).toEqual([]);
  await cancel(app, first);
  await removeUnheld(app.ctx, never);
  expect([existsSync(elsewhere), readFileSync(place(file))]).toEqual([false, changed]);
  const second = await ask(file);
  await complete(second);
  expect([await pathOf(file), readFileSync(place(file))]).toEqual([elsewhere, changed]);
  await cancel(app, second);
  await removeUnheld(app.ctx, never);
  rmSync(place(file));
  const fence = async (reason: string | null) => {
    await query('UPDATE site_identity SET fenced = $1', [reason]);
    await ownershipOf(app.ctx).check();
  };
  await fence('a drill');
  await expect(new CopyCheck().run(app.ctx)).rejects.toThrow('this Tapegate is fenced: a drill');
  await fence(null);
  await new CopyCheck().run(app.ctx);
  await complete(await ask(file));
  expect([await pathOf(file), readRestored(app, file)]).toEqual([place(file), bytes]);
  expect((await movesOf(file)).slice(0, 6)).toEqual(['TA', 'AR', 'RU', 'UT', 'TA', 'AR']);
});

test('a restored copy that is changed at another path is left alone as well', async () => {
  const file = '/changed/twice';
  const bytes = await leaveChanged(file);
  const id = await ask(file);
  await complete(id);
  const elsewhere = await pathOf(file);
  appendFileSync(elsewhere, 'changed');
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect([await readStage(app, file), existsSync(elsewhere)]).toEqual(['U', true]);
  await complete(await ask(file));
  const third = await pathOf(file);
  expect(new Set([place(file), elsewhere, third]).size).toBe(3);
  expect([readFileSync(third), readFileSync(elsewhere).length]).toEqual([bytes, bytes.length + 7]);
});

test('the directories of a changed copy are removed when the copy is gone', async () => {
  const file = '/changed/emptied/by/hand';
  await leaveChanged(file);
  const id = await ask(file);
  rmSync(place(file));
  expect(existsSync(place('/changed/emptied/by'))).toBe(true);
  await checkChangedCopies(app.ctx, never);
  expect([await readStage(app, file), existsSync(place('/changed/emptied'))]).toEqual(['T', false]);
  await cancel(app, id);
});

/** Restores a file and ends its request, so that the copy is about to be removed. */
async function letGoOnly(file: string): Promise<void> {
  const id = await restore(file);
  await cancel(app, id);
  const { copies } = await readUnheld(app.ctx, { requestId: id, after: 0, limit: 1 });
  await releaseCopies(app.ctx, { unchanged: copies, changed: [] });
  expect(await readStage(app, file)).toBe('T');
  library.log.length = 0;
}

test.each([
  ['after', false],
  ['before', true],
])(
  'a copy that is changed just before its removal is kept, and the file is restored for a request made %s that',
  async (_, isAwaited) => {
    const file = `/changed/late/${isAwaited}`;
    await letGoOnly(file);
    appendFileSync(place(file), 'changed');
    const bytes = readFileSync(place(file));
    const early = isAwaited ? await ask(file) : undefined;
    expect(await removeUnheld(app.ctx, never)).toBe(0);
    expect([await readStage(app, file), readRestored(app, file)]).toEqual(['U', bytes]);
    expect(await query('SELECT disk_id FROM tape_file WHERE path = $1', [file])).toEqual([{ disk_id: null }]);
    await complete(early ?? (await ask(file)));
    expect([readRestored(app, file), await readStage(app, file)]).toEqual([bytes, 'R']);
    expect(await movesOf(file)).toEqual(['TA', 'AR', 'RT', 'TU', 'UT', 'TA', 'AR']);
  },
);

test('a changed copy of another version than its file serves no request', async () => {
  const file = '/changed/late/stale';
  await letGoOnly(file);
  appendFileSync(place(file), 'changed');
  const checksum = checksumOf('other bytes');
  await importRows(app.ctx, [buildRow({ path: file, size: 1000n, volume: await readVolume(file), checksum })]);
  expect(await removeUnheld(app.ctx, never)).toBe(0);
  expect([await readStage(app, file), existsSync(place(file))]).toEqual(['T', true]);
  expect(await findFaults(app)).toContain(`orphan-copy: ${place(file)}`);
  rmSync(place(file));
});

test('while the disk of a changed copy is away, requests for it wait', async () => {
  const file = '/changed/away';
  await leaveChanged(file);
  const id = await ask(file);
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  await checkChangedCopies(app.ctx, never);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'QUEUED']);
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir }); // checkChangedCopies() has suspended the missing disk
  await checkChangedCopies(app.ctx, never);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['T', 'QUEUED']);
  await cancel(app, id);
});

test('the doctor finds a changed copy that is gone, and its repair restores the file for its requests', async () => {
  const file = '/changed/doctor';
  const bytes = await leaveChanged(file);
  const { used } = await readDisks(app);
  const id = await ask(file);
  expect(await findFaults(app)).toEqual([]);
  rmSync(place(file));
  expect(await findFaults(app)).toEqual([`copy-missing: ${place(file)}`]);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'QUEUED']);
  expect(await findFaults(app, { repair: true })).toEqual([`copy-missing: ${place(file)} (repaired)`]);
  expect(await findFaults(app, { repair: true })).toEqual([]);
  expect(await readStage(app, file)).toBe('T');
  await complete(id);
  expect(readRestored(app, file)).toEqual(bytes);
  expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
});

test('a file with a changed copy is not confirmed by reading its tape copy', async () => {
  const file = '/changed/confirmed';
  await leaveChanged(file);
  await query('UPDATE tape_file SET verified = NULL WHERE path = $1', [file]);
  expect(await verifyFiles(app.ctx, { match: file })).toBe(0);
});

test('an import of a file as ONDISK satisfies a request that waits for a check of its changed copy', async () => {
  const file = '/changed/imported';
  await leaveChanged(file);
  const id = await ask(file);
  await importRows(app.ctx, [buildRow({ path: file, size: 1000n, stage: 'ONDISK', volume: await readVolume(file) })]);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['D', 'COMPLETED']);
  expect(existsSync(place(file))).toBe(true);
  rmSync(place(file)); // otherwise the doctor would report this copy
});

test.each([
  ['with another checksum', null, { hasChecksum: true, position: 1n }],
  ['at another position and without a checksum', 'UNVERIFIED', { hasChecksum: false, position: 2n }],
] as const)('a changed copy serves no request after an import of its file %s', async (what, stage, now) => {
  const file = `/changed/renewed/${what}`;
  await leaveChanged(file);
  const first = await ask(file);
  const kept = readFileSync(place(file));
  const { position, hasChecksum } = now;
  const [bytes, volume] = [randomBytes(1000), await readVolume(file)];
  putOnTape(library, { volume, position, bytes });
  const checksum = hasChecksum ? checksumOf(bytes) : null;
  await importRows(app.ctx, [{ ...buildRow({ path: file, size: 1000n, volume, position, checksum }), stage }]);
  expect([await readStage(app, file), (await viewRequest(app, first)).files[0]?.state]).toEqual(['T', 'WAITING']);
  const second = await ask(file);
  await withEngine(app, library, async () => {
    const { files } = await waitForState(app, second, 'PARTIAL'); // the changed copy now counts as a user's file
    expect(files[0]?.errorClass).toBe('POLICY');
    expect(readFileSync(place(file))).toEqual(kept);
    rmSync(place(file));
    const third = await ask(file);
    for (const id of [first, second, third]) await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, file)).toEqual(bytes);
  expect((await movesOf(file)).slice(0, 4)).toEqual(['TA', 'AR', 'RU', 'UT']);
  const left = await query('SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id WHERE f.path = $1', [file]);
  expect(left).toEqual([]);
});

test.each([
  ['a directory', (at: string) => mkdirSync(at)],
  ['a symbolic link', (at: string) => symlinkSync('/etc/hostname', at)],
])('a restored path at which %s is now is not reported, and that entry stays', async (what, put) => {
  const file = `/replaced/${what}`;
  const id = await restore(file);
  rmSync(place(file));
  put(place(file));
  const read = () => askData(app, `{ tapeFile(path: "${file}") { restoredPath stage } }`);
  expect(await read()).toMatchObject({ tapeFile: { restoredPath: null } });
  expect(await read()).toEqual({ tapeFile: { restoredPath: null, stage: 'ONTAPE' } });
  expect(lstatSync(place(file)).isFile()).toBe(false);
  rmSync(place(file), { recursive: true });
  await complete(id);
  expect(lstatSync(place(file)).isFile()).toBe(true);
  await cancel(app, id);
});

test('a directory that cannot be read hides no missing copies in other directories of the disk', async () => {
  const files = ['/hidden/1', '/hidden-not/2'];
  const ids = [];
  for (const file of files) ids.push(await restore(file));
  renameSync(place('/hidden'), place('/elsewhere'));
  symlinkSync('elsewhere', place('/hidden'));
  rmSync(place('/hidden-not/2'));
  const copies = files.map((file) => ({ diskId: 1, mountpoint: app.restoreDir, path: file }));
  expect(await app.ctx.copies.findMissing(copies)).toEqual([copies[1]]);
  rmSync(place('/hidden'));
  renameSync(place('/elsewhere'), place('/hidden'));
  for (const id of ids) await cancel(app, id);
});

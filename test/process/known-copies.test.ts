/** How engines recognise their copies, put copies in place, and find copies of a dead engine. */
import {
  chownSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { observeTransactions } from '../../src/db/transaction.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { finishRecalls, isHeld, recordReady } from '../../src/domain/recalls/ends.js';
import { holdLease } from '../../src/engine/drive/lease.js';
import { cleanUp } from '../../src/engine/drive/stale-files.js';
import { CallWatch, limitsOf } from '../../src/restore-area/call-watch.js';
import { putInPlace } from '../../src/restore-area/copies/copy.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { FailingDisks } from '../../src/restore-area/failures.js';
import { OpenDirectories, openCopyDirectory } from '../../src/restore-area/made-directories.js';
import { writeMarker } from '../../src/restore-area/marker.js';
import { partialName } from '../../src/restore-area/partial-file.js';
import { claim, dieAfterPlacing, idOf, startByHand, withEngine } from '../support/engine-by-hand.js';
import { listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const { app, library, clock, tape, ask, restore, place, query } = useMemorySite({ isIdle: true, drives: 1 });
const never = new AbortController().signal;
const isRoot = process.getuid?.() === 0;
const disk = () => ({ diskId: 1, mountpoint: app.restoreDir });

beforeAll(async () => {
  await writeMarker(disk());
});

const removeCopies = () => removeUnheld(app.ctx, never);
const work = <T>(until: () => Promise<T>) => withEngine(app, library, until, { repairMs: 300 });

function replaceBySame(file: string): void {
  const { atime, mtime } = statSync(file);
  copyFileSync(file, `${file}-own`);
  utimesSync(`${file}-own`, atime, mtime);
  utimesSync(file, atime, mtime);
  renameSync(`${file}-own`, file);
}

test.each<[string, string, (file: string) => void]>([
  [
    'that got another group',
    'group',
    (file) => chownSync(file, statSync(file).uid, isRoot ? 12_345 : statSync(file).gid),
  ],
  ['that got a second name', 'link', (file) => linkSync(file, path.join(app.dataDir, 'second-name'))],
  [
    'that was moved away and back',
    'moved',
    (file) => {
      renameSync(file, `${file}-away`);
      renameSync(`${file}-away`, file);
    },
  ],
])('a copy %s is removed when no request contains its file', async (_what, name, change) => {
  const file = `/same/${name}`;
  const id = await restore(file);
  const { ctimeNs } = statSync(place(file), { bigint: true });
  change(place(file));
  expect(statSync(place(file), { bigint: true }).ctimeNs).not.toBe(ctimeNs);
  await cancel(app, id);
  expect(await removeCopies()).toBe(1);
  expect([readRestored(app, file), await readStage(app, file)]).toEqual([undefined, 'T']);
});

/** Overwrites the bytes of a file, and keeps inode and size. */
function rewrite(file: string): void {
  const { atimeMs, mtimeMs } = statSync(file);
  utimesSync(file, atimeMs / 1000, Math.floor(mtimeMs / 1000)); // the test can set whole seconds again exactly
  writeFileSync(file, new Uint8Array(1000));
}

test.each<[string, string, (file: string) => void]>([
  ['other bytes with the same inode, size and time', 'bytes', rewrite],
  ['another file with the same bytes and time', 'inode', replaceBySame],
])('%s in the place of a copy stay as they are', async (_what, name, change) => {
  const file = `/other/${name}`;
  const id = await restore(file);
  change(place(file));
  // records the new mtime of the copy, as if a user had run `touch -r`
  const { mtimeNs } = statSync(place(file), { bigint: true });
  await query('UPDATE tape_file SET disk_mtime_ns = $2 WHERE path = $1', [file, mtimeNs]);
  const before = readFileSync(place(file));
  const { ino } = statSync(place(file));
  await cancel(app, id);
  await removeCopies();
  expect(await readStage(app, file)).toBe('U');
  expect([readFileSync(place(file)), statSync(place(file)).ino]).toEqual([before, ino]);
  rmSync(place(file));
});

test.each([
  ['with links', undefined],
  ['without links', async () => Promise.reject(Object.assign(new Error('no links here'), { code: 'EPERM' }))],
])('on a file system %s a copy is put in place, and replaces nothing', async (_what, link) => {
  const directory = await openCopyDirectory(app.ctx, { ...disk(), path: '/take/copy' });
  writeFileSync(place('take/part'), 'copy');
  const { ino } = statSync(place('take/part'));
  await putInPlace(directory, 'part', 'copy', link);
  expect([listTree(place('take')), statSync(place('take/copy')).ino]).toEqual([['copy'], ino]);
  writeFileSync(place('take/part'), 'other');
  await expect(putInPlace(directory, 'part', 'copy', link)).rejects.toMatchObject({ code: 'EEXIST' });
  expect([readFileSync(place('take/copy'), 'utf8'), statSync(place('take/copy')).ino]).toEqual(['copy', ino]);
  await directory.handle.close();
  rmSync(place('take'), { recursive: true });
});

test('a copy is not put into a directory that was moved away', async () => {
  const directory = await openCopyDirectory(app.ctx, { ...disk(), path: '/shifted/copy' });
  writeFileSync(place('shifted/part'), 'copy');
  renameSync(place('shifted'), place('elsewhere'));
  await expect(putInPlace(directory, 'part', 'copy')).rejects.toThrow('was moved while');
  expect(listTree(place('elsewhere'))).toEqual(['part']);
  await directory.handle.close();
  rmSync(place('elsewhere'), { recursive: true });
});

test('a copy whose directory is moved away before it is synced does not count as restored', async () => {
  const directories = new OpenDirectories(app.ctx, new CallWatch(limitsOf(app.ctx)));
  const at = { ...disk(), path: '/shifted-later/copy' };
  await directories.open(at, async () => {});
  renameSync(place('shifted-later'), place('elsewhere'));
  const failureOf = await directories.sync();
  expect(failureOf(at)?.message).toContain('was moved while');
  await directories.close();
  rmSync(place('elsewhere'), { recursive: true });
});

test.each([0, 1, 2, 3])('a recall stays or leaves a note if its drive changes hands meanwhile (%i)', async (phase) => {
  const file = `/hands/${phase}`;
  const [, id, lease, fileId] = [await tape(file), await ask(file), await claim(app), await idOf(app, file)];
  expect(await startByHand(app, lease, [file])).toHaveLength(1);
  let statements = phase;
  const onStatement = async () => {
    const holder = (statements++ >> 1) % 2 === 0 ? lease.engineId : null;
    await app.ctx.db.pool.query('UPDATE drive SET engine_id = $1', [holder]);
  };
  const stop = observeTransactions({ asks: true, onBegin: () => {}, onStatement });
  await finishRecalls(app.ctx, lease, [{ kind: 'returned', fileId, isUnseen: true }]).finally(stop);
  const notes = 'SELECT count(*)::int FROM stale_partial_file WHERE file_id = $1';
  const [row] = await query(`SELECT concat(state, (${notes})) AS found FROM recall WHERE file_id = $1`, [fileId]);
  expect(['RUNNING0', 'WAITING1']).toContain(row?.found);
  await cancel(app, id);
});

test.each([
  ['has restored the file', true],
  ['has not begun with it', false],
])(
  'an engine that stalls before it puts a copy in place overwrites nothing if its successor %s',
  async (_, isRestored) => {
    const file = `/pause/${isRestored}`;
    const contents = await tape(file);
    const id = await ask(file);
    const [lease, fileId] = [await claim(app), await idOf(app, file)];
    expect(await startByHand(app, lease, [file])).toHaveLength(1);
    const directory = await openCopyDirectory(app.ctx, { ...disk(), path: file });
    const partial = partialName({ ...lease, fileId });
    writeFileSync(path.join(directory.fdPath, partial), contents.get(file) ?? '');
    const { ino, mtimeNs } = statSync(path.join(directory.fdPath, partial), { bigint: true });
    expect(await recordReady(app.ctx, lease, [{ fileId, ino, mtimeNs }])).toEqual(new Set([fileId]));
    // the first engine stalls here
    if (isRestored) await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
    else {
      const next = await claim(app);
      const calls = new CallWatch(limitsOf(app.ctx));
      const options = { leaseSeconds: 60, claimedAt: performance.now(), stop: never, held: new Set<number>(), calls };
      const held = holdLease(app.ctx, next, options);
      await cleanUp(app.ctx, held, new FailingDisks(app.ctx));
      held.endRenewal();
    }
    const before = isRestored ? statSync(place(file)).ino : undefined;
    await expect(putInPlace(directory, partial, path.basename(file))).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await recordReady(app.ctx, lease, [{ fileId, ino, mtimeNs }])).toEqual(new Set());
    expect(await isHeld(app.ctx, lease)).toBe(false);
    expect(statSync(place(file), { throwIfNoEntry: false })?.ino).toBe(before);
    await directory.handle.close();
    await cancel(app, id);
    await removeCopies();
  },
);

const forgetChecksum = (file: string) => query('UPDATE tape_file SET checksum = NULL WHERE path = $1', [file]);

const waitForCleanup = () =>
  waitFor('nothing to be left', async () => (await query('SELECT FROM stale_partial_file')).length === 0);

test.each([true, false])(
  'a copy that a dead engine has put in place is replaced by the next recall (checksum: %s)',
  async (isSummed) => {
    const file = `/left/placed-${isSummed}`;
    const contents = await tape(file);
    if (!isSummed) await forgetChecksum(file);
    const { used } = await readDisks(app);
    const id = await ask(file);
    const earlier = `INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, path, size, ino, mtime_ns) SELECT id, 1, 1, 0, '/x', 1, 1, 1 FROM tape_file WHERE path = $1`;
    await query(earlier, [file]); // a stale partial file at an earlier path of the file
    await dieAfterPlacing(app, file, contents.get(file) ?? new Uint8Array());
    await work(() => waitForState(app, id, 'COMPLETED').then(waitForCleanup));
    // the recall is retried if a job is just removing the earlier copy
    expect((await readMoves(app, file)).map(({ move }) => move).join()).toMatch(/^(TA,AT,)+TA,AR$/);
    expect(readRestored(app, file)).toEqual(contents.get(file));
    expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
    await cancel(app, id);
    expect(await removeCopies()).toBe(1);
  },
);

test('a copy that a dead engine has put in place is removed after its file was renamed', async () => {
  const faults = await findFaults(app); // faults that earlier tests have left
  const contents = await tape('/found/old');
  const id = await ask('/found/old');
  await dieAfterPlacing(app, '/found/old', contents.get('/found/old') ?? new Uint8Array());
  await renameFiles(app.ctx, { from: '/found/old', to: '/found/new' });
  await work(() => waitForState(app, id, 'COMPLETED').then(waitForCleanup));
  expect(listTree(place('found'))).toHaveLength(1);
  expect(await findFaults(app)).toEqual(faults);
  await cancel(app, id);
  expect(await removeCopies()).toBe(1);
});

test('a copy that a dead engine has put in place is removed if no request contains its file any more', async () => {
  const contents = await tape('/left/unwanted');
  const before = await readDisks(app);
  const id = await ask('/left/unwanted');
  await dieAfterPlacing(app, '/left/unwanted', contents.get('/left/unwanted') ?? new Uint8Array());
  await cancel(app, id);
  await work(() => waitFor('the removal', async () => readRestored(app, '/left/unwanted') === undefined));
  expect(await readDisks(app)).toEqual(before);
});

test.each<[string, string, Uint8Array, boolean, (copy: string) => void]>([
  ['has other bytes', 'other', new Uint8Array(1000), true, () => {}],
  ['is not whole', 'short', new Uint8Array(999), false, () => {}],
  ['has another time', 'old', new Uint8Array(1000), false, (copy) => utimesSync(copy, 1, 1)],
  ['is another file with the same bytes and time', 'own', new Uint8Array(1000), false, replaceBySame],
])(
  'a file that %s, in the place where a dead engine was to put its copy, stays as it is',
  async (_why, name, bytes, isSummed, change) => {
    const file = `/left/${name}`;
    await tape(file);
    if (!isSummed) await forgetChecksum(file);
    const id = await ask(file);
    await dieAfterPlacing(app, file, bytes);
    change(place(file));
    const { files } = await work(() => waitForState(app, id, 'PARTIAL'));
    expect(files[0]).toMatchObject({ state: 'FAILED', errorClass: 'POLICY' });
    expect(readFileSync(place(file)).equals(bytes)).toBe(true);
    await cancel(app, id);
  },
);

test('files of a dead engine on a disk that was away are removed when the disk is back, and no others', async () => {
  const files = ['/away/placed', '/away/partial', '/away/own'];
  const contents = await tape(...files);
  const id = await ask(...files);
  const lease = await claim(app);
  const fileIds = await Promise.all(files.map((file) => idOf(app, file)));
  const [placed = 0n, partial = 0n] = fileIds;
  await startByHand(app, lease, files);
  mkdirSync(place('away'));
  writeFileSync(place('away/placed'), contents.get('/away/placed') ?? '');
  const { ino, mtimeNs } = statSync(place('away/placed'), { bigint: true });
  await recordReady(app.ctx, lease, [{ fileId: placed, ino, mtimeNs }]);
  writeFileSync(place(`away/${partialName({ ...lease, fileId: partial })}`), 'half');
  writeFileSync(place('away/own'), contents.get('/away/own') ?? '');

  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  const other = path.join(app.dataDir, 'other');
  mkdirSync(other);
  await setDisk(app.ctx, { mountpoint: other, size: 10n ** 9n });
  await work(() => waitForState(app, id, 'COMPLETED'));
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  const isRemoved = async () => {
    clock.advance(60); // the disk was suspended for a while
    return (await query('SELECT FROM stale_partial_file')).length === 0;
  };
  await work(() => waitFor('the removal', isRemoved));
  expect(listTree(place('away'))).toEqual(['own']);
  for (const file of files) expect(readFileSync(path.join(other, file))).toEqual(Buffer.from(contents.get(file) ?? ''));
  await cancel(app, id);
});

test('an error in one periodic job does not keep another job from removing stale partial files', async () => {
  await addFiles(app.ctx, [{ path: '/joins/held', size: 10n }]);
  await addQuota(app.ctx, 'narrow', 10n);
  await makeRequest(app, { quota: 'narrow', files: ['/joins/held', '/joins/late'] });
  await addFiles(app.ctx, [{ path: '/joins/late', size: 10n }]);
  await addQuota(app.ctx, 'narrow', 20n);
  await query(`CREATE SEQUENCE joins;
    CREATE FUNCTION break_join() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM nextval('joins'); RAISE 'planted in joins';
    END $$;
    CREATE TRIGGER break_join BEFORE INSERT ON request_file FOR EACH ROW EXECUTE FUNCTION break_join();
    INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size)
      SELECT f.id, 1, 1, 1, 10 FROM tape_file f WHERE f.path = '/joins/held'`);
  await work(async () => {
    await waitFor('a join to fail', async () => (await query('SELECT FROM joins WHERE is_called')).length === 1);
    await waitFor('nothing to be left', async () => (await query('SELECT FROM stale_partial_file')).length === 0);
  });
  await query('DROP TRIGGER break_join ON request_file');
});

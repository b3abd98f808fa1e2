/** Restore disks whose inode numbers change, and restore disks that regard different names as equal. */
import { randomUUID } from 'node:crypto';
import { copyFileSync, existsSync, renameSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { recordFolding } from '../../src/domain/disks/markings.js';
import { claimComparison, recordCompared } from '../../src/domain/disks/renumbered.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { FailingDisks } from '../../src/restore-area/failures.js';
import { writeMarker } from '../../src/restore-area/marker.js';
import { Renumbering } from '../../src/restore-area/renumbered.js';
import { foldsNames } from '../../src/restore-area/setup.js';
import { withEngine } from '../support/engine-by-hand.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { askData } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';

const { app, library, restore, tape, ask, place, query } = useMemorySite({ isIdle: true });
const never = new AbortController().signal;
const disk = () => ({ diskId: 1, mountpoint: app.restoreDir });
const look = () => new Renumbering().run(app.ctx, never, new FailingDisks(app.ctx));

beforeAll(async () => {
  await writeMarker(disk());
  await look();
});

/** Gives a copy another inode with the same mtime and, by default, the same bytes. */
async function copyAnew(file: string, bytes?: Uint8Array): Promise<void> {
  const { atime, mtime } = statSync(place(file));
  if (bytes) writeFileSync(`${place(file)}-new`, bytes);
  else copyFileSync(place(file), `${place(file)}-new`);
  utimesSync(`${place(file)}-new`, atime, mtime);
  renameSync(`${place(file)}-new`, place(file));
  const { mtimeNs } = statSync(place(file), { bigint: true });
  await query('UPDATE tape_file SET disk_mtime_ns = $2 WHERE path = $1', [file, mtimeNs]);
}

/** Gives the marker another inode, as if the whole disk had been copied. */
const copyMarker = () => writeMarker(disk());

const readIno = async (file: string) =>
  (await query<{ ino: bigint }>('SELECT disk_ino AS ino FROM tape_file WHERE path = $1', [file]))[0]?.ino;

test('copies of a disk that was copied are recognised by their checksums, and removed with their requests', async () => {
  const id = await restore('/moved/a');
  const other = await restore('/moved/b');
  await copyAnew('/moved/a');
  await copyAnew('/moved/b', new Uint8Array(1000));
  await copyMarker();
  await cancel(app, id);
  await cancel(app, other);
  await removeUnheld(app.ctx, never);
  expect([readRestored(app, '/moved/a'), await readStage(app, '/moved/a')]).toEqual([undefined, 'T']);
  expect([existsSync(place('/moved/b')), await readStage(app, '/moved/b')]).toEqual([true, 'U']);
  await look();
});

test('new inodes of a whole disk are recorded, and those of single files are not', async () => {
  await restore('/renumbered/a');
  await copyAnew('/renumbered/a');
  const before = await readIno('/renumbered/a');
  await look();
  expect(await readIno('/renumbered/a')).toBe(before);
  await copyMarker();
  await look();
  expect(await readIno('/renumbered/a')).toBe(statSync(place('/renumbered/a'), { bigint: true }).ino);
  const [row] = await query<{ id: string }>('SELECT marker_id AS id FROM restore_disk');
  expect(row?.id).toMatch(new RegExp(`^${statSync(place('.tapegate-disk')).ino}:`));
});

test('copies on a disk that numbers inodes at each mount are known by their times, without their bytes', async () => {
  const id = await restore('/mounted/a');
  await query("UPDATE tape_file SET disk_ino = disk_ino + 1, disk_checksum = 'sha256:00' WHERE path = '/mounted/a'");
  await copyMarker();
  await look();
  await cancel(app, id);
  await removeUnheld(app.ctx, never);
  expect([readRestored(app, '/mounted/a'), await readStage(app, '/mounted/a')]).toEqual([undefined, 'T']);
});

test('doctor --checksums --repair records the new inode of a single copy with the same bytes, and of no other', async () => {
  const [same, other] = ['/single/same', '/single/other'];
  for (const file of [same, other]) await restore(file);
  const before = await readIno(same);
  await copyAnew(same);
  await copyAnew(other, new Uint8Array(1000));
  const after = statSync(place(same), { bigint: true }).ino;
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const lines = async (...options: string[]) =>
    (await runCli(['doctor', ...options, '--json'], { env })).stdout
      .split('\n')
      .filter((line) => line.includes('/single/'))
      .map((line) => JSON.parse(line));
  const expected = expect.stringMatching(`, inode ${before}$`);
  expect(await lines()).toContainEqual(
    expect.objectContaining({ object: place(same), expected, found: expect.stringMatching(`, inode ${after}$`) }),
  );
  expect(await lines('--checksums', '--repair')).toEqual([
    expect.objectContaining({ object: place(same), found: expect.stringMatching('same checksum$'), isRepaired: true }),
    expect.objectContaining({
      object: place(other),
      found: expect.stringMatching('different bytes$'),
      isRepaired: false,
    }),
  ]);
  expect(await readIno(same)).toBe(after);
  expect((await lines('--checksums')).map(({ object }) => object)).toEqual([place(other)]);
});

test('one engine compares the copies of a disk, and "status" reports its progress', async () => {
  await restore('/progress/a');
  await copyAnew('/progress/a');
  await copyMarker();
  const [{ total } = { total: 0 }] = await query<{ total: number }>(
    'SELECT count(*)::int AS total FROM tape_file WHERE disk_id = 1',
  );
  const { ino, birthtimeNs } = statSync(place('.tapegate-disk'), { bigint: true });
  const comparison = { diskId: 1, markerId: `${ino}:${birthtimeNs}`, owner: randomUUID() };
  expect(await claimComparison(app.ctx, comparison)).toBe(0n);
  expect(await recordCompared(app.ctx, comparison, { after: 0n, copies: 1 })).toBe(true);
  const before = await readIno('/progress/a');
  await look(); // another engine checks the disk
  expect(await readIno('/progress/a')).toBe(before);
  const { stderr } = await runCli(['status'], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stderr).toContain(
    `disk ${app.restoreDir}: the disk has changed; checksums of its copies are being verified, 1 of ${total} done`,
  );
  await query("UPDATE disk_comparison SET at = at - interval '1 hour'"); // the engine that compares copies has died
  await look();
  expect(await readIno('/progress/a')).toBe(statSync(place('/progress/a'), { bigint: true }).ino);
  expect(
    (await runCli(['status'], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } })).stderr,
  ).not.toContain('comparing');
});

test('on a disk that folds names, files whose names differ in case or normalisation have copies of their own', async () => {
  expect(await foldsNames(app.restoreDir)).toBe(false);
  await restore('/c/Early');
  await recordFolding(app.ctx, 1, true);
  const names = ['/c/early', '/c/File', '/c/file', '/c/caf\u00e9', '/c/cafe\u0301', '/c/other'];
  await tape(...names);
  const id = await ask(...names);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'), { part: 'drive' });
  const { request } = await askData<{ request: { files: { edges: { node: { file: { restoredPath: string } } }[] } } }>(
    app,
    `{ request(requestId: ${id}) { files(first: 10) { edges { node { file { restoredPath } } } } } }`,
  );
  const paths = request.files.edges.map(({ node }) => node.file.restoredPath);
  const fold = (file: string) => file.normalize('NFC').toLowerCase();
  expect(new Set([...paths, place('/c/Early')].map(fold)).size).toBe(names.length + 1);
  expect(paths.at(-1)).toBe(path.join(app.restoreDir, '/c/other'));
  await recordFolding(app.ctx, 1, false);
});

test('a disk with another marker is probed again for names that it takes for the same', async () => {
  await recordFolding(app.ctx, 1, true);
  await copyMarker();
  await look();
  expect(await query('SELECT folds_names AS folds FROM restore_disk')).toEqual([{ folds: false }]);
});

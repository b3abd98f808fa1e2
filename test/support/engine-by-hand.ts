/** Apps without an engine, and functions that perform single steps of an engine. */
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { claimDrive, ensureDrives, type Lease, setMount } from '../../src/domain/recalls/drives.js';
import { finishRecalls, recordReady } from '../../src/domain/recalls/ends.js';
import { type RunningRecall, startRecalls } from '../../src/domain/recalls/starts.js';
import { type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { openCopyDirectory } from '../../src/restore-area/made-directories.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { DiskGauge } from '../../src/restore-area/space.js';
import type { DriveLibrary } from '../../src/tape/drive-library.js';
import { startApp, type TestApp, type TestAppOptions } from './app.js';
import { addQuota, checksumOf } from './factories.js';

/** Starts an app with one drive, a restore disk, and a quota for alice. */
export async function startIdleApp(options: Pick<TestAppOptions, 'now'> = {}): Promise<TestApp> {
  return await prepareIdle(await startApp(options));
}

/** Adds a drive, a restore disk and a quota for alice to an app. */
export async function prepareIdle(app: TestApp): Promise<TestApp> {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await ensureDrives(app.ctx, 1);
  mkdirSync(app.restoreDir);
  await addDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
  return app;
}

/** Claims a drive. By default the lease has already ended, like the lease of a killed engine. */
export async function claim(app: TestApp, count = 1, leaseSeconds = 0): Promise<Lease> {
  const engineId = '00000000-0000-4000-8000-000000000000';
  const of = { id: 1, name: 'directory', drives: count };
  const lease = await claimDrive(app.ctx, { engineId, of, leaseSeconds });
  if (!lease) throw new Error('there is no drive');
  return lease;
}

export async function idOf(app: TestApp, file: string): Promise<bigint> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file WHERE path = $1', [file]);
  return rows[0]?.id ?? 0n;
}

const gauge = new DiskGauge({ group: undefined });

export const measure = gauge.measure.bind(gauge);

/** Starts recalls of files on the leased drive, with the first file's volume as the mounted volume. */
export async function startByHand(app: TestApp, lease: Lease, files: readonly string[]): Promise<RunningRecall[]> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint; volumeId: number }>(
    'SELECT f.id, f.volume_id AS "volumeId" FROM unnest($1::text[]) WITH ORDINALITY AS p (path, n) JOIN tape_file f USING (path) ORDER BY n',
    [files],
  );
  await setMount(app.ctx, lease, rows[0]?.volumeId ?? null);
  return await startRecalls(app.ctx, lease, { fileIds: rows.map((row) => row.id), measure });
}

/** Performs the steps of an engine that is killed after it has put the copy in place. */
export async function dieAfterPlacing(app: TestApp, file: string, bytes: Uint8Array): Promise<void> {
  await placeByHand(app, await claim(app), file, bytes);
}

/** Restores a file with the steps of an engine, several times faster than an engine that starts and stops. */
export async function restoreByHand(app: TestApp, file: string, bytes: Uint8Array): Promise<void> {
  const lease = await claim(app);
  const copy = await placeByHand(app, lease, file, bytes);
  await finishRecalls(app.ctx, lease, [{ kind: 'restored', ...copy, checksum: checksumOf(bytes) }]);
  await setMount(app.ctx, lease, null);
}

async function placeByHand(app: TestApp, lease: Lease, file: string, bytes: Uint8Array) {
  const [started] = await startByHand(app, lease, [file]);
  if (started?.path !== file) throw new Error(`the recall of ${file} cannot start`);
  const place = path.join(app.restoreDir, file);
  await (await openCopyDirectory(app.ctx, started)).handle.close();
  writeFileSync(place, bytes);
  const { ino, mtimeNs, ctimeNs } = statSync(place, { bigint: true });
  const ready = await recordReady(app.ctx, lease, [{ fileId: started.fileId, ino, mtimeNs }]);
  if (ready.size !== 1) throw new Error(`the copy of ${file} cannot be recorded`);
  return { fileId: started.fileId, ino, mtimeNs, ctimeNs };
}

/** Runs an engine while `work` runs. */
export async function withEngine<T>(
  app: TestApp,
  library: DriveLibrary,
  work: () => Promise<T>,
  options: EngineOptions = {},
): Promise<T> {
  const engine = await startEngine(app.ctx, library, { drainMs: 1000, ...options });
  try {
    return await work();
  } finally {
    await engine.stop();
  }
}

/** An app without an engine, the steps of an engine one by one, to stop between any two of them, and one for a while. */
import { mkdirSync } from 'node:fs';
import { DiskGauge } from '../../src/engine/disk/space.js';
import { startEngine } from '../../src/engine/runner.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { claimDrive, ensureDrives, type Lease } from '../../src/operations/recalls/drives.js';
import type { TapeBackend } from '../../src/tape/backend.js';
import { startApp, type TestApp } from './app.js';
import { addQuota } from './factories.js';

/** With one drive, a restore disk, and a quota for alice. */
export async function startIdleApp(): Promise<TestApp> {
  const app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await ensureDrives(app.ctx, 1);
  mkdirSync(app.restoreDir);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
  return app;
}

/** As an engine that dies at once: anybody may have the drive next. */
export async function claim(app: TestApp, count = 1, leaseSeconds = 0): Promise<Lease> {
  const engineId = '00000000-0000-4000-8000-000000000000';
  const lease = await claimDrive(app.ctx, { engineId, count, leaseSeconds });
  if (!lease) throw new Error('there is no drive');
  return lease;
}

export async function idOf(app: TestApp, file: string): Promise<bigint> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file WHERE path = $1', [file]);
  return rows[0]?.id ?? 0n;
}

const gauge = new DiskGauge();

export const measure = gauge.measure.bind(gauge);

/** An engine works until `work` is done. */
export async function withEngine<T>(app: TestApp, backend: TapeBackend, work: () => Promise<T>): Promise<T> {
  const engine = await startEngine(app.ctx, backend, { drainMs: 1000 });
  try {
    return await work();
  } finally {
    await engine.stop();
  }
}

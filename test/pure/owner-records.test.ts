/** A first owner record is written only to a mounted disk, not to the empty mount point of an unmounted one. */
import { mkdirSync, readdirSync, realpathSync, renameSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { writeMarker } from '../../src/restore-area/marker.js';
import { readOwner } from '../../src/restore-area/owner.js';
import { writeNewOwner } from '../../src/restore-area/ownership.js';
import { makeTempDir } from '../support/temp-dir.js';

const record = {
  identity: '5b1f0c7e-0000-4000-8000-000000000001',
  epoch: '5b1f0c7e-0000-4000-8000-000000000002',
  number: 1,
  at: '2026-11-30T12:00:00.000000',
};

test.each([{ takes: false }, { takes: true }])('an unmounted disk gets no owner record ($takes)', async (how) => {
  const mountpoint = path.join(realpathSync(makeTempDir()), 'disk');
  const disk = { id: 1, diskId: 1, mountpoint, isFailing: false };
  mkdirSync(mountpoint);
  await writeMarker(disk);
  renameSync(mountpoint, `${mountpoint}-unmounted`);
  mkdirSync(mountpoint);
  await writeNewOwner(disk, mountpoint, record, how);
  expect(readdirSync(mountpoint)).toEqual([]);

  rmdirSync(mountpoint);
  renameSync(`${mountpoint}-unmounted`, mountpoint);
  await writeNewOwner(disk, mountpoint, record, how);
  expect((await readOwner(mountpoint))?.identity).toBe(record.identity);
});

test('an empty library, which might not be mounted, gets no owner record', async () => {
  const library = realpathSync(makeTempDir());
  await writeNewOwner({ id: 0, mountpoint: library, isFailing: false }, library, record);
  expect(readdirSync(library)).toEqual([]);
  mkdirSync(path.join(library, 'TG0001'));
  await writeNewOwner({ id: 0, mountpoint: library, isFailing: false }, library, record);
  expect((await readOwner(library))?.identity).toBe(record.identity);
});

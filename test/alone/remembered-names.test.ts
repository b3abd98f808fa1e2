/** A restore disk on a network file system that caches missing names for a while. */
import { mkdirSync, writeFileSync } from 'node:fs';
import type { open } from 'node:fs/promises';
import path from 'node:path';
import { expect, test, vi } from 'vitest';
import { compareCopy } from '../../src/restore-area/copies/copy.js';
import { createCopyLook } from '../../src/restore-area/copies/missing.js';
import { writeMarker } from '../../src/restore-area/marker.js';
import { makeTempDir } from '../support/temp-dir.js';

/** Names that count as missing until their parent directory is opened. */
const remembered = vi.hoisted(() => new Set<string>());

vi.mock('node:fs/promises', async (load) => {
  const real = await load<typeof import('node:fs/promises')>();
  const openAs: typeof open = async (file, ...how) => {
    if ([...remembered].some((name) => `${String(file)}/`.startsWith(`${name}/`)))
      throw Object.assign(new Error(`ENOENT: ${String(file)}`), { code: 'ENOENT' });
    const handle = await real.open(file, ...how);
    for (const name of remembered) if (path.dirname(name) === file) remembered.delete(name);
    return handle;
  };
  return { ...real, open: openAs };
});

test('a copy in directories that another host has just created does not count as missing', async () => {
  const disk = { diskId: 1, mountpoint: makeTempDir() };
  await writeMarker(disk);
  const [first, second] = [path.join(disk.mountpoint, 'a'), path.join(disk.mountpoint, 'a/b')];
  mkdirSync(second, { recursive: true });
  writeFileSync(path.join(second, 'f'), 'bytes');
  const copy = { ...disk, path: '/a/b/f', fileId: 1n };
  const unknown = { size: 5n, ino: null, mtimeNs: null, ctimeNs: null, copyChecksum: null };
  for (const names of [[first, second], [second]]) {
    for (const name of names) remembered.add(name);
    expect(await createCopyLook().findMissing([copy])).toEqual([]);
    for (const name of names) remembered.add(name);
    expect(await compareCopy({ ...copy, ...unknown })).toBe('changed');
  }
  const gone = { ...copy, path: '/a/c/f' };
  expect(await createCopyLook().findMissing([gone])).toEqual([gone]);
});

/** Temporary directories. */
import { chmodSync, mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** Creates a directory that other users can enter, because PostgreSQL may run as another user. */
export function makeTempDir(purpose = 'test'): string {
  return makeIn(os.tmpdir(), purpose);
}

/**
 * Creates a directory on the disk of this checkout, where hard links to its files are possible. `makeTempDir` may use
 * memory.
 */
export function makeDiskDir(purpose = 'test'): string {
  return makeIn(process.env.TEST_DISK ?? os.tmpdir(), purpose);
}

function makeIn(parent: string, purpose: string): string {
  const dir = mkdtempSync(path.join(parent, `tapegate-${purpose}-`));
  chmodSync(dir, 0o755);
  return dir;
}

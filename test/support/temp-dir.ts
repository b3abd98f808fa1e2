/** Where tests put their files. */
import { chmodSync, mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** A new directory that other users may search, since PostgreSQL may run as one. */
export function makeTempDir(purpose = 'test'): string {
  const dir = mkdtempSync(path.join(os.tmpdir(), `tapegate-${purpose}-`));
  chmodSync(dir, 0o755);
  return dir;
}

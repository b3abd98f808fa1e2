/** Restores a backup's files, and compares each file with the manifest. */
import { execFileSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { findBinaries, findServerUser, replaceFile } from '../embedded/cluster.js';
import { copyFile, createDirectories, syncDirectories } from './cluster-files.js';
import { CLUSTER, type Manifest } from './manifest.js';

/**
 * Configuration files that a restore replaces, because a backup's configuration could make the server run any program.
 */
const SETTINGS = {
  'postgresql.conf': `# Written by "tapegate restore". The original server's settings are in the backup.
datestyle = 'iso, mdy'
default_text_search_config = 'pg_catalog.english'
`,
  'postgresql.auto.conf': '# Written by "tapegate restore".\n',
};

/** Files that a restore deletes, because they would make the server fetch WAL or follow links to other directories. */
const LEADING = ['recovery.signal', 'standby.signal', 'tablespace_map'];

/**
 * Restores a backup's files.
 * @param dataDir the new cluster's directory, which must not exist; a failed restore leaves partial files in it
 * @throws Error that names the first file that differs from the manifest
 */
export async function putBack(backup: string, manifest: Manifest, dataDir: string): Promise<void> {
  const owner = findServerUser(dataDir);
  refuseOtherPostgres(manifest, path.join(findBinaries(owner), 'postgres'));
  await createDirectories(dataDir, manifest.directories, owner);
  for (const expected of manifest.files) {
    const from = { directory: path.join(backup, CLUSTER), path: expected.path };
    const found = await copyFile(from, { directory: dataDir, owner });
    const file = path.join(from.directory, from.path);
    if (!found) throw new Error(`the backup is incomplete: ${file} is missing`);
    if (found.size !== expected.size) {
      throw new Error(`the backup is damaged: the size of ${file} is ${found.size} bytes instead of ${expected.size}`);
    }
    if (found.sha256 !== expected.sha256) {
      throw new Error(
        `the backup is damaged: the checksum of ${file} is ${found.sha256} instead of ${expected.sha256}`,
      );
    }
  }
  for (const name of LEADING) await rm(path.join(dataDir, name), { force: true, recursive: true });
  for (const [name, text] of Object.entries(SETTINGS)) replaceFile(path.join(dataDir, name), text, owner);
  await syncDirectories(dataDir, manifest.directories);
}

/**
 * @throws Error if the backup and the installed PostgreSQL have different major versions, which have different file
 * formats
 */
function refuseOtherPostgres({ postgres }: Manifest, program: string): void {
  const said = execFileSync(program, ['--version'], { encoding: 'utf8' });
  const here = /(\d+)(\.\d+)*/.exec(said)?.[0] ?? said.trim();
  if (here.split('.')[0] === postgres.split('.')[0]) return;
  throw new Error(`the backup was made with PostgreSQL ${postgres}, but this Tapegate includes PostgreSQL ${here}`);
}

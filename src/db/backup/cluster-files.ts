/**
 * Copies the files of a PostgreSQL cluster, from a running server or from a backup. Computes each file's checksum, and
 * syncs the copy to disk.
 */
import { createHash } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { mkdir, open, readdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../core/errors.js';
import { openPlainFile } from '../embedded/cluster.js';
import type { BackedUpFile } from './manifest.js';

const CHUNK = 1 << 20;

/** Directories that a backup leaves empty, because a server recreates their contents at each start. */
const EMPTY = new Set([
  ...['pg_wal', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_serial', 'pg_snapshots', 'pg_stat_tmp', 'pg_subtrans'],
]);
/** Files that a backup omits, because they describe the running server or would be useless in a copy. */
const EXCLUDED =
  /^(postmaster\.(pid|opts)|server\.log|current_logfiles\S*|backup_label(\.old)?|tablespace_map|\.s\.PGSQL.*|pg_internal\.init.*|pgsql_tmp.*)$/;

/**
 * Path of the control file, which a backup copies last. An earlier copy of the control file would not match the other
 * files.
 */
const CONTROL = 'global/pg_control';

interface ClusterFiles {
  directories: string[];
  files: string[];
}

/** Lists a cluster's directories and files for a backup, except the WAL files. `pg_control` is the last file. */
export async function listCluster(dataDir: string): Promise<ClusterFiles> {
  const listed: ClusterFiles = { directories: ['pg_wal/archive_status', 'pg_wal/summaries'], files: [] };
  await listInto(listed, dataDir, '');
  listed.directories.sort();
  listed.files = [...listed.files.filter((file) => file !== CONTROL).sort(), CONTROL];
  return listed;
}

async function listInto(listed: ClusterFiles, dataDir: string, directory: string): Promise<void> {
  const entries = await readdir(path.join(dataDir, directory), { withFileTypes: true }).catch((error) => {
    if (codeOf(error) === 'ENOENT') return []; // ignore a missing directory: its database was dropped
    throw error;
  });
  for (const entry of entries) {
    const name = directory === '' ? entry.name : `${directory}/${entry.name}`;
    if (EXCLUDED.test(entry.name)) continue;
    if (directory === 'pg_tblspc')
      throw new Error(`the database has a tablespace (${name}), which backups do not support`);
    if (entry.isDirectory()) {
      listed.directories.push(name);
      if (!EMPTY.has(name)) await listInto(listed, dataDir, name);
    } else if (entry.isFile()) listed.files.push(name);
    else if (!EMPTY.has(name))
      throw new Error(`cannot back up ${path.join(dataDir, name)}: it is neither a file nor a directory`);
    // back up a link as an empty directory: `pg_wal`, for example, might be a link to another disk
    else listed.directories.push(name);
  }
}

/**
 * @param to.owner the owner of the copy, by default this process's user
 * @returns the copied file's entry for the backup's manifest; undefined if the source file no longer exists
 */
export async function copyFile(
  from: { directory: string; path: string },
  to: { directory: string; owner?: { uid?: number; gid?: number } },
): Promise<BackedUpFile | undefined> {
  const source = openPlainFile(path.join(from.directory, from.path));
  if (source === undefined) return undefined;
  const hash = createHash('sha256');
  let size = 0;
  try {
    const target = await open(path.join(to.directory, from.path), 'wx', 0o600);
    try {
      const { uid, gid } = to.owner ?? {};
      if (uid !== undefined && gid !== undefined) await target.chown(uid, gid);
      const stream = fs.createReadStream('', { fd: source, autoClose: false, highWaterMark: CHUNK });
      for await (const chunk of from.path === CONTROL ? [readWhole(source)] : stream) {
        hash.update(chunk);
        size += chunk.length;
        await target.writeFile(chunk);
      }
      await target.sync();
    } finally {
      await target.close();
    }
  } finally {
    fs.closeSync(source);
  }
  return { path: from.path, size, sha256: hash.digest('hex') };
}

/**
 * Reads the file pg_control repeatedly until two reads return the same bytes, because the server might be writing to
 * the file.
 */
function readWhole(fd: number): Buffer {
  const read = () => {
    const buffer = Buffer.alloc(CHUNK);
    return buffer.subarray(0, fs.readSync(fd, buffer, 0, CHUNK, 0));
  };
  for (let [before, now] = [read(), read()]; ; [before, now] = [now, read()]) if (before.equals(now)) return now;
}

export async function createDirectories(
  root: string,
  directories: readonly string[],
  owner: { uid?: number; gid?: number } = {},
): Promise<void> {
  for (const directory of ['', ...[...directories].sort()]) {
    const made = path.join(root, directory);
    await mkdir(made, { mode: 0o700, recursive: true });
    if (owner.uid !== undefined && owner.gid !== undefined) fs.chownSync(made, owner.uid, owner.gid);
  }
}

/** Syncs directories to disk, so that the names of new files survive a power failure. */
export async function syncDirectories(root: string, directories: readonly string[]): Promise<void> {
  for (const directory of ['', ...directories]) {
    const handle = await open(path.join(root, directory), constants.O_RDONLY);
    await handle.sync().finally(() => handle.close());
  }
}

/**
 * Copies a cluster's files while its server writes them, or restores them. Each file is synced, and its checksum
 * computed during the copy.
 */
import { createHash } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { mkdir, open, readdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../core/errors.js';
import { openPlainFile } from '../embedded/cluster.js';
import type { BackedUpFile } from './manifest.js';

const CHUNK = 1 << 20;

/** A server recreates the contents at each start: a backup has these directories empty. */
const EMPTY = new Set([
  ...['pg_wal', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_serial', 'pg_snapshots', 'pg_stat_tmp', 'pg_subtrans'],
]);
/** Files of a running process, and files that are useless in another place. */
const EXCLUDED =
  /^(postmaster\.(pid|opts)|server\.log|current_logfiles\S*|backup_label(\.old)?|tablespace_map|\.s\.PGSQL.*|pg_internal\.init.*|pgsql_tmp.*)$/;

/** Copied last, so that it is not older than the files it describes. */
const CONTROL = 'global/pg_control';

interface Listed {
  folders: string[];
  files: string[];
}

/** Lists the directories and files of a backup, pg_control last, without the WAL. */
export async function listCluster(dataDir: string): Promise<Listed> {
  const listed: Listed = { folders: ['pg_wal/archive_status', 'pg_wal/summaries'], files: [] };
  await listInto(listed, dataDir, '');
  listed.folders.sort();
  listed.files = [...listed.files.filter((file) => file !== CONTROL).sort(), CONTROL];
  return listed;
}

async function listInto(listed: Listed, dataDir: string, folder: string): Promise<void> {
  const entries = await readdir(path.join(dataDir, folder), { withFileTypes: true }).catch((error) => {
    if (codeOf(error) === 'ENOENT') return []; // a database that was dropped meanwhile
    throw error;
  });
  for (const entry of entries) {
    const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (EXCLUDED.test(entry.name)) continue;
    if (folder === 'pg_tblspc')
      throw new Error(`the database has a tablespace (${name}), which backups do not support`);
    if (entry.isDirectory()) {
      listed.folders.push(name);
      if (!EMPTY.has(name)) await listInto(listed, dataDir, name);
    } else if (entry.isFile()) listed.files.push(name);
    else if (!EMPTY.has(name)) throw new Error(`${path.join(dataDir, name)} is neither a file nor a directory`);
    else listed.folders.push(name); // a link: the WAL on its own disk
  }
}

/**
 * @param to.owner the new owner of the copies; default this process's user
 * @returns undefined if the file no longer exists
 */
export async function copyFile(
  from: { folder: string; path: string },
  to: { folder: string; owner?: { uid?: number; gid?: number } },
): Promise<BackedUpFile | undefined> {
  const source = openPlainFile(path.join(from.folder, from.path));
  if (source === undefined) return undefined;
  const hash = createHash('sha256');
  let size = 0;
  try {
    const target = await open(path.join(to.folder, from.path), 'wx', 0o600);
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

/** Reads until two reads agree: the server may be writing pg_control. */
function readWhole(fd: number): Buffer {
  const look = () => {
    const buffer = Buffer.alloc(CHUNK);
    return buffer.subarray(0, fs.readSync(fd, buffer, 0, CHUNK, 0));
  };
  for (let [before, now] = [look(), look()]; ; [before, now] = [now, look()]) if (before.equals(now)) return now;
}

/** @param folders in any order */
export async function makeFolders(
  root: string,
  folders: readonly string[],
  owner: { uid?: number; gid?: number } = {},
): Promise<void> {
  for (const folder of ['', ...[...folders].sort()]) {
    const made = path.join(root, folder);
    await mkdir(made, { mode: 0o700, recursive: true });
    if (owner.uid !== undefined && owner.gid !== undefined) fs.chownSync(made, owner.uid, owner.gid);
  }
}

/** Syncs directories, so that the names survive a power cut. */
export async function syncFolders(root: string, folders: readonly string[]): Promise<void> {
  for (const folder of ['', ...folders]) {
    const handle = await open(path.join(root, folder), constants.O_RDONLY);
    await handle.sync().finally(() => handle.close());
  }
}

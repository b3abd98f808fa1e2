/** Files of a cluster, copied while its server writes them, or put back: each is synced, and its checksum taken on the way. */
import { createHash } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { mkdir, open, readdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../errors.js';
import { openPlainFile } from '../cluster.js';
import type { BackedUpFile } from './manifest.js';

const CHUNK = 1 << 20;

/** What a server makes anew whenever it starts: these folders are there, and empty. */
const EMPTY = new Set([
  ...['pg_wal', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_serial', 'pg_snapshots', 'pg_stat_tmp', 'pg_subtrans'],
]);
/** Of a process that runs, and what is of no use in another place. */
const LEFT_OUT =
  /^(postmaster\.(pid|opts)|server\.log|current_logfiles\S*|backup_label(\.old)?|tablespace_map|\.s\.PGSQL.*|pg_internal\.init.*|pgsql_tmp.*)$/;

/** It is read last, so that it is no older than what it speaks of. */
const CONTROL = 'global/pg_control';

export interface Listed {
  folders: string[];
  files: string[];
}

/** What of a cluster goes into a backup, the file of control last. Its log of writes is not among it. */
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
    if (LEFT_OUT.test(entry.name)) continue;
    if (folder === 'pg_tblspc') throw new Error(`the database has a tablespace (${name}), which a backup cannot take`);
    if (entry.isDirectory()) {
      listed.folders.push(name);
      if (!EMPTY.has(name)) await listInto(listed, dataDir, name);
    } else if (entry.isFile()) listed.files.push(name);
    else if (!EMPTY.has(name)) throw new Error(`${path.join(dataDir, name)} is no file and no folder`);
    else listed.folders.push(name); // a log of writes on a disk of its own
  }
}

/**
 * @param owner whose they are then, where not this process's user
 * @returns undefined where there is no such file any more
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

/** The server writes it in one go, in the middle of which it may be read. */
function readWhole(fd: number): Buffer {
  const look = () => {
    const buffer = Buffer.alloc(CHUNK);
    return buffer.subarray(0, fs.readSync(fd, buffer, 0, CHUNK, 0));
  };
  for (let [before, now] = [look(), look()]; ; [before, now] = [now, look()]) if (before.equals(now)) return now;
}

/** @param folders their parents may come later */
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

/** So that a power cut leaves the names as well. */
export async function syncFolders(root: string, folders: readonly string[]): Promise<void> {
  for (const folder of ['', ...folders]) {
    const handle = await open(path.join(root, folder), constants.O_RDONLY);
    await handle.sync().finally(() => handle.close());
  }
}

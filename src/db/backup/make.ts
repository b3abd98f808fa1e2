/**
 * Backs up the embedded database while it runs, without locks. A backup contains the cluster's files, and the WAL that
 * the server writes during the backup. A replication slot retains the WAL until the backup's connection ends.
 */
import { createHash, randomUUID } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { mkdtemp, open, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type pg from 'pg';
import { codeOf, messageOf } from '../../core/errors.js';
import { SocketClient } from '../line.js';
import { copyFile, createDirectories, listCluster, syncDirectories } from './cluster-files.js';
import { type BackedUpFile, CLUSTER, MANIFEST, type Manifest, makeManifest } from './manifest.js';

interface BackupTask {
  dataDir: string;
  connection: pg.ClientConfig;
  /** Directory to create for the backup. The directory must not exist yet. */
  target: string;
  program: string;
}

/** Creates a backup. If the process is killed, a partial backup might remain in a directory `<target>.partial-…`. */
export async function makeBackup(task: BackupTask): Promise<Manifest> {
  const target = path.resolve(task.target);
  if (existsSync(target)) throw new Error(`${target} already exists: name a new directory`);
  refuseWithin(target, task.dataDir);
  const partial = await mkdtemp(`${target}.partial-`).catch((error) => {
    const isMissing = codeOf(error) === 'ENOENT';
    const reason = isMissing ? `there is no directory ${path.dirname(target)}` : messageOf(error);
    throw new Error(`cannot create a backup at ${target}: ${reason}`, { cause: error });
  });
  const client = new SocketClient(task.connection);
  client.on('error', () => {});
  try {
    await client.connect();
    const manifest = await copyCluster(client, task, path.join(partial, CLUSTER));
    await writeSynced(path.join(partial, MANIFEST), `${JSON.stringify(manifest)}\n`);
    await syncDirectories(partial, []);
    await rename(partial, target);
    await syncDirectories(path.dirname(target), []);
    return manifest;
  } finally {
    // ignore the error: the server discards an unfinished backup when the connection ends
    await client.end().catch(() => {});
    await rm(partial, { recursive: true, force: true });
  }
}

/**
 * Rejects a backup inside the database's directory, because such a backup would contain itself and all earlier backups.
 */
function refuseWithin(target: string, dataDir: string): void {
  const above = path.dirname(target);
  if (!existsSync(above)) return;
  const isWithin = !path.relative(realpathSync(dataDir), realpathSync(above)).startsWith('..');
  if (isWithin) throw new Error(`${target} is inside the database directory (${dataDir}): name another directory`);
}

async function copyCluster(client: pg.Client, { dataDir, program }: BackupTask, to: string): Promise<Manifest> {
  const startedAt = new Date().toISOString();
  const slot = `tapegate_backup_${randomUUID().replaceAll('-', '')}`;
  // create a temporary slot, which the server drops when the connection ends, even if this process is killed
  await client.query('SELECT pg_create_physical_replication_slot($1, true, true)', [slot]);
  await client.query(`SELECT pg_backup_start('tapegate backup', true)`);
  const listed = await listCluster(dataDir);
  await createDirectories(to, listed.directories);
  const files: BackedUpFile[] = [];
  for (const file of listed.files) {
    const copied = await copyFile({ directory: dataDir, path: file }, { directory: to });
    if (copied) files.push(copied); // skip a missing file: its table was dropped during the backup
  }
  const { rows } = await client.query<{ label: string; last: string; postgres: string; segment: string }>(
    `SELECT labelfile AS label, pg_walfile_name(lsn) AS last, current_setting('server_version') AS postgres,
       pg_size_bytes(current_setting('wal_segment_size'))::text AS segment FROM pg_backup_stop(false)`,
  );
  const { label = '', last = '', postgres = '', segment = '' } = rows[0] ?? {};
  for (const file of await listLog(client, label, last, Number(segment))) {
    const copied = await copyFile({ directory: dataDir, path: `pg_wal/${file}` }, { directory: to });
    if (!copied) throw new Error(`WAL file ${file} was removed before the backup could copy it`);
    files.push(copied);
  }
  await writeSynced(path.join(to, 'backup_label'), label);
  files.push({ path: 'backup_label', size: Buffer.byteLength(label), sha256: hashOf(label) });
  await syncDirectories(to, listed.directories);
  const endedAt = new Date().toISOString();
  return makeManifest({ program, postgres, startedAt, endedAt, directories: listed.directories, files });
}

/** Lists the WAL files from the backup's start to its end. @throws Error if a WAL file is missing */
async function listLog(client: pg.Client, label: string, last: string, segmentBytes: number): Promise<string[]> {
  const [, first = ''] = /START WAL LOCATION: .*\(file ([0-9A-F]{24})\)/.exec(label) ?? [];
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' AND name BETWEEN $1 AND $2 ORDER BY name`,
    [first, last],
  );
  const numberOf = (name: string) =>
    Number.parseInt(name.slice(8, 16), 16) * (2 ** 32 / segmentBytes) + Number.parseInt(name.slice(16), 16);
  const expected = numberOf(last) - numberOf(first) + 1;
  if (rows.length !== expected) {
    throw new Error(
      `the backup needs all ${expected} WAL files from ${first} to ${last}, but the server has only ${rows.length}`,
    );
  }
  return rows.map((row) => row.name);
}

const hashOf = (text: string): string => createHash('sha256').update(text).digest('hex');

async function writeSynced(file: string, text: string): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

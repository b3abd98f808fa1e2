/**
 * Access to the embedded database: peer authentication, by which the operating system names the user of a connection, and a map of
 * the users who may connect. If root runs Tapegate, the server runs as another user, whose other programs are not in that map.
 */
import { randomUUID } from 'node:crypto';
import fs, { constants } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { codeOf } from '../errors.js';
import type { ServerUser } from './binaries.js';

/** The user of the database. */
export const DATABASE_USER = 'postgres';

/** Of a new cluster (pg_hba.conf). An operator may change them. */
export const RULES = 'local all all peer map=tapegate\n';

/**
 * Adds the user of this process, and root, to the map of a cluster.
 * @param owner of the files
 * @returns whether a server that runs must reload it
 */
export function admitUser(folder: string, owner: ServerUser): boolean {
  const file = path.join(folder, 'pg_ident.conf');
  const map = readSmall(file) ?? '';
  const lines = [...new Set(['root', os.userInfo().username])].map((name) => `tapegate "${name}" ${DATABASE_USER}\n`);
  const missing = lines.filter((line) => !map.includes(line));
  if (missing.length === 0) return false;
  replaceFile(file, map + missing.join(''), owner);
  return true;
}

/** Writes a file of a cluster in one step and through no link: its directory may belong to another user than root. */
export function replaceFile(file: string, text: string, { uid, gid }: ServerUser): void {
  const partial = `${file}.${randomUUID()}`;
  const fd = fs.openSync(partial, 'wx', 0o600);
  try {
    fs.writeSync(fd, text);
    if (uid !== undefined && gid !== undefined) fs.fchownSync(fd, uid, gid);
    fs.fsyncSync(fd);
    fs.renameSync(partial, file);
  } finally {
    fs.closeSync(fd);
    fs.rmSync(partial, { force: true });
  }
}

const SMALL_BYTES = 256 * 1024;

/**
 * Reads a small file of a cluster, whose directory may belong to another user than root.
 * @returns undefined if there is none
 * @throws Error for anything but a plain file
 */
export function readSmall(file: string): string | undefined {
  const fd = openPlainFile(file, constants.O_RDONLY);
  if (fd === undefined) return undefined;
  try {
    const buffer = Buffer.alloc(SMALL_BYTES);
    return buffer.toString('utf8', 0, fs.readSync(fd, buffer, 0, buffer.length, 0));
  } finally {
    fs.closeSync(fd);
  }
}

/**
 * Opens a file of a cluster without following a link or waiting for a pipe.
 * @returns undefined if there is none
 * @throws Error for a link, a pipe, or a file that has a second name
 */
export function openPlainFile(file: string, flags: number): number | undefined {
  try {
    const fd = fs.openSync(file, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = fs.fstatSync(fd);
    if (stats.isFile() && stats.nlink <= 1) return fd; // a file that was just removed has no name
    fs.closeSync(fd);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    if (!['ELOOP', 'ENXIO'].includes(codeOf(error) ?? '')) throw error;
  }
  throw new Error(`${file} is no plain file of its own: somebody has put something else in its place`);
}

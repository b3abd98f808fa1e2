/**
 * Who may enter the embedded database: the operating system says who calls (peer authentication), and a map says of whom that is
 * enough. Where root runs Tapegate the server has a user of its own, which other programs may run as, too: it is in no map then.
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs, { constants } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { codeOf } from '../errors.js';

const HEADER = '# Written by Tapegate at each start; without this line it is left alone.';
const MAP = 'tapegate';

/** As far as it tells who may enter. */
export interface GuardedServer {
  dataDir: string;
  /** What the server runs as, where that is not the user of this process. */
  user: { uid?: number; gid?: number };
}

/**
 * Writes down who may enter a cluster: the user of this process, root, and its owner where that is who runs Tapegate. Rules that an
 * operator has written are left alone, as long as they do not let everybody in.
 * @param databaseUser whom they are in the database
 * @param folder of a cluster that has just been made, and is not in its place yet
 * @returns whether a server that runs has to read them again
 */
export function guardCluster(server: GuardedServer, databaseUser: string, folder = server.dataDir): boolean {
  const own = nameOf(process.geteuid?.());
  if (own === undefined) return false; // nobody but this user, who has no name, enters a folder of mode 0700
  const rules = readSmall(path.join(folder, RULES)) ?? '';
  const isNew = folder !== server.dataDir;
  if (!isNew && !rules.startsWith(HEADER) && !letsAllIn(rules)) return false;
  const map = readSmall(path.join(folder, USERS)) ?? '';
  const names = new Set([...namesIn(map), own, nameOf(0), ownerWhoRunsIt(server)].filter((name) => name !== undefined));
  const lines = [...names].sort().map((name) => `${MAP} "${name}" ${databaseUser}`);
  const isNewMap = replace(server, path.join(folder, USERS), [HEADER, ...lines], map);
  const isNewRules = replace(server, path.join(folder, RULES), [HEADER, `local all all peer map=${MAP}`], rules);
  return isNewMap || isNewRules;
}

const RULES = 'pg_hba.conf';
const USERS = 'pg_ident.conf';

/** `trust` asks nobody who it is. */
function letsAllIn(rules: string): boolean {
  return rules.split('\n').some((line) => !line.trimStart().startsWith('#') && /\strust(\s|$)/.test(line));
}

/** Of those who may enter already: another user may have made the cluster that root starts now. */
function namesIn(map: string): string[] {
  if (!map.startsWith(HEADER)) return [];
  return [...map.matchAll(new RegExp(`^${MAP} "([^"]+)" `, 'gm'))].map(([, name]) => name ?? '');
}

/** What the server runs as for root owns the cluster, and not the folder that root keeps it in. */
function ownerWhoRunsIt({ dataDir, user }: GuardedServer): string | undefined {
  if (user.uid === undefined) return undefined; // it is this process's user
  const { uid } = fs.statSync(path.dirname(dataDir));
  return uid === user.uid ? nameOf(uid) : undefined;
}

/** @returns undefined for a number without a name */
function nameOf(uid: number | undefined): string | undefined {
  if (uid === undefined) return undefined;
  try {
    if (uid === process.geteuid?.()) return os.userInfo().username;
    return execFileSync('id', ['-un', String(uid)], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}

/** In one step, and through no link: the folder may be another user's than root's. @returns whether it had another text */
function replace({ user }: GuardedServer, file: string, lines: readonly string[], before: string): boolean {
  const text = `${lines.join('\n')}\n`;
  if (text === before) return false;
  const partial = `${file}.${randomUUID()}`;
  const fd = fs.openSync(partial, 'wx', 0o600); // follows no link
  try {
    fs.writeSync(fd, text);
    if (user.uid !== undefined && user.gid !== undefined) fs.fchownSync(fd, user.uid, user.gid);
    fs.fsyncSync(fd);
    fs.renameSync(partial, file);
  } catch (error) {
    fs.rmSync(partial, { force: true });
    throw error;
  } finally {
    fs.closeSync(fd);
  }
  return true;
}

const SMALL_BYTES = 256 * 1024;

/**
 * A small file in a cluster's folder, which is another user's where root runs Tapegate: it follows no link, and waits for no pipe.
 * @returns undefined where there is none
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
 * Opens a file of a cluster's folder, and looks then at what it is.
 * @param flags beside those that follow no link and wait for nobody
 * @returns undefined where there is none
 * @throws Error for a link, a pipe, or a file that has another name beside this one
 */
export function openPlainFile(file: string, flags: number, mode?: number): number | undefined {
  let fd: number;
  try {
    fd = fs.openSync(file, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK, mode);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    if (['ELOOP', 'ENXIO'].includes(codeOf(error) ?? '')) throw notPlain(file);
    throw error;
  }
  const stats = fs.fstatSync(fd);
  // one that has just been removed has no name
  if (stats.isFile() && stats.nlink <= 1) return fd;
  fs.closeSync(fd);
  throw notPlain(file);
}

function notPlain(file: string): Error {
  return new Error(`${file} is no plain file of its own: somebody has put something else in its place`);
}

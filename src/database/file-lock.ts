/**
 * A lock among the processes of a host, by files.
 *
 * Whoever wants it puts a file into a folder, whose name says which process that is, and has the lock where nobody else who lives
 * has such a file: of two, the one that comes later sees the file of the other. Both may see each other, and come back later. A
 * file whose process has ended counts for nothing, and its name is never used again. Nobody but who may write there can be in the
 * way, as somebody can be who may choose any name (a socket's, one in /tmp).
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { codeOf } from '../errors.js';

export interface LockPlace {
  /** The first of them that may be written; the same for all processes. */
  folders: readonly string[];
  /** How names of the lock begin. */
  prefix: string;
  /** Whether a file counts, by its owner: anybody may make files where the folder is everybody's. */
  isMeant(stats: fs.Stats): boolean;
}

/** @returns what gives the lock back; undefined while another process has it */
export function takeFileLock(place: LockPlace): (() => void) | undefined {
  const name = `${place.prefix}${process.pid}-${birthOf(process.pid) ?? '0'}-${randomUUID()}`;
  const folder = putIntoFirst(place.folders, name);
  const unlock = () => fs.rmSync(path.join(folder, name), { force: true });
  try {
    if (isAlone(place, folder, name)) return unlock;
  } catch (error) {
    unlock();
    throw error;
  }
  unlock();
  return undefined;
}

/** @returns the folder */
function putIntoFirst(folders: readonly string[], name: string): string {
  for (const [index, folder] of folders.entries()) {
    try {
      fs.closeSync(fs.openSync(path.join(folder, name), 'wx', 0o600));
      return folder;
    } catch (error) {
      const isLast = index === folders.length - 1;
      if (isLast || !['EACCES', 'EROFS', 'EPERM'].includes(codeOf(error) ?? '')) throw error;
    }
  }
  throw new Error('a lock needs a folder');
}

function isAlone({ prefix, isMeant }: LockPlace, folder: string, own: string): boolean {
  let isAlone = true;
  for (const name of fs.readdirSync(folder)) {
    if (name === own || !name.startsWith(prefix)) continue;
    const [, pid, born] = /^(\d{1,10})-(\w{1,40})-[\w-]+$/.exec(name.slice(prefix.length)) ?? [];
    const stats = fs.lstatSync(path.join(folder, name), { throwIfNoEntry: false });
    if (pid === undefined || !stats?.isFile() || !isMeant(stats)) continue;
    if (birthOf(Number(pid)) === born) isAlone = false;
    else fs.rmSync(path.join(folder, name), { force: true });
  }
  return isAlone;
}

/** When a process began: together with its number that names it for good. @returns undefined where it has ended */
function birthOf(pid: number): string | undefined {
  try {
    if (process.platform !== 'linux') {
      const text = execFileSync('ps', ['-p', String(pid), '-o', 'lstart='], { encoding: 'utf8' });
      return text.replace(/\W+/g, '_') || undefined;
    }
    // its name comes second, in brackets, and may hold anything
    const fields = fs
      .readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return ENDED.includes(fields[0] ?? '') ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

/** A process that nobody has waited for. */
const ENDED = ['Z', 'X'];

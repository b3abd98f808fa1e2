/**
 * A lock among the processes of a host. A process that wants it creates a file whose name identifies the process, and has the lock if no other
 * live process has such a file: of two, the later one sees the file of the other. Both may see each other, and try again. A file whose process
 * has ended is removed, and its name is never used again.
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';

/**
 * @param folder in which files of other users are ignored
 * @param prefix of the names of the lock's files
 * @returns what releases the lock; undefined if another process has it
 */
export function takeFileLock(folder: string, prefix: string): (() => void) | undefined {
  const own = `${prefix}${process.pid}-${birthOf(process.pid) ?? '0'}-${randomUUID()}`;
  fs.closeSync(fs.openSync(path.join(folder, own), 'wx', 0o600));
  const unlock = () => fs.rmSync(path.join(folder, own), { force: true });
  let isAlone = false;
  try {
    isAlone = !fs
      .readdirSync(folder)
      .some((name) => name !== own && name.startsWith(prefix) && isHeld(folder, name, prefix));
  } finally {
    if (!isAlone) unlock();
  }
  return isAlone ? unlock : undefined;
}

/** Removes the file if its process has ended. */
function isHeld(folder: string, name: string, prefix: string): boolean {
  const file = path.join(folder, name);
  const [, pid, born] = /^(\d{1,10})-(\w{1,40})-[\w-]+$/.exec(name.slice(prefix.length)) ?? [];
  const stats = fs.lstatSync(file, { throwIfNoEntry: false });
  if (pid === undefined || !stats?.isFile() || stats.uid !== process.geteuid?.()) return false;
  if (birthOf(Number(pid)) === born) return true;
  fs.rmSync(file, { force: true });
  return false;
}

/** Returns when a process began, which identifies it together with its number; undefined if it has ended. */
function birthOf(pid: number): string | undefined {
  try {
    if (process.platform !== 'linux') {
      const text = execFileSync('ps', ['-p', String(pid), '-o', 'lstart='], { encoding: 'utf8' });
      return text.replace(/\W+/g, '_') || undefined;
    }
    // the second field is its name in brackets, which may contain anything
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /s, '');
    const [state = '', ...fields] = stat.split(' ');
    return ['Z', 'X'].includes(state) ? undefined : fields[18]; // a zombie has ended
  } catch {
    return undefined;
  }
}

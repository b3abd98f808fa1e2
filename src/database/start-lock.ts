/**
 * Of the processes of a host that want to start the server of a directory, one does at a time. Otherwise one that takes
 * the files of a dead server away could take those of the server that another one has just started, which nobody finds
 * any more then.
 *
 * Whoever wants the lock puts a file beside the directory, whose name says which process that is, and has the lock where nobody
 * else who lives has such a file: of two, the one that comes later sees the file of the other. Both may see each other, and come
 * back later. A file whose process has ended counts for nothing, and its name is never used again. Nobody but who may write there
 * can be in the way, as somebody can be who may choose any name (a socket's, one in /tmp).
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { codeOf } from '../errors.js';

/** @returns what gives the lock back; undefined while another process has it */
export async function takeStartLock(dataDir: string): Promise<(() => void) | undefined> {
  const real = fs.realpathSync(dataDir);
  const born = birthOf(process.pid);
  const name = `${path.basename(real)}${INFIX}${process.pid}-${born ?? '0'}-${randomUUID()}`;
  const folder = putBeside(real, name);
  const unlock = () => fs.rmSync(path.join(folder, name), { force: true });
  try {
    if (!isAlone(real, folder, name)) {
      unlock();
      return undefined;
    }
    return unlock;
  } catch (error) {
    unlock();
    throw error;
  }
}

const INFIX = '.start-';

/** In the folder above, which is its owner's alone; in the directory where that folder may not be written. @returns where */
function putBeside(dataDir: string, name: string): string {
  for (const folder of [path.dirname(dataDir), dataDir]) {
    try {
      fs.closeSync(fs.openSync(path.join(folder, name), 'wx', 0o600));
      return folder;
    } catch (error) {
      if (folder === dataDir || !['EACCES', 'EROFS', 'EPERM'].includes(codeOf(error) ?? '')) throw error;
    }
  }
  return dataDir;
}

function isAlone(dataDir: string, folder: string, own: string): boolean {
  const prefix = `${path.basename(dataDir)}${INFIX}`;
  let isAlone = true;
  for (const name of fs.readdirSync(folder)) {
    if (name === own || !name.startsWith(prefix)) continue;
    const [, pid, born] = /^(\d{1,10})-(\w{1,40})-[\w-]+$/.exec(name.slice(prefix.length)) ?? [];
    if (pid === undefined || !isMeant(path.join(folder, name), dataDir)) continue;
    if (birthOf(Number(pid)) === born) isAlone = false;
    else fs.rmSync(path.join(folder, name), { force: true });
  }
  return isAlone;
}

/** Made by who may start this server: anybody may make files where the folder is everybody's. */
function isMeant(file: string, dataDir: string): boolean {
  const stats = fs.lstatSync(file, { throwIfNoEntry: false });
  const mayStart = [0, process.geteuid?.(), fs.statSync(dataDir).uid];
  return stats?.isFile() === true && mayStart.includes(stats.uid);
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

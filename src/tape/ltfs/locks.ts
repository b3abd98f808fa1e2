/**
 * Locks among the processes of a host, or of several that share the folder: the system's own (flock), on files that stay.
 *
 * A lock belongs to the open file, and is let go when nobody has that open any more: however a process ends, nobody has to find out
 * whether it lives, and a command that was given the descriptor has the lock until it has ended itself, which may be long after the
 * process that started it. Files with the numbers of processes in them tell neither, nor anything between containers. Node has no call
 * for it, so flock(1) of util-linux takes the lock on a descriptor that is this process's own, and ends.
 */
import { spawn } from 'node:child_process';
import fs, { closeSync, constants } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';

const openFd = promisify(fs.open);

/** What flock(1) ends with where somebody else has the lock. */
const BUSY = 75;

/** A lock that is held until it is closed, here and in whatever has inherited the descriptor. */
export class HeldLock {
  readonly fd: number;
  private isClosed = false;

  constructor(fd: number) {
    this.fd = fd;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    closeSync(this.fd);
  }
}

export class LockFolder {
  private readonly folder: string;

  constructor(folder: string) {
    this.folder = folder;
  }

  /**
   * @param name of what is locked: a device, the same for all processes
   * @param seconds for which whoever has it is waited for
   * @returns undefined while somebody else has it
   * @throws LibraryError where nothing can be locked there
   */
  async take(name: string, seconds: number, signal: AbortSignal): Promise<HeldLock | undefined> {
    signal.throwIfAborted();
    const file = path.join(this.folder, `${encodeURIComponent(name)}.lock`);
    const lock = new HeldLock(await this.open(file));
    try {
      if (await flock(lock.fd, file, seconds, signal)) return lock;
    } catch (error) {
      lock.close();
      throw signal.aborted ? signal.reason : error;
    }
    lock.close();
    return undefined;
  }

  private async open(file: string): Promise<number> {
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 });
      return await openFd(file, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
    } catch (error) {
      throw new LibraryError('POLICY', `the lock ${file} cannot be opened: ${messageOf(error)}`, { cause: error });
    }
  }
}

function flock(fd: number, file: string, seconds: number, signal: AbortSignal): Promise<boolean> {
  const wait = seconds > 0 ? ['--timeout', String(seconds)] : ['--nonblock'];
  return new Promise((resolve, reject) => {
    const args = ['--exclusive', ...wait, '--conflict-exit-code', String(BUSY), '3'];
    const child = spawn('flock', args, { stdio: ['ignore', 'ignore', 'pipe', fd], signal });
    let said = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(0, 1000);
    });
    child.on('error', (error) => {
      reject(new LibraryError('POLICY', `flock of util-linux cannot be run: ${messageOf(error)}`, { cause: error }));
    });
    child.on('close', (code) => {
      if (code === 0) resolve(true);
      else if (code === BUSY) resolve(false);
      else
        reject(
          new LibraryError('POLICY', `the lock ${file} cannot be taken: flock ended with ${code}: ${said.trim()}`),
        );
    });
  });
}

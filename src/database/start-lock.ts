/**
 * Of the processes of a host that want to start the server of a directory, one does at a time. Otherwise one that takes
 * the files of a dead server away could take those of the server that another one has just started, which nobody finds
 * any more then.
 */
import fs from 'node:fs';
import path from 'node:path';
import { takeFileLock } from './file-lock.js';

/** @returns what gives the lock back; undefined while another process has it */
export async function takeStartLock(dataDir: string): Promise<(() => void) | undefined> {
  const real = fs.realpathSync(dataDir);
  return takeFileLock({
    // in the folder above, which is its owner's alone; in the directory where that folder may not be written
    folders: [path.dirname(real), real],
    prefix: `${path.basename(real)}.start-`,
    isMeant: ({ uid }) => [0, process.geteuid?.(), fs.statSync(real).uid].includes(uid), // who may start this server
  });
}

/**
 * Of the processes of a host that want to start the server of a directory, one does at a time. Otherwise one that takes
 * the files of a dead server away could take those of the server that another one has just started, which nobody finds
 * any more then.
 *
 * The lock is an abstract Unix socket: it belongs to its process and goes with it, however that ends. Where there are
 * none there is no lock, and two that start at the very same moment must be lucky.
 */
import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import net from 'node:net';
import { codeOf } from '../errors.js';

/** @returns what gives the lock back; undefined while another process has it */
export async function takeStartLock(dataDir: string): Promise<(() => void) | undefined> {
  if (process.platform !== 'linux') return () => {};
  const hash = createHash('sha256').update(realpathSync(dataDir)).digest('hex').slice(0, 32);
  const socket = net.createServer((caller) => caller.destroy()).unref();
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.listen(`\0tapegate-start-${hash}`, resolve);
    });
  } catch (error) {
    if (codeOf(error) === 'EADDRINUSE') return undefined;
    throw error;
  }
  return () => void socket.close();
}

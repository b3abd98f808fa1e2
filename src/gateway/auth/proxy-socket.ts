/** Unix sockets on which a gateway listens for its proxies: their permissions decide who may speak for users. */
import { once } from 'node:events';
import { statSync, unlinkSync } from 'node:fs';
import { chmod, chown, lstat, mkdtemp, rename, rmdir } from 'node:fs/promises';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import path from 'node:path';
import type { ProxySocket } from '../../config/setting-values.js';
import { codeOf, messageOf } from '../../core/errors.js';

/**
 * Listens on a socket that only its owner and its group can open, and removes it when the server closes. The socket of
 * a process that was killed is replaced.
 * @throws Error with the path
 */
export async function listenForProxy(server: Server, { path: place, group }: ProxySocket): Promise<void> {
  try {
    await checkFree(place);
    // a private directory, so that nobody connects before the permissions are set
    const dir = await mkdtemp(path.join(path.dirname(place), '.new-'));
    const made = path.join(dir, 's');
    try {
      await once(server.listen(made), 'listening');
      if (group !== undefined) await chown(made, process.getuid?.() ?? -1, group);
      await chmod(made, group === undefined ? 0o600 : 0o660);
      await rename(made, place);
    } finally {
      await rmdir(dir).catch(() => {}); // it is not empty if the socket could not be moved; closing the server removes that
    }
    const { ino } = statSync(place);
    server.once('close', () => removeSocket(place, ino));
  } catch (error) {
    throw new Error(`cannot listen on ${place} (TAPEGATE_PROXY_ADDRESSES): ${messageOf(error)}`, { cause: error });
  }
}

/** @throws Error if a process listens there, or if it is no socket */
async function checkFree(place: string): Promise<void> {
  const found = await lstat(place).catch((error) => {
    if (codeOf(error) !== 'ENOENT') throw error;
  });
  if (!found) return;
  if (!found.isSocket()) throw new Error('there is a file that is not a socket: remove it');
  const client = connect(place);
  try {
    await once(client, 'connect');
  } catch (error) {
    if (codeOf(error) === 'ECONNREFUSED') return;
    throw error;
  } finally {
    client.destroy();
  }
  throw new Error('another process listens there');
}

/** Leaves the socket of a process that has taken the place. */
function removeSocket(place: string, ino: number): void {
  try {
    if (statSync(place).ino === ino) unlinkSync(place);
  } catch {
    // somebody has removed it
  }
}

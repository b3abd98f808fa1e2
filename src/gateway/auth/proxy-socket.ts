/**
 * Creates Unix sockets on which a gateway listens for its proxies. A socket's permissions decide which processes can
 * send requests on behalf of users.
 */
import { once } from 'node:events';
import { statSync, unlinkSync } from 'node:fs';
import { chmod, chown, lstat, mkdtemp, rename, rmdir } from 'node:fs/promises';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import path from 'node:path';
import type { ProxySocket } from '../../config/setting-values.js';
import { codeOf, messageOf } from '../../core/errors.js';

/**
 * Listens on a Unix socket that only its owner and group can open. Replaces the socket of a process that was killed.
 * @throws Error with a message that contains the socket's path
 */
export async function listenForProxy(server: Server, { path: file, group }: ProxySocket): Promise<void> {
  try {
    await checkFree(file);
    // create the socket in a private directory, so that no process connects before the permissions are set
    const dir = await mkdtemp(path.join(path.dirname(file), '.new-'));
    const made = path.join(dir, 's');
    try {
      await once(server.listen(made), 'listening');
      if (group !== undefined) await chown(made, process.getuid?.() ?? -1, group);
      await chmod(made, group === undefined ? 0o600 : 0o660);
      await rename(made, file);
    } finally {
      // ignore a failed removal, because the server removes the socket when it closes
      await rmdir(dir).catch(() => {});
    }
    const { ino } = statSync(file);
    server.once('close', () => removeSocket(file, ino));
  } catch (error) {
    throw new Error(`cannot listen on ${file} (TAPEGATE_PROXY_ADDRESSES): ${messageOf(error)}`, { cause: error });
  }
}

async function checkFree(file: string): Promise<void> {
  const found = await lstat(file).catch((error) => {
    if (codeOf(error) !== 'ENOENT') throw error;
  });
  if (!found) return;
  if (!found.isSocket()) throw new Error('the file at this path is not a socket: remove the file');
  const client = connect(file);
  try {
    await once(client, 'connect');
  } catch (error) {
    if (codeOf(error) === 'ECONNREFUSED') return;
    throw error;
  } finally {
    client.destroy();
  }
  throw new Error('another process is listening on this socket');
}

function removeSocket(file: string, ino: number): void {
  try {
    if (statSync(file).ino === ino) unlinkSync(file);
  } catch {
    // the socket was already removed
  }
}

/**
 * The standard output of a script, which is read into blocks (src/blocks.ts). The pipe that Node.js makes for a child cannot be: it takes new memory for each
 * read.
 */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { BlockSocket } from '../http/block-socket.js';

export interface Output {
  /** For the script; to be destroyed here once it has it, so that its end is seen. */
  end: net.Socket;
  reader: BlockSocket;
}

/** For a moment there is a socket in the system's temporary folder, in a folder that nobody else may enter. */
export async function openOutput(): Promise<Output> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'tapegate-script-'));
  const server = net.createServer({ pauseOnConnect: true });
  try {
    const place = path.join(folder, 'output');
    server.listen(place);
    await once(server, 'listening');
    const connected = once(server, 'connection');
    const reader = BlockSocket.ofBytes((onread) =>
      net.connect({ path: place, onread } as unknown as net.IpcNetConnectOpts),
    );
    const [end] = (await connected) as [net.Socket];
    end.on('error', () => {}); // it is the script's
    return { end, reader };
  } finally {
    server.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** TLS by certificate files: read anew while the gateway runs, so that a renewed certificate needs no stop. */
import { readFile } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { createServer, type Server } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../errors.js';
import { checkTls, describeFault, type TlsCredentials, type TlsFiles } from '../tls-files.js';

/** So often Node looks for headers that are late. */
const CHECK_MS = 1000;

export interface TlsConfig {
  /** File of PEM: the certificate, followed by those between it and its authority. Undefined: no TLS. */
  tlsCert: string | undefined;
  /** File of PEM, without a passphrase. */
  tlsKey: string | undefined;
}

/** As long as for the header of a request. */
const HANDSHAKE_MS = 20_000;

/** What is renewed by a link that is set anew tells no watcher of its file: so both are read, which costs next to nothing. */
const LOOK_MS = 2000;

/**
 * @returns what makes a server that speaks TLS, and follows the files as long as it listens; undefined where none is wanted
 * @throws Error that names the variables, where the files cannot be read or do not belong together
 */
export async function openTls(
  { tlsCert, tlsKey }: TlsConfig,
  log: Logger,
): Promise<((listener: RequestListener) => Server) | undefined> {
  if (tlsCert === undefined || tlsKey === undefined) return undefined;
  const files = { cert: tlsCert, key: tlsKey };
  const first = await readCredentials(files);
  return (listener) => {
    const server = createServer(
      { ...first, handshakeTimeout: HANDSHAKE_MS, connectionsCheckingInterval: CHECK_MS },
      listener,
    );
    // before the one that would answer it, in the clear
    server.prependListener('tlsClientError', (_error, socket) => void socket.destroy());
    const end = new AbortController();
    server.once('listening', () => void follow(server, { files, first, log, signal: end.signal }));
    server.once('close', () => end.abort());
    return server;
  };
}

async function readCredentials(files: TlsFiles): Promise<TlsCredentials> {
  const [cert, key] = [await readPart(files, 'cert'), await readPart(files, 'key')];
  checkTls(files, { cert, key });
  return { cert, key };
}

async function readPart(files: TlsFiles, part: keyof TlsFiles): Promise<Buffer> {
  try {
    return await readFile(files[part]);
  } catch (error) {
    throw new Error(describeFault(files, part, error), { cause: error });
  }
}

/**
 * Serves what the files hold from the next connection on. While they do not belong together, as in the middle of a renewal,
 * the last ones that did are served.
 */
async function follow(
  server: Server,
  { files, first, log, signal }: { files: TlsFiles; first: TlsCredentials; log: Logger; signal: AbortSignal },
): Promise<void> {
  let served = first;
  let told: string | undefined;
  for (;;) {
    await sleep(LOOK_MS, undefined, { signal, ref: false }).catch(() => {}); // it is over: seen below
    if (signal.aborted) return;
    try {
      const next = await readCredentials(files);
      told = undefined;
      if (next.cert.equals(served.cert) && next.key.equals(served.key)) continue;
      server.setSecureContext(next);
      served = next;
      log.info(files, 'another certificate is served');
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== told) log.warn(files, `the last certificate is served on: ${problem}`);
      told = problem;
    }
  }
}

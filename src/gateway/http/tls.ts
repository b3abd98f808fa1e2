/** Serves TLS with certificate files, and reloads changed files. */
import { readFile } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { createServer, type Server } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { findTlsFaults, type TlsFiles } from '../../config/tls-files.js';
import { messageOf } from '../../core/errors.js';

/** Interval in milliseconds at which Node.js looks for clients that have not sent all request headers in time. */
const CHECK_MS = 1000;

interface TlsConfig {
  /** Path of a PEM file with the certificate, followed by intermediate certificates; undefined if TLS is off. */
  tlsCert: string | undefined;
  /** Path of a PEM file with the key, which must not have a passphrase. */
  tlsKey: string | undefined;
}

const HANDSHAKE_MS = 20_000;

/**
 * Milliseconds between checks for changed certificate or key files. A file watcher would not notice a renewal that
 * changes a symbolic link.
 */
const POLL_MS = 2000;

/**
 * @returns a function that creates a TLS server; undefined if TLS is off. While listening, the server reloads changed
 * certificate files
 * @throws Error that names the environment variables if certificate and key cannot be read or do not match
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
    // destroy the socket first, because Node.js's own handler would answer a failed TLS handshake in plain text
    server.prependListener('tlsClientError', (_error, socket) => void socket.destroy());
    const end = new AbortController();
    server.once('listening', () => void follow(server, { files, first, log, signal: end.signal }));
    server.once('close', () => end.abort());
    return server;
  };
}

type TlsCredentials = Record<keyof TlsFiles, Buffer>;

async function readCredentials(files: TlsFiles): Promise<TlsCredentials> {
  const [cert, key] = await Promise.all([files.cert, files.key].map((file) => readFile(file).catch((error) => error)));
  const faults = findTlsFaults(files, { cert, key });
  if (faults.length > 0) throw new Error(faults.join('; '));
  return { cert, key };
}

/**
 * Uses changed certificate files for new connections. If the new certificate and key do not match, for example because
 * only one file has been renewed, keeps the old ones.
 */
async function follow(
  server: Server,
  { files, first, log, signal }: { files: TlsFiles; first: TlsCredentials; log: Logger; signal: AbortSignal },
): Promise<void> {
  let served = first;
  let lastProblem: string | undefined;
  for (;;) {
    await sleep(POLL_MS, undefined, { signal, ref: false }).catch(() => {});
    if (signal.aborted) return;
    try {
      const next = await readCredentials(files);
      lastProblem = undefined;
      if (next.cert.equals(served.cert) && next.key.equals(served.key)) continue;
      server.setSecureContext(next);
      served = next;
      log.info(files, 'serving a new certificate');
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== lastProblem) log.warn(files, `still serving the previous certificate: ${problem}`);
      lastProblem = problem;
    }
  }
}

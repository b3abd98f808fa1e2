/** Sends HTTP requests through undici, with time limits. Error messages contain the server's name. */
import type { IncomingHttpHeaders } from 'node:http';
import type { SecureContextOptions } from 'node:tls';
import type { Dispatcher } from 'undici';
import { codeOf, messageOf } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { untilAborted } from '../until-aborted.js';

/** Time limits for a request, in milliseconds. */
export interface TimeLimits {
  /** Time limit for opening a connection, including the TLS handshake. */
  connectMs: number;
  /** Time limit for receiving the response head, after the connection has been opened. */
  answerMs: number;
  /**
   * Time limit between two chunks of a response body. The reader's own processing time does not count towards this
   * limit.
   */
  silenceMs: number;
}

export interface Exchange {
  method: 'GET' | 'POST' | 'DELETE';
  url: URL;
  headers: Readonly<Record<string, string>>;
  body?: string;
  pools: Pools;
  signal: AbortSignal;
}

export interface ResponseHead {
  readonly statusCode: number;
  readonly statusText: string;
  /** Response headers, keyed by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A response. The caller must read or destroy the response body. */
export interface Answer {
  response: ResponseHead;
  /** URL of the request without its query, for error messages. */
  name: string;
  /**
   * Yields the response body. The caller can call `read` only once. Closes the connection if the reader stops before
   * the end.
   * @throws LibraryError if the body breaks off
   * @throws SilentServerError if no bytes arrive in time
   */
  read(): AsyncGenerator<Buffer>;
  destroy(): void;
}

export class SilentServerError extends LibraryError {
  constructor(message: string) {
    super('TRANSIENT', message);
  }
}

/** Time after which this process closes an idle connection, chosen to be shorter than servers' idle timeouts. */
const IDLE_MS = 4000;

interface PoolOptions {
  limits: TimeLimits;
  sockets: number;
  secure: () => Promise<SecureContextOptions>;
}

/**
 * Connection pools, keyed by origin. This module does not use undici's `Agent`, because an `Agent` can drop a new pool
 * when a connection in an old pool closes late.
 */
export class Pools {
  readonly limits: TimeLimits;
  private readonly options: PoolOptions;
  private readonly byOrigin = new Map<string, Dispatcher>();

  constructor(options: PoolOptions) {
    this.limits = options.limits;
    this.options = options;
  }

  async find({ origin }: URL): Promise<Dispatcher> {
    const { Pool, buildConnector } = await import('undici');
    const known = this.byOrigin.get(origin);
    if (known) return known;
    const { connectMs, answerMs, silenceMs } = this.limits;
    const { sockets, secure } = this.options;
    const secureOf = async (protocol: string) => (protocol === 'https:' ? await secure() : {});
    const pool = new Pool(origin, {
      connections: sockets,
      connect: (options, callback) => {
        const connect = (found: SecureContextOptions) =>
          buildConnector({ ...found, timeout: connectMs })(options, (...result) => {
            const [, socket] = result;
            // report the TLS alert of a server that rejects the certificate, because undici would report only a closed
            // connection
            socket?.on('error', (error) => socket.destroy(error));
            callback(...result);
          });
        secureOf(options.protocol).then(connect, (error: Error) => callback(error, null));
      },
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      headersTimeout: answerMs,
      bodyTimeout: silenceMs,
    });
    this.byOrigin.set(origin, pool);
    return pool;
  }
}

/**
 * Sends a request and waits for the response head. The caller must read or destroy the response body.
 * @throws LibraryError if the connection fails
 * @throws SilentServerError on a timeout
 */
export async function exchange({ pools, url, method, headers, body, signal }: Exchange): Promise<Answer> {
  const name = nameOf(url);
  try {
    const pool = await pools.find(url);
    const path = `${url.pathname}${url.search}`;
    const sent = { path, method, headers: { ...headers }, body: body ?? null, signal };
    // use `untilAborted`, because undici ignores an abort while a request waits for a free connection
    const answer = await untilAborted(pool.request(sent), signal);
    const { statusCode, statusText, headers: received, body: arriving } = answer;
    return {
      response: { statusCode, statusText, headers: joined(received) },
      name,
      read: () => readBody(arriving, { name, silenceMs: pools.limits.silenceMs, signal }),
      destroy: () => void arriving.on('error', () => {}).destroy(),
    };
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof LibraryError ? error : explain(name, method, pools.limits, error);
  }
}

async function* readBody(
  body: AsyncIterable<Buffer>,
  { name, silenceMs, signal }: { name: string; silenceMs: number; signal: AbortSignal },
): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of body) {
      yield chunk;
      signal.throwIfAborted();
    }
  } catch (error) {
    signal.throwIfAborted();
    if (codeOf(error) === 'UND_ERR_BODY_TIMEOUT')
      throw new SilentServerError(`${name} sent no data for ${silenceMs / 1000} s`);
    throw new LibraryError('TRANSIENT', `${name} was interrupted: ${messageOf(error)}`, { cause: error });
  }
}

/** Reads the rest of a short response body, so that the connection can be reused. */
export async function discard(answer: Answer, signal: AbortSignal): Promise<void> {
  await readText(answer, 64 * 1024).catch(() => signal.throwIfAborted());
}

/**
 * Returns a response body as text.
 * @throws LibraryError if the body is longer than `maxBytes`; the same errors as `Answer.read`
 */
export async function readText(answer: Answer, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer.read()) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new LibraryError('TRANSIENT', `${answer.name} returned more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function joined(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value ?? []].flat().join(', ')]));
}

function explain(name: string, method: string, limits: TimeLimits, error: unknown): LibraryError {
  const code = codeOf(error);
  if (code === 'UND_ERR_CONNECT_TIMEOUT')
    return new SilentServerError(`${name} accepted no connection within ${limits.connectMs / 1000} s`);
  if (code === 'UND_ERR_HEADERS_TIMEOUT')
    return new SilentServerError(`${name} did not answer ${method} within ${limits.answerMs / 1000} s`);
  const errorClass = isUntrusted(error) ? 'POLICY' : 'TRANSIENT';
  // the error has no message if the server has several addresses and all of them refuse the connection
  const reason = messageOf(error) || code;
  return new LibraryError(errorClass, `${name} cannot be reached: ${reason}`, { cause: error });
}

/** Returns a URL for error messages, without the query, which might contain a secret. */
export function nameOf({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

/** Matches OpenSSL's error codes for a server certificate that this process rejects. */
const REFUSED_HERE =
  /^(CERT_\w+|CRL_\w+|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)_\w+|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED|HOSTNAME_MISMATCH|ERR_TLS_CERT_ALTNAME_INVALID)$/;

/** Matches OpenSSL's error codes for a server that rejects the client certificate, or requires one. */
const REFUSED_THERE = /^ERR_SSL_\w*ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)$/;

/** Returns whether the connection failed because the server or this process rejected a certificate. */
export function isUntrusted(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  if (REFUSED_HERE.test(code) || REFUSED_THERE.test(code)) return true;
  return error instanceof Error && error.cause !== undefined && isUntrusted(error.cause);
}

import type { IncomingHttpHeaders } from 'node:http';
import type { SecureContextOptions } from 'node:tls';
import type { Dispatcher } from 'undici';
import { codeOf, messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { type Answer, Body, SilentServerError } from './body.js';

/** Milliseconds. */
export interface TimeLimits {
  /** To connect, including TLS. */
  connectMs: number;
  /** From connection to response head. */
  answerMs: number;
  /** Between two pieces of a response body. */
  silenceMs: number;
}

export interface Exchange {
  method: 'GET' | 'HEAD' | 'POST' | 'DELETE';
  url: URL;
  /** Sent verbatim instead of the path and query of `url`. */
  target?: string;
  headers: Readonly<Record<string, string>>;
  body?: string | Uint8Array;
  pools: Pools;
  limits: TimeLimits;
  signal: AbortSignal;
  /** Whether to resend once if the connection breaks before the response: servers may close idle connections. */
  isRepeatable: boolean;
}

/** Shorter than the idle timeout of servers. */
const IDLE_MS = 4000;

const MAX_HEAD_BYTES = 64 * 1024;

/** Maximum number of 1xx responses before the final one. */
const MAX_INTERIM = 10;

/** Connection pools by origin. Not undici's `Agent`: when an old connection closes late, it drops its successor's. */
export class Pools {
  private readonly options: { limits: TimeLimits; sockets: number; secure?: SecureContextOptions };
  private readonly byOrigin = new Map<string, Dispatcher>();

  /** @param options.sockets maximum connections to each server @param options.secure CA and client certificates */
  constructor(options: { limits: TimeLimits; sockets: number; secure?: SecureContextOptions }) {
    this.options = options;
  }

  async find({ origin }: URL): Promise<Dispatcher> {
    const { Pool, buildConnector } = await import('undici');
    const known = this.byOrigin.get(origin);
    if (known) return known;
    const { limits, sockets, secure } = this.options;
    const connect = buildConnector({ ...secure, timeout: limits.connectMs });
    const pool = new Pool(origin, {
      connections: sockets,
      connect: (options, callback) =>
        connect(options, (...result) => {
          const [, socket] = result;
          // a server that rejects a certificate sends an alert, then closes: undici would report only the close
          socket?.on('error', (error) => socket.destroy(error));
          callback(...result);
        }),
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: limits.answerMs,
      bodyTimeout: 0, // `Body` has its own limit, which excludes the reader's time
    });
    this.byOrigin.set(origin, pool);
    return pool;
  }
}

/**
 * Sends a request and waits for the response head. The caller reads the body or destroys it.
 * @throws LibraryError if the connection fails; SilentServerError on a timeout; the signal's reason
 */
export async function exchange(request: Exchange): Promise<Answer> {
  const { signal, isRepeatable } = request;
  try {
    return await send(request).catch((error: unknown) => {
      if (signal.aborted || !isRepeatable || !isBroken(error)) throw error;
      return send(request);
    });
  } catch (error) {
    signal.throwIfAborted();
    throw explain(request, error);
  }
}

async function send({ pools, signal, url, limits, ...request }: Exchange): Promise<Answer> {
  const pool = await pools.find(url);
  signal.throwIfAborted();
  return await new Promise<Answer>((resolve, reject) => {
    let controller: Dispatcher.DispatchController | undefined;
    let body: Body | undefined;
    let interim = 0;
    const onAbort = () => {
      controller?.abort(new Error('aborted'));
      reject(signal.reason); // also if no connection was free yet
    };
    const settle = () => signal.removeEventListener('abort', onAbort);
    signal.addEventListener('abort', onAbort);
    const { target = `${url.pathname}${url.search}`, method, headers } = request;
    pool.dispatch(
      // `reset`: by default undici closes the connection after a HEAD
      { origin: url.origin, path: target, method, headers: { ...headers }, body: request.body ?? null, reset: false },
      {
        onRequestStart(started) {
          controller = started;
          if (signal.aborted) controller.abort(new Error('aborted'));
        },
        onResponseStart(source, statusCode, told, statusMessage = '') {
          if (statusCode < 200) {
            if (++interim > MAX_INTERIM) source.abort(new Error(`it answers ${interim} times that it will answer`));
            return;
          }
          settle();
          const [name, { silenceMs }] = [nameOf(url), limits];
          const arriving = new Body({ name, silenceMs, source });
          body = arriving;
          const head = { statusCode, statusMessage, headers: joined(told), destroy: () => arriving.close() };
          resolve({ response: head, name, read: (each) => arriving.read(each) });
        },
        onResponseData: (_source, piece) => body?.add(piece),
        onResponseEnd: () => body?.complete(),
        onResponseError(_source, error) {
          settle();
          body?.fail(error);
          reject(error);
        },
      },
    );
  });
}

/** Headers that allow only one value: the first counts. */
const SINGLE = ['content-length', 'content-range', 'content-type', 'etag', 'location', 'retry-after'];

/** Joins repeated headers, as `node:http` does. */
function joined(headers: Readonly<Record<string, string | string[] | undefined>>): IncomingHttpHeaders {
  const entries = Object.entries(headers).map(([name, value]) => {
    if (!Array.isArray(value)) return [name, value];
    return [name, SINGLE.includes(name) ? value[0] : value.join(', ')];
  });
  return Object.fromEntries(entries);
}

function isBroken(error: unknown): boolean {
  return ['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'].includes(codeOf(error) ?? '');
}

function explain({ url, method, limits }: Exchange, error: unknown): LibraryError {
  const name = nameOf(url);
  const code = codeOf(error);
  if (code === 'UND_ERR_CONNECT_TIMEOUT')
    return new SilentServerError(`${name} took no connection within ${limits.connectMs / 1000} s`);
  if (code === 'UND_ERR_HEADERS_TIMEOUT')
    return new SilentServerError(`${name} did not answer ${method} within ${limits.answerMs / 1000} s`);
  const errorClass = isUntrusted(error) ? 'POLICY' : 'TRANSIENT';
  const reason = messageOf(error) || code; // an error from connecting to several addresses has no message
  return new LibraryError(errorClass, `${name} cannot be reached: ${reason}`, { cause: error });
}

/** A URL for error messages, without its query, which may contain a secret. */
export function nameOf({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

/** OpenSSL error codes: this process rejects the server's certificate. */
const REFUSED_HERE =
  /^(CERT_\w+|CRL_\w+|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)_\w+|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED|HOSTNAME_MISMATCH|ERR_TLS_CERT_ALTNAME_INVALID)$/;

/** OpenSSL error codes: the server rejects the client certificate, or requires one. */
const REFUSED_THERE = /^ERR_SSL_\w*ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)$/;

/** Whether either side rejects the other's certificate, which no retry can fix. */
export function isUntrusted(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  if (REFUSED_HERE.test(code) || REFUSED_THERE.test(code)) return true;
  return error instanceof Error && error.cause !== undefined && isUntrusted(error.cause);
}

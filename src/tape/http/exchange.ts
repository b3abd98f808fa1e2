/** HTTP requests through undici, and the heads of their answers: each with a time limit, and ended by a signal. */
import type { IncomingHttpHeaders } from 'node:http';
import type { SecureContextOptions } from 'node:tls';
import type { Dispatcher } from 'undici';
import { codeOf, messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { type Answer, Body, SilentServerError } from './body.js';

/** Time limits, in milliseconds. */
export interface TimeLimits {
  /** For a connection, TLS included. */
  connectMs: number;
  /** For the head of an answer, once there is a connection. */
  answerMs: number;
  /** For the next bytes of an answer. */
  silenceMs: number;
}

export interface Exchange {
  method: 'GET' | 'HEAD' | 'POST' | 'DELETE';
  url: URL;
  /** Sent as it is in place of the path and query of `url`. */
  target?: string;
  headers: Readonly<Record<string, string>>;
  body?: string | Uint8Array;
  pools: Pools;
  limits: TimeLimits;
  signal: AbortSignal;
  /** Whether the request is sent once more if the connection breaks before the answer: servers close idle ones at any moment. */
  isRepeatable: boolean;
}

/** Shorter than servers keep an idle connection. */
const IDLE_MS = 4000;

const MAX_HEAD_BYTES = 64 * 1024;

/** Answers with a status below 200 that may precede the answer. */
const MAX_INTERIM = 10;

/** Connections to servers, by origin. undici's `Agent` is no substitute: a connection that closes late makes it give up those of its successor. */
export class Pools {
  private readonly options: { limits: TimeLimits; sockets: number; secure?: SecureContextOptions };
  private readonly byOrigin = new Map<string, Dispatcher>();

  /** @param options.sockets connections at once to a server @param options.secure certificates to trust and to show */
  constructor(options: { limits: TimeLimits; sockets: number; secure?: SecureContextOptions }) {
    this.options = options;
  }

  /** undici is loaded by the first call. */
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
          // a server that refuses a certificate says so and closes: undici would report the second alone
          socket?.on('error', (error) => socket.destroy(error));
          callback(...result);
        }),
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: limits.answerMs,
      bodyTimeout: 0, // `Body` has a limit that the time of its reader does not use up
    });
    this.byOrigin.set(origin, pool);
    return pool;
  }
}

/**
 * Sends a request and waits for the head of the answer. The caller reads its body or destroys it.
 * @throws LibraryError if the server cannot be reached or breaks off, SilentServerError if it takes too long, the signal's reason
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
      reject(signal.reason); // also if no connection was free so far
    };
    const settle = () => signal.removeEventListener('abort', onAbort);
    signal.addEventListener('abort', onAbort);
    const { target = `${url.pathname}${url.search}`, method, headers } = request;
    pool.dispatch(
      // `reset`: undici closes connections after HEAD unless told otherwise
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

/** Headers of which only one makes sense. */
const SINGLE = ['content-length', 'content-range', 'content-type', 'etag', 'location', 'retry-after'];

/** Joins several headers of one name, as `node:http` does. */
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
  const reason = messageOf(error) || code; // an attempt at several addresses has no text of its own
  return new LibraryError(errorClass, `${name} cannot be reached: ${reason}`, { cause: error });
}

/** A URL as errors show it: the part after a `?` may be a secret. */
export function nameOf({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

/** Of OpenSSL, when it looks at a server's certificate. */
const REFUSED_HERE =
  /^(CERT_\w+|CRL_\w+|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)_\w+|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED|HOSTNAME_MISMATCH|ERR_TLS_CERT_ALTNAME_INVALID)$/;

/** What a server says of the certificate that it was shown, or was not. */
const REFUSED_THERE = /^ERR_SSL_\w*ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)$/;

/** Whether one side refuses the certificate of the other, which does not pass by itself. */
export function isUntrusted(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  if (REFUSED_HERE.test(code) || REFUSED_THERE.test(code)) return true;
  return error instanceof Error && error.cause !== undefined && isUntrusted(error.cause);
}

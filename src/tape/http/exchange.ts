/** One HTTP request, and the head of its answer: each with a limit of time, and ended by a signal. */
import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { isUntrusted } from './trust.js';

/** How long is waited, each time in milliseconds. */
export interface TimeLimits {
  /** For a connection, TLS included. */
  connectMs: number;
  /** For the head of an answer, once there is a connection. */
  answerMs: number;
  /** For the next bytes of an answer. */
  silenceMs: number;
}

export interface Exchange {
  method: 'GET' | 'POST' | 'DELETE';
  url: URL;
  headers: Readonly<Record<string, string>>;
  body?: string;
  agent: http.Agent;
  limits: TimeLimits;
  signal: AbortSignal;
}

/** A server that did not answer in time. */
export class SilentServerError extends LibraryError {
  constructor(message: string) {
    super('TRANSIENT', message);
  }
}

/**
 * Sends a request, and waits for the head of the answer; its body is the caller's, who reads or destroys it.
 * @throws LibraryError when the server cannot be reached or breaks off, SilentServerError when it takes too long, the signal's reason
 */
export async function exchange({
  method,
  url,
  headers,
  body,
  agent,
  limits,
  signal,
}: Exchange): Promise<http.IncomingMessage> {
  signal.throwIfAborted();
  const { request: open } = url.protocol === 'https:' ? https : http;
  const sized = body === undefined ? headers : { ...headers, 'content-length': String(Buffer.byteLength(body)) };
  const request = open(url, { method, agent, headers: sized });
  let timer: NodeJS.Timeout | undefined;
  let onAbort = () => {};
  try {
    return await new Promise<http.IncomingMessage>((resolve, reject) => {
      const limit = (ms: number, what: string) => {
        clearTimeout(timer);
        timer = setTimeout(() => reject(new SilentServerError(`${nameOf(url)} ${what} within ${ms / 1000} s`)), ms);
      };
      onAbort = () => reject(signal.reason);
      signal.addEventListener('abort', onAbort);
      request.once('socket', (socket: Socket) => {
        const onConnected = () => limit(limits.answerMs, `did not answer ${method}`);
        if (request.reusedSocket) return onConnected();
        limit(limits.connectMs, 'took no connection');
        socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', onConnected);
      });
      request.once('response', resolve);
      // it may fail again while its answer is read, which the answer tells
      request.on('error', (error) => reject(breakOf(url, error)));
      request.end(body);
    });
  } catch (error) {
    request.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

/** A URL as errors show it: what is behind a `?` may let in whoever knows it. */
export function nameOf({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

export function breakOf(url: URL, error: unknown): LibraryError {
  const errorClass = isUntrusted(error) ? 'POLICY' : 'TRANSIENT';
  return new LibraryError(errorClass, `${nameOf(url)} cannot be reached: ${messageOf(error)}`, { cause: error });
}

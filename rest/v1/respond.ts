/**
 * Sends responses in the format of the REST contract. A body is an array of one object, and the `Content-Type` header
 * is `application/json` without a charset.
 */
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { Response } from 'express';
import { NotFoundError } from '../../src/core/errors.js';
import { openBody, sendEncoded } from '../../src/gateway/http/encodings.js';
import { answerOf } from '../../src/gateway/http/http-errors.js';

function start(res: Response, status: number): void {
  res.status(status);
  res.setHeader('Content-Type', 'application/json');
  res.vary('Accept');
}

export function send(res: Response, status: number, body: object): void {
  sendText(res, status, JSON.stringify([body]));
}

export function sendText(res: Response, status: number, text: string): void {
  sendWhole(res, status, Buffer.from(text));
}

function sendWhole(res: Response, status: number, bytes: Buffer): void {
  start(res, status);
  sendEncoded(res, bytes);
}

export function sendError(res: Response, error: unknown): void {
  const { status, message: general, headers } = answerOf(error);
  const message = error instanceof NotFoundError ? error.contractMessage : general;
  res.set(headers);
  send(res, status, { error: message, error_msg: message });
}

/**
 * Pages of a list. The function that sends the pages calls `took` with the number of bytes that the client has read.
 * The function stops when `signal` aborts.
 */
interface Pages<Page> extends AsyncIterable<Page> {
  signal?: AbortSignal;
  took?(bytes: number): void;
}

/** Maximum number of bytes in one write to the client. The next write waits until the client has read these bytes. */
const PART_BYTES = 64 * 1024;

/** Sends the items of all pages as one JSON list between `head` and `tail`. Waits for slow clients. */
export async function sendList<Item>(
  res: Response,
  {
    head,
    pages,
    present,
    tail,
  }: { head: string; pages: Pages<Item[]>; present: (item: Item) => unknown; tail: string },
): Promise<void> {
  const parts = async function* parts() {
    let separator = '';
    for await (const page of pages) {
      let text = '';
      for (const item of page) {
        text += separator + JSON.stringify(present(item));
        separator = ',';
      }
      yield [Buffer.from(text)];
    }
  };
  await sendBytes(res, { head, pages: { ...pages, [Symbol.asyncIterator]: parts }, tail });
}

/**
 * Sends the bytes of all pages between `head` and `tail`. Waits for slow clients.
 * @throws Error if the client disconnects or `signal` aborts
 */
export async function sendBytes(
  res: Response,
  { head, pages, tail }: { head: string; pages: Pages<Buffer[]>; tail: string },
): Promise<void> {
  let waiting: Buffer[] = [Buffer.from(head)];
  let body: Writable | undefined;
  for await (const page of pages) {
    waiting.push(...page);
    if (lengthOf(waiting) < PART_BYTES) continue;
    // start the response as late as possible, because later failures can be reported only by breaking the connection
    if (!body) start(res, 200);
    body ??= openBody(res);
    if (res.req.method === 'HEAD') break;
    await write({ res, body }, Buffer.concat(waiting), pages);
    waiting = [];
  }
  waiting.push(Buffer.from(tail));
  const bytes = Buffer.concat(waiting);
  if (!body) return sendWhole(res, 200, bytes);
  if (res.req.method !== 'HEAD') await write({ res, body }, bytes, pages);
  body.end();
}

const lengthOf = (parts: readonly Buffer[]) => parts.reduce((sum, { length }) => sum + length, 0);

interface Out {
  res: Response;
  body: Writable;
}

async function write({ res, body }: Out, bytes: Buffer, { signal, took }: Pages<unknown>): Promise<void> {
  for (let at = 0; at < bytes.length; at += PART_BYTES) {
    if (res.destroyed || res.closed) throw new Error('the client disconnected');
    signal?.throwIfAborted();
    const part = bytes.subarray(at, at + PART_BYTES);
    if (!body.write(part)) await drained(body, signal);
    took?.(part.length);
  }
}

async function drained(body: Writable, signal: AbortSignal | undefined): Promise<void> {
  const end = new AbortController();
  const onClose = () => end.abort(new Error('the client disconnected'));
  const onBreak = () => end.abort(signal?.reason);
  body.once('close', onClose);
  signal?.addEventListener('abort', onBreak);
  try {
    await once(body, 'drain', { signal: end.signal });
  } catch (error) {
    throw end.signal.aborted ? end.signal.reason : error;
  } finally {
    body.off('close', onClose);
    signal?.removeEventListener('abort', onBreak);
  }
}

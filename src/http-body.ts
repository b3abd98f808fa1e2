/** Reads JSON bodies: exact integers, one limit of size, and an error that says what is wrong with them. */
import type { IncomingMessage } from 'node:http';
import { messageOf, quote } from './errors.js';
import { parseJson } from './json.js';

/** 100,000 paths fit. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** What is read of a body that is too long, before the connection is cut. */
const MAX_DISCARDED_BYTES = 16 * MAX_BODY_BYTES;

/** An answer of the protocol itself, such as 405 or 413. */
export class HttpError extends Error {
  readonly status: number;
  readonly headers: Record<string, string>;

  constructor(status: number, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** @throws HttpError 400, 413, 415 */
export async function readJsonBody(req: IncomingMessage): Promise<unknown> {
  const encoding = req.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new HttpError(415, `the body must be sent without Content-Encoding, not as ${quote(encoding)}`);
  }
  const bytes = await readBytes(req);
  try {
    return parseJson(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    // a parser that runs out of stack has met a body that is nested too deeply
    const problem = error instanceof RangeError ? 'it is nested too deeply' : messageOf(error);
    throw new HttpError(400, `the body is not JSON: ${problem}`);
  }
}

/** A body that is too long is read all the same: most clients send all of it before they look for an answer. */
async function readBytes(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size <= MAX_BODY_BYTES) chunks.push(chunk);
    else chunks.length = 0;
    if (size > MAX_DISCARDED_BYTES) break;
  }
  if (size <= MAX_BODY_BYTES) return Buffer.concat(chunks);
  throw new HttpError(413, `the body must have at most ${MAX_BODY_BYTES} bytes`, { Connection: 'close' });
}

/** Reads JSON bodies: exact integers, one limit of size, and an error that says what is wrong with them. */
import type { IncomingMessage } from 'node:http';
import { messageOf, quote } from './errors.js';
import { parseJson } from './json.js';

/** 100,000 paths fit. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

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
  if (encoding !== undefined && encoding !== 'identity') {
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

async function readBytes(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = Number(req.headers['content-length'] ?? 0);
  if (size <= MAX_BODY_BYTES) {
    size = 0;
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_BODY_BYTES) break;
      chunks.push(chunk);
    }
  }
  if (size <= MAX_BODY_BYTES) return Buffer.concat(chunks);
  req.resume(); // the rest is thrown away, so that the client comes to read the answer
  throw new HttpError(413, `the body must have at most ${MAX_BODY_BYTES} bytes`, { Connection: 'close' });
}

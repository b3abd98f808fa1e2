import type { IncomingMessage } from 'node:http';
import { messageOf, quote } from '../../core/errors.js';

/** Maximum size of a request body, in bytes. A body of this size can contain at least 100,000 paths. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

const MAX_DISCARDED_BYTES = 16 * MAX_BODY_BYTES;

export class HttpError extends Error {
  readonly status: number;
  readonly headers: Record<string, string>;

  constructor(status: number, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** @throws HttpError 405 with the header `Allow` if the method is not allowed */
export function checkMethod({ method = '' }: IncomingMessage, allowed: readonly string[]): void {
  if (allowed.includes(method)) return;
  const list = allowed.join(', ');
  throw new HttpError(405, `${method} is not allowed here, only ${list}`, { Allow: list });
}

export interface BodyRoom {
  /** Reserves memory for part of a request body. @throws HttpError if there is not enough memory */
  take(bytes: number): void;
  release(): void;
}

const rooms = new WeakMap<IncomingMessage, () => BodyRoom>();

export function limitBody(req: IncomingMessage, enter: () => BodyRoom): void {
  rooms.set(req, enter);
}

const sizes = new WeakMap<IncomingMessage, number>();

export function sizeOfBody(req: IncomingMessage): number {
  return sizes.get(req) ?? 0;
}

export async function readJsonBody(req: IncomingMessage): Promise<unknown> {
  const encoding = req.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new HttpError(415, `the body must be sent without Content-Encoding, not as ${quote(encoding)}`);
  }
  const bytes = await readBytes(req);
  sizes.set(req, bytes.length);
  try {
    return parse(bytes);
  } catch (error) {
    throw new HttpError(400, `the body is not JSON: ${messageOf(error)}`);
  }
}

export const parseBounded = (text: string): unknown => parse(Buffer.from(text));

function parse(bytes: Buffer): unknown {
  checkShape(bytes);
  return JSON.parse(utf8.decode(bytes));
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Limits on the number of values, and of lists and objects, in a JSON body. The limit for lists and objects is lower,
 * because a parsed list or object takes ten times as much memory as a path.
 */
const MAX_VALUES = 1_000_000;
const MAX_CONTAINERS = 10_000;
const MAX_DEPTH = 100;

const [QUOTE, BACKSLASH, COMMA, LIST, LIST_END, OBJECT, OBJECT_END] = Buffer.from('"\\,[]{}');

/**
 * Rejects a JSON body with too many values, lists or objects before it is parsed. Without this check, parsing 32 MB of
 * empty objects would take 14 s and 2 GB of memory.
 * @throws SyntaxError
 */
function checkShape(bytes: Buffer): void {
  let [values, containers, depth] = [1, 0, 0];
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (byte === QUOTE) at = endOfString(bytes, at);
    else if (byte === COMMA) values++;
    else if (byte === LIST || byte === OBJECT) [containers, depth] = [containers + 1, depth + 1];
    else if (byte === LIST_END || byte === OBJECT_END) depth--;
    else continue;
    if (values + containers > MAX_VALUES) throw new SyntaxError(`the body has more than ${MAX_VALUES} values`);
    if (containers > MAX_CONTAINERS)
      throw new SyntaxError(`the body has more than ${MAX_CONTAINERS} lists and objects`);
    if (depth > MAX_DEPTH) throw new SyntaxError(`the body is nested more than ${MAX_DEPTH} levels deep`);
  }
}

function endOfString(bytes: Buffer, from: number): number {
  for (let at = from + 1; at < bytes.length; at++) {
    if (bytes[at] === QUOTE) return at;
    if (bytes[at] === BACKSLASH) at++;
  }
  return bytes.length;
}

const tooLong = () => new HttpError(413, `the body must have at most ${MAX_BODY_BYTES} bytes`, { Connection: 'close' });

/**
 * Reads the whole request body, even if the request is rejected, because most clients send everything before they read
 * the response.
 * @throws HttpError if the body is too large, or if there is not enough memory for it; Error if the client disconnects
 */
async function readBytes(req: IncomingMessage): Promise<Buffer> {
  const room = rooms.get(req)?.();
  const chunks: Buffer[] = [];
  let size = 0;
  let refusal: HttpError | undefined;
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_DISCARDED_BYTES) break;
    try {
      if (size > MAX_BODY_BYTES) throw tooLong();
      if (refusal) continue;
      room?.take(chunk.length);
      chunks.push(chunk);
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      refusal = error;
      chunks.length = 0;
      room?.release();
    }
  }
  if (refusal) throw refusal;
  return Buffer.concat(chunks);
}

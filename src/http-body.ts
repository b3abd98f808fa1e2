/**
 * Reads JSON bodies: exact integers, one limit of size, and an error that says what is wrong with them. What a body is made
 * of is looked at as it comes, so that one which would cost much is not parsed; a large one is parsed in a thread of its own.
 */
import type { IncomingMessage } from 'node:http';
import { messageOf, quote } from './errors.js';
import { markIntegers, parseJson, reviveIntegers } from './json.js';
import { type JsonBounds, JsonScan, type Span } from './json-scan.js';
import { parseInThread } from './json-thread.js';

/** 100,000 paths fit. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** What is read of a body that is refused, before the connection is cut. */
const MAX_DISCARDED_BYTES = 16 * MAX_BODY_BYTES;

/** Paths of five bytes would be six million. A list or an object costs as much as ten paths. */
const BOUNDS: JsonBounds = { values: 1_000_000, containers: 10_000, depth: 100 };

/** Parsing this takes about ten milliseconds. */
const LARGE_BYTES = 1024 * 1024;

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

/** The room that a body may have in memory. */
export interface BodyRoom {
  /** To be told of each part as it comes. */
  came(bytes: number): void;
  /** A part is to be kept. @throws HttpError when there is no room for it */
  take(bytes: number): void;
  /** Nothing is kept of it any more. */
  give(): void;
  /** The body has come, and its pace counts no more. */
  arrived(): void;
  /** Something is made of it, also where its sender has gone: what it has is kept. @returns what ends that */
  keep(): () => void;
  /** Who is to be told when the body comes too slowly. */
  whenSlow(refuse: (error: HttpError) => void): void;
}

const rooms = new WeakMap<IncomingMessage, () => BodyRoom>();

/** Says what room the body of a request will have, when it is read. */
export function limitBody(req: IncomingMessage, enter: () => BodyRoom): void {
  rooms.set(req, enter);
}

const sizes = new WeakMap<IncomingMessage, number>();

/** Bytes of the body that was read of a request; 0 where it had none. */
export function sizeOfBody(req: IncomingMessage): number {
  return sizes.get(req) ?? 0;
}

/** @throws HttpError 400, 408, 413, 415, and what its room says */
export async function readJsonBody(req: IncomingMessage): Promise<unknown> {
  const encoding = req.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new HttpError(415, `the body must be sent without Content-Encoding, not as ${quote(encoding)}`);
  }
  const room = rooms.get(req)?.();
  const { bytes, integers } = await readBytes(req, room);
  sizes.set(req, bytes.length);
  const leave = room?.keep();
  try {
    return await parseBytes(bytes, integers);
  } catch (error) {
    throw noJson(messageOf(error));
  } finally {
    leave?.();
  }
}

/** The same of a text that came in another way. @throws SyntaxError */
export function parseBounded(text: string): unknown {
  const scan = new JsonScan(BOUNDS);
  scan.add(Buffer.from(text));
  scan.end();
  if (scan.problem !== undefined) throw new SyntaxError(scan.problem);
  return parseJson(text);
}

const noJson = (problem: string) => new HttpError(400, `the body is not JSON: ${problem}`);

async function parseBytes(bytes: Buffer, integers: readonly Span[]): Promise<unknown> {
  const marked = integers.length === 0 ? bytes : markIntegers(bytes, integers);
  try {
    const value = await parse(marked);
    return integers.length === 0 ? value : reviveIntegers(value);
  } catch (error) {
    if (integers.length === 0) throw error;
    await parse(bytes); // what is wrong with it is said of the text as it is
    throw new SyntaxError('a number stands where a name must');
  }
}

async function parse(bytes: Buffer): Promise<unknown> {
  return bytes.length > LARGE_BYTES ? await parseInThread(givenAway(bytes)) : decode(bytes);
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

const decode = (bytes: Buffer): unknown => JSON.parse(utf8.decode(bytes));

/** What is long has memory of its own, which whoever gets it may keep. */
function givenAway(bytes: Buffer): ArrayBuffer {
  const { buffer } = bytes;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length;
  return isWhole ? buffer : new Uint8Array(bytes).buffer;
}

/**
 * The whole body. One that is refused is read all the same: most clients send all of it before they look for an answer.
 * @throws HttpError
 */
async function readBytes(
  req: IncomingMessage,
  room: BodyRoom | undefined,
): Promise<{ bytes: Buffer; integers: Span[] }> {
  const scan = new JsonScan(BOUNDS);
  const chunks: Buffer[] = [];
  let size = 0;
  let refusal: HttpError | undefined;
  const refuse = (error: HttpError) => {
    refusal ??= error;
    chunks.length = 0;
    room?.give();
  };
  await readParts(req, room, (chunk) => {
    size += chunk.length;
    room?.came(chunk.length);
    if (size > MAX_BODY_BYTES) refuse(tooLong());
    if (refusal) return size <= MAX_DISCARDED_BYTES;
    try {
      room?.take(chunk.length);
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      refuse(error);
      return true;
    }
    scan.add(chunk);
    chunks.push(chunk);
    if (scan.problem !== undefined) refuse(noJson(scan.problem));
    return true;
  });
  room?.arrived();
  scan.end();
  if (refusal) throw size > MAX_BODY_BYTES ? tooLong() : refusal;
  return { bytes: Buffer.concat(chunks), integers: scan.integers };
}

const tooLong = () => new HttpError(413, `the body must have at most ${MAX_BODY_BYTES} bytes`, { Connection: 'close' });

/**
 * Reads a body, until `onPart` says that it is enough.
 * @throws what `room` says of one that comes too slowly, and an Error when the sender goes away
 */
async function readParts(
  req: IncomingMessage,
  room: BodyRoom | undefined,
  onPart: (part: Buffer) => boolean,
): Promise<void> {
  let leave = () => {};
  try {
    await new Promise<void>((resolve, reject) => {
      room?.whenSlow(reject);
      const onData = (part: Buffer) => {
        try {
          if (!onPart(part)) resolve();
        } catch (error) {
          reject(error);
        }
      };
      // after its end too, before whoever waits for that has gone on
      const onClose = () => req.readableEnded || reject(new Error('the body broke off'));
      req.on('data', onData).once('end', resolve).once('error', reject).once('close', onClose);
      leave = () => void req.off('data', onData).off('end', resolve).off('error', reject).off('close', onClose);
      if (req.destroyed) onClose();
      if (req.readableEnded) resolve();
    });
  } finally {
    leave();
    if (!req.readableEnded) req.pause();
  }
}

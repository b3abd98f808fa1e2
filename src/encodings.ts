/**
 * How the bodies of answers are encoded: br or gzip for clients that accept one. Small bodies stay plain, and so does what holds a
 * secret beside what the caller has written: the length of such a body would give some of it away. Event streams are not encoded, since
 * each event is to leave at once.
 *
 * `compression`, the middleware, goes on encoding for clients that have gone, and encodes what is always the same anew each time.
 */
import { createHash } from 'node:crypto';
import { pipeline, type Transform, type Writable } from 'node:stream';
import zlib from 'node:zlib';
import type { Response } from 'express';

type Whole = (bytes: Buffer, options: object, done: (error: Error | null, encoded: Buffer) => void) => void;

interface Coder {
  whole: Whole;
  stream(options: object): Transform;
  /**
   * For a list, which is encoded faster than the database sends it. On one core, gzip at 1 takes 240 MB/s and leaves 9
   * %; br at 1 takes 390 and leaves 7.5 %, at 3 it takes 77.
   */
  fast: object;
  /** For kept bodies: of a page of 9 MB, br at 5 leaves 21 % in half a second, br at 9 20 % in 2.5 s. */
  small: object;
}

const quality = (value: number) => ({ params: { [zlib.constants.BROTLI_PARAM_QUALITY]: value } });

type Encoding = 'br' | 'gzip';

const coders: Record<Encoding, Coder> = {
  br: { whole: zlib.brotliCompress, stream: zlib.createBrotliCompress, fast: quality(1), small: quality(5) },
  gzip: { whole: zlib.gzip, stream: zlib.createGzip, fast: { level: 1 }, small: { level: 9 } },
};

const MIN_BYTES = 2048;

const CHUNK_BYTES = 64 * 1024;

function encodingOf(res: Response): Encoding | undefined {
  res.vary('Accept-Encoding');
  const encoding = (['br', 'gzip'] as const).find((each) => res.req.acceptsEncodings(each));
  if (encoding !== undefined) res.setHeader('Content-Encoding', encoding);
  return encoding;
}

/**
 * Sends a whole body; status and type are set. Call nothing on `res` afterwards.
 * @param isSecret the body contains a secret beside the caller's text, so its length must not depend on both
 */
export function sendEncoded(res: Response, bytes: Buffer, { isSecret = false } = {}): void {
  const isPlain = isSecret || bytes.length < MIN_BYTES;
  const encoding = isPlain ? undefined : encodingOf(res);
  if (encoding === undefined) {
    res.vary('Accept-Encoding');
    sendPlain(res, bytes);
  } else if (res.req.method === 'HEAD') {
    res.end(); // of what length it would be may be left out
  } else {
    const { whole, fast } = coders[encoding];
    whole(bytes, fast, (error, encoded) => (error ? res.destroy(error) : sendPlain(res, encoded)));
  }
}

function sendPlain(res: Response, bytes: Buffer): void {
  res.setHeader('Content-Length', bytes.length);
  res.end(bytes);
}

/**
 * Returns a stream for a body of any length; status and type are set. It is destroyed when the client disconnects, and
 * destroys the answer.
 */
export function openBody(res: Response): Writable {
  const encoding = encodingOf(res);
  if (encoding === undefined) return res;
  res.flushHeaders(); // before the encoder has anything to send: what fails from here on is no answer of its own in this encoding
  const { stream, fast } = coders[encoding];
  const encoder = stream({ ...fast, chunkSize: CHUNK_BYTES });
  pipeline(encoder, res, () => {}); // who writes sees by the encoder that the client has gone
  return encoder;
}

/** A body that never changes: encoded once, and not sent again to clients that have it. */
export class KeptBody {
  private readonly bytes: Buffer;
  private readonly tag: string;
  private readonly encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.tag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  }

  /** Sends the body, or 304. By default clients ask each time whether it has changed. */
  async send(res: Response, cacheControl = 'no-cache'): Promise<void> {
    const encoding = encodingOf(res);
    res.setHeader('ETag', `"${this.tag}${encoding === undefined ? '' : `-${encoding}`}"`);
    res.setHeader('Cache-Control', cacheControl);
    if (res.req.fresh) {
      res.removeHeader('Content-Encoding');
      return void res.status(304).end();
    }
    if (encoding === undefined) return sendPlain(res, this.bytes);
    const bytes = await this.encode(encoding).catch((error) => {
      for (const header of ['Content-Encoding', 'ETag']) res.removeHeader(header); // what is told instead is none of it
      throw error;
    });
    sendPlain(res, bytes);
  }

  private encode(encoding: Encoding): Promise<Buffer> {
    const known = this.encoded.get(encoding);
    if (known) return known;
    const { whole, small } = coders[encoding];
    const encoded = new Promise<Buffer>((resolve, reject) => {
      whole(this.bytes, small, (error, bytes) => (error ? reject(error) : resolve(bytes)));
    });
    encoded.catch(() => this.encoded.delete(encoding));
    this.encoded.set(encoding, encoded);
    return encoded;
  }
}

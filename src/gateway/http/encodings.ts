/**
 * Encodes response bodies with br or gzip if the client accepts the encoding. A body that contains both a secret and
 * text from the caller is not encoded, because the encoded length could reveal the secret. The middleware `compression`
 * is not used, because this middleware continues to encode after a client disconnects.
 */
import { createHash } from 'node:crypto';
import { pipeline, type Transform, type Writable } from 'node:stream';
import zlib from 'node:zlib';
import type { Response } from 'express';

type Whole = (bytes: Buffer, options: object, done: (error: Error | null, encoded: Buffer) => void) => void;

interface Coder {
  whole: Whole;
  stream(options: object): Transform;
  /** Fast settings for lists, so that encoding a list takes less time than reading the list from the database. */
  fast: object;
  /**
   * Settings for constant bodies. Brotli level 5 is used, because level 9 takes five times as long and produces hardly
   * smaller bodies.
   */
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
 * Sends a complete response body. The caller must set status and content type before the call, and must not use the
 * response afterwards.
 * @param isSecret whether the body contains both a secret and text from the client, and therefore must not be encoded
 */
export function sendEncoded(res: Response, bytes: Buffer, { isSecret = false } = {}): void {
  const isPlain = isSecret || bytes.length < MIN_BYTES;
  const encoding = isPlain ? undefined : encodingOf(res);
  if (encoding === undefined) {
    res.vary('Accept-Encoding');
    sendPlain(res, bytes);
  } else if (res.req.method === 'HEAD') {
    res.end();
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
 * Returns a stream for a response body of any length. The caller must set status and content type before the call. If
 * the client disconnects, the stream is destroyed. Destroying the stream also destroys the response.
 */
export function openBody(res: Response): Writable {
  const encoding = encodingOf(res);
  if (encoding === undefined) return res;
  res.flushHeaders(); // send the headers before the first encoded bytes, because the status is already final
  const { stream, fast } = coders[encoding];
  const encoder = stream({ ...fast, chunkSize: CHUNK_BYTES });
  pipeline(encoder, res, () => {}); // ignore the error here, because the encoder reports the error to the writer
  return encoder;
}

/** Constant response body, which is encoded only once per encoding. */
export class KeptBody {
  private readonly bytes: Buffer;
  private readonly tag: string;
  private readonly encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.tag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  }

  /**
   * Sends the body, or status 304 if the client already has the body. By default, a client must ask the gateway before
   * each use whether the body has changed.
   */
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
      for (const header of ['Content-Encoding', 'ETag']) res.removeHeader(header);
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

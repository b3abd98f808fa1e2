/**
 * How the bodies of answers are encoded: gzip, br and zstd for those who ask for it. Small bodies stay plain, and so does what holds a
 * secret beside what the asker has written: of such a body its length tells something. Streams of events are not encoded at all, since
 * each event is to leave at once.
 *
 * `compression`, the well-kept middleware, has no zstd, goes on encoding for clients that have gone, and encodes what is always the same
 * anew each time.
 */
import { createHash } from 'node:crypto';
import type { Transform, Writable } from 'node:stream';
import zlib from 'node:zlib';
import type { Response } from 'express';
import { remember } from './remembered.js';

type Encoding = 'zstd' | 'br' | 'gzip';

type Whole = (bytes: Buffer, options: object, done: (error: Error | null, encoded: Buffer) => void) => void;

interface Coder {
  whole: Whole;
  stream(options: object): Transform;
  /**
   * For what is made for one reader: a list is to be encoded faster than the database gives it. Of a core, gzip at 1 takes 240 MB/s and
   * leaves 9 % of a list, br at 1 takes 390 and leaves 7.5; at 3 it takes 77.
   */
  fast: object;
  /** For what is kept: of a page of 9 MB, br at 5 leaves 21 % in half a second, and at 9 one percent less in five times that. */
  small: object;
}

/** Node.js 20 has none, and its types neither. */
const zstd = zlib as unknown as {
  zstdCompress?: Whole;
  createZstdCompress?: (options: object) => Transform;
  constants: { ZSTD_c_compressionLevel?: number };
};

const { BROTLI_PARAM_QUALITY } = zlib.constants;

/** The first is taken before those that are asked for as much. */
const coders: ReadonlyMap<Encoding, Coder> = new Map([...zstdCoder(), ['br', brotliCoder()], ['gzip', gzipCoder()]]);

function* zstdCoder(): Generator<[Encoding, Coder]> {
  const { zstdCompress, createZstdCompress, constants } = zstd;
  const level = constants.ZSTD_c_compressionLevel;
  if (!zstdCompress || !createZstdCompress || level === undefined) return;
  const of = (value: number) => ({ params: { [level]: value } });
  yield ['zstd', { whole: zstdCompress, stream: createZstdCompress, fast: of(1), small: of(12) }];
}

function brotliCoder(): Coder {
  const of = (quality: number) => ({ params: { [BROTLI_PARAM_QUALITY]: quality } });
  return { whole: zlib.brotliCompress, stream: zlib.createBrotliCompress, fast: of(1), small: of(5) };
}

function gzipCoder(): Coder {
  return { whole: zlib.gzip, stream: zlib.createGzip, fast: { level: 1 }, small: { level: 9 } };
}

/** What is less fits a packet or two as it is. */
const MIN_BYTES = 2048;

/** So much is encoded in one go, in a thread of its own. */
const CHUNK_BYTES = 64 * 1024;

/**
 * The encoding that an Accept-Encoding header likes best (RFC 9110, 12.5.3), of those that there are.
 * @returns undefined for none, which is always understood
 */
export const chooseEncoding = (header: string | undefined): Encoding | undefined => chooseOf(header ?? '');

const chooseOf = remember((header): Encoding | undefined => {
  const weights = readWeights(header);
  const rest = weights.get('*') ?? 0;
  const plain = weights.get('identity') ?? 0;
  let best: { encoding: Encoding; weight: number } | undefined;
  for (const encoding of coders.keys()) {
    const weight = weights.get(encoding) ?? rest;
    if (weight > 0 && weight >= plain && weight > (best?.weight ?? 0)) best = { encoding, weight };
  }
  return best?.encoding;
});

const ELEMENT = /^\s*([^\s;]+)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?$/i;

/** What is not as the RFC has it is passed over. */
function readWeights(header: string): Map<string, number> {
  const weights = new Map<string, number>();
  for (const element of header.split(',')) {
    const [, name, weight = '1'] = ELEMENT.exec(element) ?? [];
    if (name !== undefined) weights.set(name.toLowerCase().replace(/^x-gzip$/, 'gzip'), Math.min(Number(weight), 1));
  }
  return weights;
}

/** The encoding of an answer, which its head says from now on. */
function encodingOf(res: Response): Encoding | undefined {
  res.vary('Accept-Encoding');
  const encoding = chooseEncoding(res.req.headers['accept-encoding']);
  if (encoding !== undefined) res.setHeader('Content-Encoding', encoding);
  return encoding;
}

const coderOf = (encoding: Encoding) => coders.get(encoding) as Coder;

/**
 * Sends a body whole; status and type are set. Nothing may be done with `res` afterwards.
 * @param isSecret it holds what is nobody else's to know, beside what the asker has written
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
    const { whole, fast } = coderOf(encoding);
    whole(bytes, fast, (error, encoded) => (error ? res.destroy(error) : sendPlain(res, encoded)));
  }
}

function sendPlain(res: Response, bytes: Buffer): void {
  res.setHeader('Content-Length', bytes.length);
  res.end(bytes);
}

/**
 * What a body of any length is written to, and ended; status and type are set. It is destroyed when the client goes, and the answer when it is.
 */
export function openBody(res: Response): Writable {
  const encoding = encodingOf(res);
  if (encoding === undefined) return res;
  res.flushHeaders(); // before the encoder has anything to send: what fails from here on is no answer of its own in this encoding
  const { stream, fast } = coderOf(encoding);
  const encoder = stream({ ...fast, chunkSize: CHUNK_BYTES });
  encoder.on('data', (bytes: Buffer) => {
    if (!res.write(bytes)) encoder.pause();
  });
  res.on('drain', () => encoder.resume());
  encoder.once('end', () => res.end());
  encoder.once('error', (error) => res.destroy(error));
  res.once('close', () => encoder.destroy()); // whoever writes sees that the client is gone
  return encoder;
}

/** A body that is always the same: encoded once, when it is first asked for, and not sent to those who have it. */
export class KeptBody {
  private readonly bytes: Buffer;
  private readonly tag: string;
  private readonly encoded = new Map<Encoding, Promise<Buffer>>();

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.tag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  }

  /** As `sendEncoded`, or 304. @param cacheControl for how long whoever has it need not ask; unless given, it is asked for whether it is still so */
  async send(res: Response, cacheControl = 'no-cache'): Promise<void> {
    const encoding = encodingOf(res);
    // one for each encoding, since a strong tag means the very bytes
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
    const { whole, small } = coderOf(encoding);
    const encoded = new Promise<Buffer>((resolve, reject) => {
      whole(this.bytes, small, (error, bytes) => (error ? reject(error) : resolve(bytes)));
    });
    encoded.catch(() => this.encoded.delete(encoding));
    this.encoded.set(encoding, encoded);
    return encoded;
  }
}

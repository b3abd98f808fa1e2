/**
 * Reads a file over HTTP from an offset, and compares the file's size, version and checksum with the response headers.
 */
import { giveBack, joinPieces } from '../../core/blocks.js';
import { TapeError } from '../../core/errors.js';
import { startHash } from '../../core/running-hash.js';
import { LibraryError } from '../drive-library.js';
import { ChangedError, hasValidator, type ReadVersion } from '../staging.js';
import { type Problem, readProblem } from './problems.js';
import type { Reply, SiteClient } from './site-client.js';

export class RefusedError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.text);
    this.problem = problem;
  }
}

interface ReadOptions {
  from: bigint;
  /** Expected file size in bytes. */
  size: bigint;
  signal: AbortSignal;
  version?: ReadVersion;
  /**
   * The catalogue's checksum, if any, which the engine compares with the bytes. If the catalogue does not have a
   * checksum, this module compares the bytes with the server's checksum.
   */
  checksum?: string | null | undefined;
}

/**
 * Yields the bytes of the file at `url` in order, starting at `from`.
 * @throws RefusedError if the server answers with an error
 * @throws TapeError MEDIA if the bytes do not match the server's checksum, or the file ends before `from`
 * @throws ChangedError if the version of the file has changed
 * @throws LibraryError if the server fails
 */
export async function* readRange(
  client: SiteClient,
  url: URL,
  { from, size, signal, version = {}, checksum }: ReadOptions,
): AsyncGenerator<Uint8Array> {
  const condition = version.ifRange === undefined ? {} : { 'if-range': version.ifRange };
  const range: Record<string, string> = from > 0n ? { range: `bytes=${from}-`, ...condition } : {};
  // request a digest only if the catalogue does not have a checksum, because computing a digest can be expensive
  const wanted = checksum ? {} : WANTED_DIGESTS;
  const reply = await client.send({ url, headers: { ...range, ...wanted }, signal });
  let toSkip: bigint;
  let expected: bigint | undefined;
  let last: Digest | undefined;
  try {
    if (endsAt(reply, from)) return;
    if (reply.response.statusCode !== 200 && reply.response.statusCode !== 206) {
      throw new RefusedError(await readProblem(reply, signal));
    }
    const extent = readExtent(reply, from);
    ({ toSkip, expected } = extent);
    refusePage(reply, { url, size, expected });
    last = reply.ways
      .concat(reply.response)
      .flatMap(({ headers }) => findDigest(headers) ?? [])
      .at(-1);
    const seen = { size: extent.total, digest: last && `${last.algorithm} ${last.value}` };
    checkVersion(reply, version, { seen, from, checksum });
  } catch (error) {
    reply.destroy();
    throw error;
  }
  const digest = checksum || from > 0n ? undefined : last;
  const hash = digest && (await startHash(digest.algorithm));
  let bytes = 0n;
  for await (const chunk of joinPieces(reply.read())) {
    bytes += BigInt(chunk.length);
    hash?.update(chunk);
    const rest = toSkip > 0n ? chunk.subarray(Number(toSkip < chunk.length ? toSkip : chunk.length)) : chunk;
    toSkip -= BigInt(chunk.length - rest.length);
    if (rest.length > 0) yield rest;
    else giveBack(chunk);
  }
  if (expected !== undefined && bytes !== expected) {
    throw new LibraryError('TRANSIENT', `the data from ${reply.name} ended after ${bytes} of ${expected} bytes`);
  }
  if (toSkip > 0n) throw shortFileError(reply, from, bytes);
  const found = hash?.digest().toString('hex');
  if (digest && found !== digest.value) {
    const text = `the data from ${reply.name} has ${digest.algorithm} ${found}, but the server reports ${digest.value}`;
    // do not use the class TRANSIENT: a retry would continue at the end of the file, and keep the wrong bytes before it
    throw new TapeError('MEDIA', text);
  }
}

/**
 * Minimum age, in milliseconds, at which a Last-Modified date counts as a strong validator. A file that was modified
 * more recently might change again within the same second.
 */
const STRONG_AFTER_MS = 60_000;

const VALIDATORS = { tag: 'ETag', size: 'size', modified: 'Last-Modified', digest: 'digest' } as const;

/**
 * Records the validators of the first response in `version`. Compares the validators of each later response with
 * `version`. Ignores weak entity tags, because they do not identify the exact bytes. This module does not send the
 * header If-Match, because some servers reject their own entity tags in this header.
 * @throws ChangedError if a validator differs
 * @throws LibraryError if neither a validator nor a checksum can show whether the file has changed
 */
function checkVersion(
  { response, name }: Reply,
  version: ReadVersion,
  { seen, from, checksum }: { seen: Pick<ReadVersion, 'size' | 'digest'> } & Pick<ReadOptions, 'from' | 'checksum'>,
): void {
  const { etag, date, 'last-modified': modified } = response.headers;
  const now: ReadVersion = { ...seen, modified, tag: etag?.startsWith('"') ? etag : undefined };
  if (from === 0n || !hasValidator(version)) {
    const isStrong = Date.parse(date ?? '') - Date.parse(modified ?? '') >= STRONG_AFTER_MS;
    const strong = isStrong ? modified : undefined;
    Object.assign(version, now, { modified: strong, ifRange: etag === undefined ? strong : undefined });
    return;
  }
  let isSame = Boolean(checksum);
  for (const key of ['tag', 'size', 'modified', 'digest'] as const) {
    const [has, had] = [now[key], version[key]];
    if (has === undefined || had === undefined) continue;
    if (has !== had) {
      const text = `its ${VALIDATORS[key]} is ${has}, but was ${had}`;
      throw new ChangedError(`${name} was replaced while it was being read: ${text}`);
    }
    if (key === 'tag') return;
    isSame ||= key !== 'size';
  }
  if (isSame) return;
  const text = 'the server no longer sends the ETag, Last-Modified header or digest of the first response';
  throw new LibraryError('TRANSIENT', `cannot check whether ${name} was replaced: ${text}`);
}

/**
 * Rejects an HTML page that a proxy or login service sends with status 200. The error does not count against the file.
 */
function refusePage(
  { response, name }: Reply,
  { url, size, expected }: { url: URL; size: bigint; expected: bigint | undefined },
): void {
  if (response.statusCode !== 200 || !/\bhtml\b/i.test(response.headers['content-type'] ?? '')) return;
  if (expected === undefined ? /html?$/i.test(url.pathname) : expected === size) return;
  throw new LibraryError('TRANSIENT', `${name} returned an HTML page instead of the file, which has ${size} bytes`);
}

/**
 * Returns whether the response shows that the file ends at `from`.
 * @throws TapeError if the file ends before `from`
 */
function endsAt(reply: Reply, from: bigint): boolean {
  if (reply.response.statusCode !== 416 || from === 0n) return false;
  const [, total] = /^bytes \*\/(\d+)$/.exec(reply.response.headers['content-range'] ?? '') ?? [];
  if (total === undefined) return false;
  reply.destroy();
  if (BigInt(total) === from) return true;
  throw shortFileError(reply, from, BigInt(total));
}

function shortFileError({ name }: Reply, from: bigint, total: bigint): TapeError {
  return new TapeError('MEDIA', `cannot read ${name} from byte ${from}: the file has ${total} bytes`);
}

interface Extent {
  /** Number of bytes to skip at the start of the response body, because they come before `from`. */
  toSkip: bigint;
  /** Length of the response body in bytes; undefined if the server does not report it. */
  expected: bigint | undefined;
  /** Size of the whole file in bytes; undefined if the server does not report it. */
  total: bigint | undefined;
}

function readExtent({ response, name }: Reply, from: bigint): Extent {
  const refuse = (what: string) =>
    new LibraryError(
      'TRANSIENT',
      `${name} returned ${what} instead of ${from > 0n ? `the bytes from ${from}` : 'the whole file'}`,
    );
  const { 'content-encoding': encoding = 'identity', 'content-range': range = '' } = response.headers;
  if (encoding !== 'identity') throw refuse(`the encoding ${encoding}`);
  const length = response.headers['content-length'];
  const expected = length === undefined ? undefined : BigInt(length);
  if (response.statusCode === 200) return { toSkip: from, expected, total: expected };
  const [, first, last, total] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(range) ?? [];
  if (first === undefined || last === undefined || BigInt(first) !== from)
    throw refuse(`the range ${JSON.stringify(range)}`);
  const isWhole = total === '*' || BigInt(last) + 1n === BigInt(total ?? 0);
  const count = BigInt(last) - from + 1n;
  if (!isWhole || (expected !== undefined && expected !== count))
    throw refuse(`the range ${JSON.stringify(range)} with ${length} bytes of data`);
  return { toSkip: 0n, expected: count, total: total === '*' ? undefined : BigInt(last) + 1n };
}

/**
 * Preferred digests. Grid storage systems usually store an Adler-32 checksum, but might read the whole file to compute
 * any other digest.
 */
const WANTED_DIGESTS = {
  'want-repr-digest': 'adler=10, sha-256=5, md5=1',
  'want-digest': 'adler32;q=1, sha-256;q=0.5, md5;q=0.1',
};

/** Digest algorithms, from the fastest to the slowest. */
const ALGORITHMS = ['adler32', 'sha256', 'md5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

const BYTES: Record<Algorithm, number> = { sha256: 32, adler32: 4, md5: 16 };

const NAMES = new Map<string, Algorithm>([
  ['adler', 'adler32'],
  ['adler32', 'adler32'],
  ['md5', 'md5'],
  ['sha-256', 'sha256'],
  ['sha256', 'sha256'],
]);

interface Digest {
  algorithm: Algorithm;
  /** The digest in lower-case hexadecimal. */
  value: string;
}

/**
 * Returns the digest from the header Repr-Digest (RFC 9530) or Digest (RFC 3230). Returns undefined if neither header
 * contains a digest with a known algorithm.
 */
function findDigest(headers: Reply['response']['headers']): Digest | undefined {
  const found = new Map<Algorithm, string>();
  for (const name of ['repr-digest', 'digest']) {
    for (const item of (headers[name] ?? '').split(',')) {
      const [, key = '', text = ''] = /^\s*([\w-]+)=(.*?)\s*$/.exec(item) ?? [];
      const algorithm = NAMES.get(key.toLowerCase());
      const value = algorithm && readValue(text, BYTES[algorithm]);
      if (algorithm && value !== undefined && !found.has(algorithm)) found.set(algorithm, value);
    }
  }
  const algorithm = ALGORITHMS.find((each) => found.has(each));
  return algorithm && { algorithm, value: found.get(algorithm) ?? '' };
}

/**
 * Parses a digest in hexadecimal or base64. Some servers add colons, or omit the leading zeros of an Adler-32 checksum.
 */
function readValue(text: string, bytes: number): string | undefined {
  const [, inner = text] = /^:(.*):$/.exec(text) ?? [];
  const isShort = bytes === BYTES.adler32 && /^[\da-f]{1,8}$/i.test(inner);
  if (isShort || (inner.length === 2 * bytes && /^[\da-f]+$/i.test(inner))) {
    return inner.toLowerCase().padStart(2 * bytes, '0');
  }
  const value = Buffer.from(inner, 'base64');
  return value.length === bytes ? value.toString('hex') : undefined;
}

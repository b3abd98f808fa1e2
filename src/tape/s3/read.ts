/**
 * Reads an object in parts, and yields the bytes in order. To limit memory use, reads at most `readParts` parts
 * concurrently.
 */
import { setMaxListeners } from 'node:events';
import type { Readable } from 'node:stream';
import type { GetObjectCommandOutput } from '@aws-sdk/client-s3';
import { joinPieces } from '../../core/blocks.js';
import { TapeError } from '../../core/errors.js';
import { type HashName, startHash } from '../../core/running-hash.js';
import { LibraryError } from '../drive-library.js';
import { ChangedError, type ReadVersion } from '../staging.js';
import { failureOf, readErrorOf } from './failures.js';
import { keyOf } from './look-up.js';
import type { S3Settings } from './settings.js';
import type { S3Calls } from './signed-requests.js';

interface WantedObject {
  key: string;
  /** Size of the file in the catalogue, in bytes, which might differ from the size of the object in S3. */
  size: bigint;
  from: bigint;
  checksum?: string | null | undefined;
  /** Version of the file, as recorded by earlier reads. The member `tag` contains the ETag. */
  version: ReadVersion;
}

/**
 * @throws TapeError
 * @throws NotReadyError if the object is archived and does not have a restored copy
 * @throws ChangedError if another object has replaced the object since an earlier read
 */
export async function* readObject(
  calls: S3Calls,
  { path, ...rest }: Omit<WantedObject, 'key'> & { path: string },
  options: S3Settings,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  signal.throwIfAborted();
  const wanted = { key: keyOf(path, options.prefixes), ...rest };
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  setMaxListeners(options.readParts + 2, either);
  try {
    for await (const chunk of new ObjectRead(calls, wanted, options, either).read()) {
      yield chunk;
      signal.throwIfAborted();
    }
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof TapeError) throw error;
    const failure = failureOf(error, `GetObject of ${calls.nameOf(wanted.key)}`);
    if (failure.code === 'PreconditionFailed') throw new ChangedError(failure.message, { cause: error });
    throw readErrorOf(failure);
  } finally {
    ended.abort();
  }
}

class ObjectRead {
  private readonly calls: S3Calls;
  private readonly wanted: WantedObject;
  private readonly options: S3Settings;
  private readonly signal: AbortSignal;
  private readonly from: number;

  constructor(calls: S3Calls, wanted: WantedObject, options: S3Settings, signal: AbortSignal) {
    this.calls = calls;
    this.wanted = wanted;
    this.from = Number(wanted.from);
    this.options = options;
    this.signal = signal;
  }

  async *read(): AsyncGenerator<Uint8Array> {
    const answer = await this.askFirst();
    if (!answer) return;
    const { version } = this.wanted;
    if (answer.ETag !== undefined) version.tag ??= answer.ETag;
    this.checkTag(answer, version.tag);
    const isWhole = this.from === 0 && answer.ContentRange === undefined;
    const size = isWhole ? (answer.ContentLength ?? 0) : this.sizeOf(answer, this.from);
    const lengthFrom = (from: number) => Math.min(this.options.partBytes, size - from);
    const parts: Promise<Buffer[]>[] = [];
    let next = this.from;
    const askAhead = () => {
      while (parts.length < this.options.readParts && next < size) {
        const from = next;
        next += lengthFrom(from);
        const asked = from === this.from ? answer : this.askPart(from, answer.ETag);
        const part = Promise.resolve(asked).then((each) => this.receive(each, lengthFrom(from)));
        part.catch(() => {}); // prevents an unhandled rejection; `read` throws the error when it awaits the part
        parts.push(part);
      }
    };
    askAhead();
    const expected = await this.findChecksum(answer);
    const isRevealed = answer.ETag !== undefined || expected || this.wanted.checksum;
    if (!isRevealed && size - this.from > this.options.partBytes) throw this.hasNoTag();
    const hash = expected && (await startHash(hashOf(expected)));
    for (let part = parts.shift(); part; part = parts.shift()) {
      for (const chunk of await part) {
        hash?.update(chunk);
        yield chunk;
      }
      askAhead();
    }
    const found = hash?.digest().toString('base64');
    if (expected && found !== expected.value) throw this.differs(expected, found);
  }

  /**
   * Requests the first part of the object. Requests a small object without a range, because a response to a range
   * request does not contain the checksum.
   * @returns the response; undefined if the object ends at or before the offset `from`
   */
  private async askFirst(): Promise<GetObjectCommandOutput | undefined> {
    const { key, from, size, version } = this.wanted;
    const isWhole = from === 0n && size <= this.options.partBytes;
    const range = isWhole ? {} : { Range: this.rangeFrom(this.from) };
    try {
      return await this.calls.get({ Key: key, ...range, ...conditionOf(version.tag) }, this.signal);
    } catch (error) {
      if (failureOf(error, '').code === 'InvalidRange') return undefined;
      throw error;
    }
  }

  private async askPart(from: number, etag: string | undefined): Promise<GetObjectCommandOutput> {
    const range = { Range: this.rangeFrom(from), ...conditionOf(etag) };
    const answer = await this.calls.get({ Key: this.wanted.key, ...range }, this.signal);
    this.sizeOf(answer, from);
    this.checkTag(answer, etag);
    return answer;
  }

  /**
   * Compares the ETag of a response with the expected ETag, because some servers ignore the header If-Match.
   * @throws ChangedError
   */
  private checkTag({ ETag }: GetObjectCommandOutput, expected: string | undefined): void {
    if (ETag === expected) return;
    const name = this.calls.nameOf(this.wanted.key);
    throw new ChangedError(`${name} was replaced while it was being read: its ETag is ${ETag}, but was ${expected}`);
  }

  /** Receives a part into memory, and closes the connection if the response body is longer than the part. */
  private async receive({ Body }: GetObjectCommandOutput, length: number): Promise<Buffer[]> {
    const chunks: Buffer[] = [];
    let left = length;
    for await (const chunk of joinPieces(Body as Readable)) {
      this.calls.countBytes(chunk.length);
      chunks.push(chunk.length > left ? chunk.subarray(0, left) : chunk);
      left -= chunk.length;
      if (left < 0) break;
    }
    if (left > 0) throw new Error(`the connection closed ${left} bytes before the end of the response`);
    return chunks;
  }

  private rangeFrom(from: number): string {
    return `bytes=${from}-${from + this.options.partBytes - 1}`;
  }

  /**
   * Returns the object's size from the header Content-Range.
   * @throws LibraryError if the response does not contain the requested range
   */
  private sizeOf({ ContentRange = '' }: GetObjectCommandOutput, from: number): number {
    const [, start, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(ContentRange) ?? [];
    if (start === String(from) && total !== undefined) return Number(total);
    const given = JSON.stringify(ContentRange);
    const problem = `S3 returned the range ${given} instead of ${this.rangeFrom(from)}`;
    throw new LibraryError('TRANSIENT', `${this.calls.nameOf(this.wanted.key)}: ${problem}`);
  }

  /** Finds S3's checksum of the whole object, with a HEAD request if necessary. */
  private async findChecksum(answer: GetObjectCommandOutput): Promise<Expected | undefined> {
    if (this.from > 0 || this.wanted.checksum) return undefined;
    if (answer.ContentRange === undefined) return checksumOf(answer);
    const head = await this.calls.head({ Key: this.wanted.key }, this.signal);
    return head.ETag === answer.ETag ? checksumOf(head) : undefined;
  }

  private hasNoTag(): TapeError {
    const name = this.calls.nameOf(this.wanted.key);
    const text = 'S3 sends neither an ETag nor a checksum, so parts of the file may belong to different versions';
    return new TapeError('TRANSIENT', `${name}: ${text}; register the checksum of the file`);
  }

  private differs({ algorithm, value }: Expected, found: string | undefined): TapeError {
    const name = this.calls.nameOf(this.wanted.key);
    const text = `the bytes received for ${name} have ${algorithm} ${found}, but S3 reports ${value}`;
    return new TapeError('TRANSIENT', text);
  }
}

function conditionOf(etag: string | undefined): { IfMatch?: string } {
  return etag === undefined ? {} : { IfMatch: etag };
}

interface Expected {
  algorithm: Algorithm;
  /** The checksum in base64. */
  value: string;
}

/** Checksum algorithms in order of preference, roughly from the fastest to the slowest. */
const ALGORITHMS = ['CRC32', 'SHA256', 'SHA1', 'SHA512', 'CRC64NVME', 'CRC32C', 'MD5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

const hashOf = ({ algorithm }: Expected): HashName => algorithm.toLowerCase() as Lowercase<Algorithm>;

/**
 * Returns S3's checksum of the whole object; undefined if S3 does not have one. For an object uploaded in parts, S3
 * might store only a checksum of the parts' checksums. This function ignores such a checksum, because it is not a
 * checksum of the object's bytes.
 */
function checksumOf(answer: object): Expected | undefined {
  const members = answer as Record<string, unknown>;
  if (members.ChecksumType === 'COMPOSITE') return undefined;
  for (const algorithm of ALGORITHMS) {
    const value = members[`Checksum${algorithm}`];
    // the pattern excludes checksums of parts' checksums, such as `…-7` for 7 parts
    if (typeof value === 'string' && /^[A-Za-z0-9+/]+=*$/.test(value)) return { algorithm, value };
  }
  return undefined;
}

/** Reads an object in parts, `readParts` at a time, which bounds memory, and yields their bytes in order. */
import { setMaxListeners } from 'node:events';
import { type HashName, type RunningHash, startHash } from '../../core/running-hash.js';
import { TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { ChangedError, type ReadVersion } from '../staging.js';
import type { ObjectAnswer, S3Body, S3Calls } from './calls.js';
import { failureOf, readErrorOf } from './failures.js';
import { keyOf } from './look-up.js';
import type { S3Settings } from './settings.js';

interface Wanted {
  key: string;
  /** Size in the catalogue; the object may be larger or smaller. */
  size: bigint;
  from: bigint;
  /** `tag` is the ETag. */
  version: ReadVersion;
}

/**
 * A single generator, because each layer of generators adds time per chunk.
 * @throws TapeError; NotReadyError if there is no copy (any more); ChangedError if the object was replaced
 */
export async function* readObject(
  calls: S3Calls,
  { path, ...rest }: { path: string; size: bigint; from: bigint; version: ReadVersion },
  options: S3Settings,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  signal.throwIfAborted();
  const wanted = { key: keyOf(path, options.prefixes), ...rest };
  const abort = new AbortController();
  setMaxListeners(options.readParts + 2, abort.signal);
  const reading = new Reading(calls, wanted, options, abort.signal);
  const stop = () => {
    abort.abort(signal.reason);
    reading.drop();
  };
  signal.addEventListener('abort', stop);
  try {
    for (let part = await reading.nextPart(); part; part = await reading.nextPart()) {
      while (await part.hasMore()) {
        for (let chunk = part.take(); chunk; chunk = part.take()) {
          reading.note(chunk);
          yield chunk;
          signal.throwIfAborted();
        }
      }
    }
    reading.compareChecksum();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof TapeError) throw error;
    const failure = failureOf(error, `GetObject of ${calls.nameOf(wanted.key)}`);
    if (failure.code === 'PreconditionFailed') throw new ChangedError(failure.message, { cause: error });
    throw readErrorOf(failure);
  } finally {
    signal.removeEventListener('abort', stop);
    abort.abort();
    reading.drop();
  }
}

/** Described by the first response; requests for further parts require the same ETag. */
interface Whole {
  size: bigint;
  etag: string | undefined;
}

class Reading {
  private readonly calls: S3Calls;
  private readonly wanted: Wanted;
  private readonly options: S3Settings;
  private readonly signal: AbortSignal;
  /** Start of the next part to request. */
  private next: bigint;
  /** Parts in memory or in flight. */
  private readonly live = new Set<Part>();
  private readonly asked: Promise<Part>[] = [];
  private current: Part | undefined;
  private whole: Whole | undefined;
  private expected: Expected | undefined;
  private hash: RunningHash | undefined;

  constructor(calls: S3Calls, wanted: Wanted, options: S3Settings, signal: AbortSignal) {
    this.calls = calls;
    this.wanted = wanted;
    this.options = options;
    this.signal = signal;
    this.next = wanted.from;
  }

  drop(): void {
    for (const part of this.live) part.drop();
  }

  /** Releases the current part. @returns the next part; undefined after the last one */
  async nextPart(): Promise<Part | undefined> {
    if (this.current) this.live.delete(this.current);
    if (!this.whole) {
      this.current = await this.openFirst();
      return this.current;
    }
    this.askAhead(this.whole, this.options.readParts);
    this.current = await this.asked.shift();
    return this.current;
  }

  note(bytes: Uint8Array): void {
    this.hash?.update(bytes);
  }

  /** Called after the last part. @throws TapeError TRANSIENT if the checksum differs */
  compareChecksum(): void {
    const found = this.hash?.digest().toString('base64');
    if (!this.expected || found === this.expected.value) return;
    const { algorithm, value } = this.expected;
    throw new TapeError(
      'TRANSIENT',
      `the bytes that came of ${this.calls.nameOf(this.wanted.key)} are not those that S3 has: their ${algorithm} is ${found}, not ${value}`,
    );
  }

  private async openFirst(): Promise<Part | undefined> {
    const first = await this.askFirst();
    if (!first) return undefined;
    this.whole = first.whole;
    this.askAhead(first.whole, this.options.readParts - 1);
    const isComparable = this.wanted.from === 0n && this.options.compareChecksums;
    this.expected = isComparable ? await this.findChecksum(first.answer, first.whole) : undefined;
    this.hash = this.expected && (await startHash(hashOf(this.expected)));
    return first.part;
  }

  private askAhead(whole: Whole, parts: number): void {
    while (this.asked.length < parts && this.next < whole.size) this.asked.push(this.askNext(whole));
  }

  /** Requests a small object without a range: only then the response contains its checksum. */
  private async askFirst(): Promise<{ whole: Whole; part: Part; answer: ObjectAnswer } | undefined> {
    const { key, from, size, version } = this.wanted;
    const isWhole = from === 0n && size <= this.options.partBytes;
    const range = isWhole ? {} : { Range: this.rangeFrom(from) };
    try {
      const answer = await this.calls.get({ Key: key, ...range, ...conditionOf(version.tag) }, this.signal);
      if (answer.ETag !== undefined) version.tag ??= answer.ETag;
      const whole = {
        size: isWhole ? BigInt(answer.ContentLength ?? 0) : this.sizeOf(answer, from),
        etag: answer.ETag,
      };
      return { whole, part: this.take(answer, whole), answer };
    } catch (error) {
      // the object ends at or before `from`; the caller compares sizes
      if (failureOf(error, '').code === 'InvalidRange') return undefined;
      throw error;
    }
  }

  private askNext(whole: Whole): Promise<Part> {
    const from = this.next;
    const range = { Range: this.rangeFrom(from), ...conditionOf(whole.etag) };
    const asking = this.calls.get({ Key: this.wanted.key, ...range }, this.signal);
    this.next += this.lengthFrom(from, whole);
    const part = asking.then((answer) => {
      this.sizeOf(answer, from);
      return this.part(answer, Number(this.lengthFrom(from, whole)));
    });
    part.catch(() => {}); // reported when its turn comes
    return part;
  }

  private take(answer: ObjectAnswer, whole: Whole): Part {
    const length = this.lengthFrom(this.next, whole);
    this.next += length;
    return this.part(answer, Number(length));
  }

  private part(answer: ObjectAnswer, length: number): Part {
    const part = new Part(answer.Body, length, (bytes) => this.calls.countBytes(bytes));
    this.live.add(part);
    if (this.signal.aborted) part.drop();
    return part;
  }

  private lengthFrom(from: bigint, { size }: Whole): bigint {
    const most = BigInt(this.options.partBytes);
    return size - from < most ? size - from : most;
  }

  private rangeFrom(from: bigint): string {
    return `bytes=${from}-${from + BigInt(this.options.partBytes) - 1n}`;
  }

  /** @throws LibraryError if the response has another range than requested */
  private sizeOf({ ContentRange = '' }: ObjectAnswer, from: bigint): bigint {
    const [, start, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(ContentRange) ?? [];
    if (start === String(from) && total !== undefined) return BigInt(total);
    const given = JSON.stringify(ContentRange);
    const problem = `asked for ${this.rangeFrom(from)}, S3 answers with the range ${given}`;
    throw new LibraryError('TRANSIENT', `${this.calls.nameOf(this.wanted.key)}: ${problem}`);
  }

  /** The response to a range request has no checksum of the whole object: a HEAD reads it. */
  private async findChecksum(answer: ObjectAnswer, whole: Whole): Promise<Expected | undefined> {
    if (answer.ContentRange === undefined) return checksumOf(answer);
    const head = await this.calls.head({ Key: this.wanted.key }, this.signal);
    return head.ETag === whole.etag ? checksumOf(head) : undefined;
  }
}

function conditionOf(etag: string | undefined): { IfMatch?: string } {
  return etag === undefined ? {} : { IfMatch: etag };
}

/** A part of an object, received at full speed and read in order. */
class Part {
  /** Received, not yet read. */
  private readonly chunks: Uint8Array[] = [];
  private readonly body: S3Body;
  private left: number;
  private isOver = false;
  private error: unknown;
  private wake: () => void = () => {};

  /** @param length bytes to read; the rest is discarded @param count called with the size of each chunk */
  constructor(body: S3Body, length: number, count: (bytes: number) => void) {
    this.body = body;
    this.left = length;
    this.takeAll(count).then(
      () => this.end(),
      (error: unknown) => this.end(error),
    );
  }

  drop(): void {
    this.end();
    this.chunks.length = 0;
  }

  take(): Uint8Array | undefined {
    return this.chunks.shift();
  }

  /**
   * Waits for the next chunk.
   * @returns false at the end
   * @throws the connection's error, or an error if the body is too short
   */
  async hasMore(): Promise<boolean> {
    while (this.chunks.length === 0 && !this.isOver) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    if (this.chunks.length > 0) return true;
    if (this.error !== undefined) throw this.error;
    if (this.left > 0) throw new Error(`the connection ended ${this.left} bytes before the end`);
    return false;
  }

  private async takeAll(count: (bytes: number) => void): Promise<void> {
    for await (const chunk of this.body.blocks) {
      count(chunk.length);
      if (this.isOver) return;
      const wanted = chunk.length > this.left ? chunk.subarray(0, this.left) : chunk;
      this.left -= wanted.length;
      if (wanted.length > 0) this.chunks.push(wanted);
      if (wanted.length < chunk.length) return;
      this.wake();
    }
  }

  private end(error?: unknown): void {
    if (this.isOver) return;
    this.isOver = true;
    if (this.left > 0) this.error = error;
    this.body.destroy(); // no-op for a complete body, whose connection may already be reused
    this.wake();
  }
}

interface Expected {
  algorithm: Algorithm;
  /** Base64. */
  value: string;
}

/** In order of preference: the fastest to compute first. */
const ALGORITHMS = ['CRC32', 'SHA256', 'SHA1', 'SHA512', 'CRC64NVME', 'CRC32C', 'MD5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

const hashOf = ({ algorithm }: Expected): HashName => algorithm.toLowerCase() as Lowercase<Algorithm>;

/** @returns undefined if S3 has no checksum of the whole object; a composite of part checksums cannot be compared */
function checksumOf(answer: object): Expected | undefined {
  const members = answer as Record<string, unknown>;
  if (members.ChecksumType === 'COMPOSITE') return undefined;
  for (const algorithm of ALGORITHMS) {
    const value = members[`Checksum${algorithm}`];
    if (typeof value === 'string' && /^[A-Za-z0-9+/]+=*$/.test(value)) return { algorithm, value }; // excludes composites such as `…-7` (7 parts)
  }
  return undefined;
}

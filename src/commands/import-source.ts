/** The file of an import, and its beginning, which says what it is; what a list is once it is open. */
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { constants, gunzipSync } from 'node:zlib';
import type { RowSource } from '../operations/catalogue/import-incoming.js';
import type { Skipped } from '../operations/catalogue/lists/list-rows.js';
import { detectFormat, type ListFormat, listFormats } from '../operations/catalogue/lists/read-list.js';
import { UsageError } from './failure.js';

export interface ImportSource {
  /** As it was given. */
  file: string;
  /** What it is, as far as that is certain. */
  detected: ListFormat | undefined;
  /** Bytes, where that is known. */
  size: number | undefined;
  /** The file from its beginning; to be called once. */
  read(): Readable;
}

/** A list that is open. */
export interface OpenList {
  /** Bytes, where that is known. */
  size: number | undefined;
  /** To be called once. @param meter what is read goes through it */
  rows(meter: (source: Readable) => Readable): RowSource;
  skipped: Skipped;
  /** A message that names lines, with the files of which they are. */
  nameLines(message: string): string;
}

const HEAD_BYTES = 4096;

/** @param file `-` is standard input */
export async function openSource(file: string): Promise<ImportSource> {
  if (file === '-') return await peek(file, process.stdin);
  const handle = await open(file);
  const stat = await handle.stat();
  if (!stat.isFile()) return await peek(file, handle.createReadStream());
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
  const detected = detectFormat(unzipHead(buffer.subarray(0, bytesRead)));
  return { file, detected, size: stat.size, read: () => handle.createReadStream({ start: 0 }) };
}

/** What cannot be read twice is put together again. */
async function peek(file: string, stream: Readable): Promise<ImportSource> {
  const chunks: AsyncIterator<Buffer> = stream[Symbol.asyncIterator]();
  const read: Buffer[] = [];
  for (let bytes = 0; bytes < HEAD_BYTES; ) {
    const next = await chunks.next();
    if (next.done) break;
    read.push(next.value);
    bytes += next.value.length;
  }
  const detected = detectFormat(unzipHead(Buffer.concat(read)));
  const whole = async function* () {
    yield* read;
    yield* { [Symbol.asyncIterator]: () => chunks };
  };
  const again = () => Readable.from(whole(), { objectMode: false }).once('close', () => stream.destroy());
  return { file, detected, size: undefined, read: again };
}

/** As far as it can be: it breaks off somewhere. */
function unzipHead(head: Buffer): string {
  if (head[0] !== 0x1f || head[1] !== 0x8b) return head.toString();
  try {
    return gunzipSync(head, { finishFlush: constants.Z_SYNC_FLUSH }).toString();
  } catch {
    return '';
  }
}

/** @param given by `--format` @throws UsageError where it is none, or the file is certainly something else */
export function chooseFormat({ file, detected }: ImportSource, given: string | undefined): ListFormat {
  if (given === undefined) return detected ?? 'csv';
  const format = listFormats.find((name) => name === given);
  if (!format) throw new UsageError(`--format must be one of ${listFormats.join(', ')}, not ${JSON.stringify(given)}`);
  if (detected === undefined || detected === format) return format;
  throw new UsageError(`--format says ${format}, and ${file === '-' ? 'standard input' : file} is ${detected}`);
}

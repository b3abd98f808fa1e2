/** The file of an import, and its beginning, which says what it is; what a list is once it is open. */
import { open } from 'node:fs/promises';
import { pipeline, type Readable, Transform } from 'node:stream';
import { constants, gunzipSync } from 'node:zlib';
import type { RowSource } from '../operations/catalogue/import-faults.js';
import type { Skipped } from '../operations/catalogue/lists/list-rows.js';
import { detectFormat, type ListFormat, listFormats } from '../operations/catalogue/lists/read-list.js';
import { UsageError } from './failure.js';
import { stdin } from './io.js';

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
  if (file === '-') return await peek(file, stdin());
  const handle = await open(file);
  const stat = await handle.stat();
  if (!stat.isFile()) return await peek(file, handle.createReadStream());
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
  const detected = detectFormat(unzipHead(buffer.subarray(0, bytesRead)));
  return { file, detected, size: stat.size, read: () => handle.createReadStream({ start: 0 }) };
}

/** What cannot be read twice goes through, and is looked at as far as it takes to know it: more may be long in coming. */
async function peek(file: string, stream: Readable): Promise<ImportSource> {
  let head = Buffer.alloc(0);
  let isKnown = false;
  const { tap, detected } = await new Promise<{ tap: Transform; detected: ListFormat | undefined }>(
    (resolve, reject) => {
      const settle = (isOver: boolean) => {
        const text = unzipHead(head);
        isKnown = isOver || head.length >= HEAD_BYTES || /\S.*\n\s*\S.*\n/.test(text);
        if (isKnown) resolve({ tap, detected: detectFormat(text) });
      };
      const tap = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          if (!isKnown) {
            head = Buffer.concat([head, chunk]);
            settle(false);
          }
          done(null, chunk);
        },
        flush(done) {
          if (!isKnown) settle(true);
          done();
        },
      });
      pipeline(stream, tap, (error) => error && reject(error)); // what fails later, fails what reads it
    },
  );
  return { file, detected, size: undefined, read: () => tap };
}

/** As far as it can be: it breaks off somewhere. */
function unzipHead(head: Buffer): string {
  if (head[0] !== 0x1f || head[1] !== 0x8b) return head.toString();
  try {
    return gunzipSync(head, { finishFlush: constants.Z_SYNC_FLUSH }).toString('utf8', 0, HEAD_BYTES);
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

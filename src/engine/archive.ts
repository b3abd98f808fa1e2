/**
 * Writes a directory tree to tape and registers it: each file is U once it is on a volume, D once reading it back has
 * given the same checksum, then T.
 *
 * Killed anywhere, it is run again: files that are on tape already are left out, and one that was only half-way is
 * written to a new position.
 */
import { type BigIntStats, constants, type Dirent } from 'node:fs';
import { type FileHandle, lstat, open, opendir, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../context.js';
import { messageOf } from '../errors.js';
import { type KnownFile, readKnown } from '../operations/catalogue/files.js';
import { importRows } from '../operations/catalogue/import.js';
import type { CatalogueRow } from '../operations/catalogue/import-rows.js';
import { type Place, placeFiles } from '../operations/catalogue/volumes.js';
import { checkPath } from '../operations/input.js';
import type { TapeBackend } from '../tape/backend.js';
import { createChecksum } from './checksum.js';
import { readChecked } from './tape-copy.js';

export interface ArchiveInput {
  dir: string;
  /** Put before the paths below `dir`; `/` unless given. */
  prefix?: string;
  spot?: string;
  /** Bytes that a volume takes before a new one is begun. */
  volumeSize: bigint;
  /** Remove each source file once it is verified. */
  move?: boolean;
}

export interface ArchiveResult {
  archived: number;
  bytes: bigint;
  /** On tape already, with the same bytes. */
  unchanged: number;
  /** Links and other things that are no regular files. */
  skipped: number;
  /** A line each: path and reason. */
  failed: string[];
}

const BATCH_FILES = 500;
const BATCH_BYTES = 1024n * 1024n * 1024n;

interface Source {
  file: string;
  path: string;
  size: bigint;
  /** What tells the file as it was found from a changed one: inode, and modification time in nanoseconds. */
  ino: bigint;
  mtimeNs: bigint;
}

interface Written extends Source {
  volume: string;
  position: bigint;
  checksum: string;
}

/** @param onProgress called after each batch with the result so far */
export async function archiveTree(
  ctx: Context,
  backend: TapeBackend,
  input: ArchiveInput,
  options: { signal: AbortSignal; onProgress?: (result: ArchiveResult) => void },
): Promise<ArchiveResult> {
  const result: ArchiveResult = { archived: 0, bytes: 0n, unchanged: 0, skipped: 0, failed: [] };
  const flush = async (batch: Source[]) => {
    if (batch.length > 0) await archiveBatch(ctx, backend, input, { batch, result, signal: options.signal });
    options.onProgress?.(result);
  };
  let batch: Source[] = [];
  let bytes = 0n;
  for await (const source of walk(input, result)) {
    options.signal.throwIfAborted();
    batch.push(source);
    bytes += source.size;
    if (batch.length < BATCH_FILES && bytes < BATCH_BYTES) continue;
    await flush(batch);
    batch = [];
    bytes = 0n;
  }
  await flush(batch);
  return result;
}

/** The regular files below a directory, those of a folder in order of their names. Links are never followed. */
async function* walk(input: ArchiveInput, result: ArchiveResult): AsyncGenerator<Source> {
  const prefix = `/${input.prefix ?? ''}/`.replace(/\/+/g, '/');
  const pending = [''];
  for (let relative = pending.pop(); relative !== undefined; relative = pending.pop()) {
    const entries = await readFolder(path.join(input.dir, relative)).catch((error: unknown) => {
      if (relative === '') throw error;
      result.failed.push(`${path.join(input.dir, relative)}: ${messageOf(error)}`);
      return [];
    });
    const folders: string[] = [];
    for (const entry of entries) {
      const below = path.join(relative, entry.name);
      if (entry.isDirectory()) folders.push(below);
      else if (!entry.isFile()) result.skipped++;
      else {
        const file = path.join(input.dir, below);
        try {
          const { size, ino, mtimeNs } = await lstat(file, { bigint: true });
          yield { file, path: checkPath('path', prefix + below), size, ino, mtimeNs };
        } catch (error) {
          result.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    for (const folder of folders.reverse()) pending.push(folder);
  }
}

async function readFolder(dir: string): Promise<Dirent[]> {
  const entries: Dirent[] = [];
  for await (const entry of await opendir(dir)) entries.push(entry);
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

interface Batch {
  batch: Source[];
  result: ArchiveResult;
  signal: AbortSignal;
}

async function archiveBatch(
  ctx: Context,
  backend: TapeBackend,
  input: ArchiveInput,
  { batch, result, signal }: Batch,
): Promise<void> {
  const attempt = async (source: Source, work: () => Promise<void>) => {
    try {
      await work();
    } catch (error) {
      if (signal.aborted) throw error;
      result.failed.push(`${source.file}: ${messageOf(error)}`);
    }
  };
  const known = await readKnown(
    ctx,
    batch.map((source) => source.path),
  );
  const fresh: Source[] = [];
  const safe: Source[] = [];
  for (const source of batch) {
    const old = known.get(source.path);
    if (!old || !isOnTape(old)) fresh.push(source);
    else {
      await attempt(source, async () => {
        await checkSame(source, old, signal);
        safe.push(source);
        result.unchanged++;
      });
    }
  }
  const sizes = fresh.map((source) => source.size);
  const places = await placeFiles(ctx, { sizes, volumeSize: input.volumeSize });
  const written: Written[] = [];
  for (const [index, source] of fresh.entries()) {
    await attempt(source, async () => {
      written.push(await writeOne(backend, source, places[index] as Place, signal));
    });
  }
  const register = (files: readonly Written[], stage: CatalogueRow['stage'], verified: string | null) =>
    importRows(
      ctx,
      files.map((file, index) => ({ ...file, line: index + 1, stage, verified, spotName: input.spot ?? null })),
    );
  await register(written, 'UNVERIFIED', null);
  const verified: Written[] = [];
  for (const file of written) {
    await attempt(file, async () => {
      await verifyOne(backend, file, signal);
      verified.push(file);
    });
  }
  const now = ctx.now();
  await register(verified, 'ONDISK', now);
  await register(verified, 'ONTAPE', now);
  result.archived += verified.length;
  for (const file of verified) result.bytes += file.size;
  // last, so that a source is never gone while the catalogue still counts on it
  if (input.move) for (const source of [...verified, ...safe]) await attempt(source, () => removeSource(source));
}

/** What was written to a source since it was read is on no tape: such a source stays. */
async function removeSource(source: Source): Promise<void> {
  if (isChanged(source, await lstat(source.file, { bigint: true }))) throw new Error('it changed since it was read');
  await unlink(source.file);
}

function isChanged(source: Source, { size, ino, mtimeNs }: BigIntStats): boolean {
  return size !== source.size || ino !== source.ino || mtimeNs !== source.mtimeNs;
}

function isOnTape(file: KnownFile): boolean {
  return file.stage === 'ONTAPE' || file.stage === 'RESTORING' || file.stage === 'RESTORED';
}

/** @throws Error when the tape has other bytes under this path */
async function checkSame(source: Source, known: KnownFile, signal: AbortSignal): Promise<void> {
  const handle = await open(source.file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    if (known.checksum === null) throw new Error(`${source.path} is on tape already, and has no checksum to compare`);
    const checksum = createChecksum(known.checksum);
    for await (const chunk of readAll(handle)) {
      signal.throwIfAborted();
      checksum.update(chunk);
    }
    if (checksum.digest() !== known.checksum) throw new Error(`${source.path} is on tape already, with other bytes`);
  } finally {
    await handle.close();
  }
}

async function writeOne(backend: TapeBackend, source: Source, place: Place, signal: AbortSignal): Promise<Written> {
  const handle = await open(source.file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const checksum = createChecksum(null);
    const tee = async function* () {
      for await (const chunk of readAll(handle)) {
        checksum.update(chunk);
        yield chunk;
      }
    };
    const size = await backend.write(place.volume, place.position, tee(), signal);
    if (size !== source.size) throw new Error(`it changed from ${source.size} to ${size} bytes while it was read`);
    if (isChanged(source, await handle.stat({ bigint: true }))) throw new Error('it changed while it was read');
    return { ...source, ...place, checksum: checksum.digest() };
  } finally {
    await handle.close();
  }
}

async function verifyOne(backend: TapeBackend, file: Written, signal: AbortSignal): Promise<void> {
  const volume = await backend.mount(file.volume, 'archive', signal);
  try {
    await readChecked(volume, file, { signal, tell: () => 'reading it back from tape gave another checksum' });
  } finally {
    await volume.unmount();
  }
}

async function* readAll(handle: FileHandle): AsyncGenerator<Uint8Array> {
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(1024 * 1024));
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}

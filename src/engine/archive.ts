/**
 * Writes a directory tree to tape and registers it: each file is U once it is on a volume, D once reading it back has
 * given the same checksum, then T.
 *
 * Killed anywhere, it is run again: files that are on tape already are left out, and one that was only half-way is
 * written to a new position.
 */
import type { Deed } from '../audit.js';
import type { Context } from '../context.js';
import { auditedRun } from '../operations/audit/audited.js';
import { hasVolumes } from '../operations/catalogue/volumes.js';
import { LibraryError, type WritableBackend } from '../tape/backend.js';
import { archiveBatch, type BatchOptions, type BatchResult } from './archive/batch.js';
import type { Source } from './archive/walk.js';
import { type OnSkip, type PassedOver, refuseOwnFolders, walkSources } from './archive/walk.js';

/** What is to be archived, and how. */
export interface ArchiveInput extends BatchOptions {
  dir: string;
  /** Put before the paths below `dir`; `/` unless given. */
  prefix?: string;
  /** Makes a library where there is none, although the catalogue knows volumes. */
  newLibrary?: boolean;
}

/** What came of all files so far. */
export interface ArchiveResult extends BatchResult, PassedOver {}

/** Files that were written, or compared with what is on tape. */
export interface ArchiveProgress {
  files: number;
  bytes: bigint;
}

/**
 * A file that fails is told in the result; the others are archived all the same.
 * @throws Error when the catalogue knows volumes and there is no library, before anything is written
 * @param how.onProgress called after each file that was compared or written, with what was dealt with so far
 * @param how.onSkip told of what is passed over since it is no regular file
 */
export async function archiveTree(
  ctx: Context,
  backend: WritableBackend,
  input: ArchiveInput,
  how: { signal: AbortSignal; onProgress?: (progress: ArchiveProgress) => void; onSkip?: OnSkip },
): Promise<ArchiveResult> {
  await refuseOwnFolders(ctx, input.dir);
  await openLibrary(ctx, backend, input.newLibrary ?? false);
  const deed: Deed = { operation: 'archive', kind: 'CATALOGUE', object: input.dir, given: input };
  return await auditedRun(ctx, deed, () => archiveAll(ctx, backend, input, how), describe);
}

/** For the audit: of what failed the number. */
function describe({ archived, bytes, unchanged, skipped, failed }: ArchiveResult): object {
  return { archived, bytes, unchanged, skipped, failed: failed.length };
}

async function archiveAll(
  ctx: Context,
  backend: WritableBackend,
  input: ArchiveInput,
  how: { signal: AbortSignal; onProgress?: (progress: ArchiveProgress) => void; onSkip?: OnSkip },
): Promise<ArchiveResult> {
  const result: ArchiveResult = { archived: 0, bytes: 0n, unchanged: 0, skipped: 0, failed: [] };
  const progress: ArchiveProgress = { files: 0, bytes: 0n };
  const onSource = ({ size }: Source) => {
    progress.files++;
    progress.bytes += size;
    how.onProgress?.(progress);
  };
  const { signal } = how;
  for await (const sources of groupSources(walkSources(input, result, how.onSkip), signal)) {
    if (sources.length > 0) await archiveBatch(ctx, backend, input, { sources, result, signal, onSource });
  }
  return result;
}

/**
 * A library that is not mounted must not be made where it is mounted later: what was written there would be hidden, and the sources
 * that were moved be gone. Only the very first one is made without a word.
 */
async function openLibrary(ctx: Context, backend: WritableBackend, isNew: boolean): Promise<void> {
  try {
    await backend.openLibrary?.(isNew || !(await hasVolumes(ctx)));
  } catch (error) {
    if (!(error instanceof LibraryError)) throw error;
    const way =
      'nothing was archived, since the catalogue knows volumes: mount the library, or have a new one made with --new-library';
    throw new Error(`${error.message}; ${way}`, { cause: error });
  }
}

/** What each batch costs the catalogue counts for small files, and large ones are bounded by their bytes. */
const BATCH_FILES = 2000;
const BATCH_BYTES = 1024n * 1024n * 1024n;

/** Sources in batches; the last one may be empty. @throws the reason of the signal */
async function* groupSources(sources: AsyncIterable<Source>, signal: AbortSignal): AsyncGenerator<Source[]> {
  let batch: Source[] = [];
  let bytes = 0n;
  for await (const source of sources) {
    signal.throwIfAborted();
    batch.push(source);
    bytes += source.size;
    if (batch.length < BATCH_FILES && bytes < BATCH_BYTES) continue;
    yield batch;
    batch = [];
    bytes = 0n;
  }
  yield batch;
}

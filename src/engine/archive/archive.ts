/**
 * Archives a directory tree: writes the files to tape and registers them in the catalogue. A file becomes UNVERIFIED
 * when it is written to a volume, and ONTAPE when its tape copy is read back with the same checksum. A repeated run
 * skips files that are on tape, and writes a partly written file again, at a new tape position.
 */
import type { AuditedAction } from '../../domain/audit/audit.js';
import { auditedRun } from '../../domain/audit/audited.js';
import { type DirectoryMode, recordDirectories } from '../../domain/catalogue/directory-modes.js';
import { archiveVolumes, hasVolumes, skipUsedPositions } from '../../domain/catalogue/volumes.js';
import type { Context } from '../../domain/context.js';
import { confirmOwned, ownershipOf } from '../../restore-area/ownership.js';
import { LibraryError, type WritableLibrary } from '../../tape/drive-library.js';
import { ArchiveBatch, type BatchOptions, type BatchResult } from './batch.js';
import type { Source } from './walk.js';
import { type ExcludedEntries, type OnSkip, refuseOwnDirectories, walkSources } from './walk.js';

export interface ArchiveInput extends BatchOptions {
  dir: string;
  /** Logical directory into which the files are archived. Default: the root directory. */
  prefix?: string;
  /** Whether to create a missing tape library even if the catalogue contains volumes. */
  newLibrary?: boolean;
}

export interface ArchiveResult extends BatchResult, ExcludedEntries {}

export interface ArchiveProgress {
  files: number;
  bytes: bigint;
}

/**
 * Archives a directory tree. If a file cannot be archived, lists the file in the result and continues.
 * @throws Error, before any file is written, if the library is missing although the catalogue contains volumes
 * @param how.onProgress callback that receives the total number of files and bytes so far
 * @param how.onSkip callback for each skipped entry: an entry that is neither a directory nor a regular file
 */
export async function archiveTree(
  ctx: Context,
  library: WritableLibrary,
  input: ArchiveInput,
  how: { signal: AbortSignal; onProgress?: (progress: ArchiveProgress) => void; onSkip?: OnSkip },
): Promise<ArchiveResult> {
  await refuseOwnDirectories(ctx, input.dir);
  await ownershipOf(ctx).require();
  await openLibrary(ctx, library, input.newLibrary ?? false);
  const last = await library.findLast?.(archiveVolumes);
  if (last) await skipUsedPositions(ctx, last);
  const action: AuditedAction = { operation: 'archive', kind: 'CATALOGUE', object: input.dir, given: input };
  return await auditedRun(ctx, action, () => archiveAll(ctx, library, input, how), describe);
}

function describe({ archived, bytes, unchanged, skipped, failed }: ArchiveResult): object {
  return { archived, bytes, unchanged, skipped, failed: failed.length };
}

async function archiveAll(
  ctx: Context,
  library: WritableLibrary,
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
  const modes: DirectoryMode[] = [];
  const walk = walkSources(input, result, { onSkip: how.onSkip, onDirectory: (directory) => modes.push(directory) });
  for await (const sources of groupSources(walk, signal)) {
    await confirmOwned(ctx);
    // record a directory before its files, because a registered file might be restored immediately
    await recordDirectories(ctx, modes.splice(0), input.prefix);
    if (sources.length > 0) await new ArchiveBatch(ctx, library, input, { sources, result, signal, onSource }).run();
  }
  return result;
}

/**
 * Opens the library. Creates a missing library if the operator requests a new library (`isNew`), or if the catalogue
 * does not contain volumes. In all other cases, a missing library is an error, because the library's file system might
 * not be mounted.
 */
async function openLibrary(ctx: Context, library: WritableLibrary, isNew: boolean): Promise<void> {
  try {
    await library.openLibrary?.(isNew || !(await hasVolumes(ctx)));
  } catch (error) {
    if (!(error instanceof LibraryError)) throw error;
    const remedy =
      'nothing was archived because the catalogue already contains volumes: mount the library, or give --new-library to create another library';
    throw new Error(`${error.message}; ${remedy}`, { cause: error });
  }
}

const BATCH_FILES = 2000;
const BATCH_BYTES = 1024n * 1024n * 1024n;

/**
 * Groups source files into batches. The last batch might be empty.
 * @throws `signal.reason` after an abort
 */
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

/** Archives files in batches. Each step is completed for all files in a batch before the next step begins. */

import { messageOf, quote } from '../../core/errors.js';
import { type KnownFile, readKnown } from '../../domain/catalogue/tape-files.js';
import { reservePositions, type TapePosition } from '../../domain/catalogue/volumes.js';
import type { Context } from '../../domain/context.js';
import { registerRows } from '../../domain/import/import.js';
import { findDirectoryClashes } from '../../domain/import/import-checks.js';
import { ImportError } from '../../domain/import/import-lines.js';
import type { CatalogueRow } from '../../domain/import/import-rows.js';
import { readChecked, readChunks, startChecksum, startSums } from '../../restore-area/checksum.js';
import { confirmOwned } from '../../restore-area/ownership.js';
import type { WritableLibrary } from '../../tape/drive-library.js';
import { isChanged, removeSource, type Source, withSource } from './walk.js';

export interface BatchOptions {
  spot?: string;
  /** Size in bytes at which a volume counts as full. Further files are then written to a new volume. */
  volumeSize: bigint;
  /** Whether to remove each source file after its tape copy is verified. */
  move?: boolean;
}

export interface BatchResult {
  archived: number;
  bytes: bigint;
  /** Number of files that were already on tape and have the checksum that the catalogue contains. */
  unchanged: number;
  failed: string[];
}

interface BatchWork {
  sources: readonly Source[];
  result: BatchResult;
  signal: AbortSignal;
  onSource: (source: Source) => void;
}

export class ArchiveBatch {
  private readonly ctx: Context;
  private readonly library: WritableLibrary;
  private readonly options: BatchOptions;
  private readonly work: BatchWork;

  constructor(ctx: Context, library: WritableLibrary, options: BatchOptions, work: BatchWork) {
    this.ctx = ctx;
    this.library = library;
    this.options = options;
    this.work = work;
  }

  /**
   * Archives the batch. A file that fails in one step is skipped in later steps.
   * @throws `signal.reason` after an abort; FencedError; database errors. An error that affects only one file is not
   *   thrown, but added to the result
   */
  async run(): Promise<void> {
    const { fresh, lost, safe } = await this.sort();
    const written = await this.write([...fresh, ...lost]);
    const isFresh = isOneOf(fresh);
    const unverified = { stage: 'UNVERIFIED', verified: null } as const;
    const registered = await this.register(written.filter(isFresh), unverified, (files) => this.keepFree(files));
    const others = written.filter((file) => !isFresh(file));
    const read = await this.verify([...registered, ...others], '');
    const lostIds = new Map(lost.map(({ path, id }) => [path, id]));
    const onTape = { stage: 'ONTAPE', verified: this.ctx.now() } as const;
    const lostIdOf: LostIdOf = ({ path }) => lostIds.get(path);
    const verified = await this.register(read, onTape, (files) => this.keepRegistered(files, lostIdOf));
    this.work.result.archived += verified.length;
    for (const file of verified) this.work.result.bytes += file.size;
    const unchanged = this.options.move ? await this.verify(safe, UNCONFIRMED) : safe;
    this.work.result.unchanged += unchanged.length;
    if (this.options.move) {
      const { passed } = await this.keepRegistered([...verified, ...unchanged]);
      await this.doEach(passed, removeSource);
    }
  }

  /**
   * Checks files, and adds the files that pass the check to the catalogue. Lists the files that fail the check as
   * failed in the result.
   * @returns the registered files
   */
  private async register(
    files: readonly WrittenFile[],
    entry: Pick<CatalogueRow, 'stage' | 'verified'>,
    check: (files: readonly WrittenFile[]) => Promise<CheckedFiles>,
  ): Promise<WrittenFile[]> {
    const { passed, known } = await check(files);
    const spotName = this.options.spot ?? null;
    const rows = passed.map((file, index) => ({ ...file, ...entry, line: index + 1, spotName }));
    await confirmOwned(this.ctx);
    try {
      await registerRows(this.ctx, rows, known);
      return passed;
    } catch (error) {
      if (!(error instanceof ImportError)) throw error;
      const left = await check(passed);
      if (left.passed.length < passed.length) return await this.register(left.passed, entry, check);
      throw error;
    }
  }

  /**
   * Returns the files that have kept their paths and tape positions since the last step, and were not withdrawn. If a
   * renamed file were registered under its old path, the catalogue would contain the file twice. A withdrawn file's
   * source is kept, because the source might soon be the only copy.
   * @param lostIdOf function that returns the catalogue id of a file whose catalogue entry had no tape position
   */
  private async keepRegistered(
    files: readonly WrittenFile[],
    lostIdOf: LostIdOf = () => undefined,
  ): Promise<CheckedFiles> {
    const paths = files.map(({ path }) => path);
    const found = await readKnown(this.ctx, paths);
    const [passed, known]: [WrittenFile[], KnownFile[]] = [[], []];
    for (const written of files) {
      const { file, path, volume, position } = written;
      const lostId = lostIdOf(written);
      const current = found.get(path);
      const isThere = current?.tapePosition?.volume === volume && current.tapePosition.position === position;
      if (
        current &&
        !current.isWithdrawn &&
        (lostId === undefined ? isThere : current.id === lostId && current.tapePosition === null)
      ) {
        passed.push(written);
        known.push(current);
      } else {
        const reason = 'was renamed, withdrawn or moved on tape while it was being read back';
        this.work.result.failed.push(`${file}: ${path} ${reason}; run the command again`);
      }
    }
    return { passed, known };
  }

  /**
   * Sorts sources into three groups. A `fresh` source is not on tape. A `lost` source has a catalogue entry without a
   * tape position. A `safe` source is on tape with the same bytes.
   */
  private async sort(): Promise<{ fresh: Source[]; lost: (Source & { id: bigint })[]; safe: WrittenFile[] }> {
    const paths = this.work.sources.map((source) => source.path);
    const known = await readKnown(this.ctx, paths);
    // find conflicting paths before any file is written to tape
    const clashes = await findDirectoryClashes(this.ctx, paths);
    const fresh: Source[] = [];
    const lost: (Source & { id: bigint })[] = [];
    const safe: WrittenFile[] = [];
    await this.doEach(this.work.sources, async (source) => {
      const old = known.get(source.path);
      const clash = clashes.get(source.path);
      if (!old && clash !== undefined) throw new Error(clash);
      if (old?.isWithdrawn) {
        throw new Error(`${quote(source.path)} is withdrawn: reinstate or purge it, then run the command again`);
      }
      if (!old || !isOnTape(old)) return void fresh.push(source);
      const checksum = await checkSame(source, old, this.work.signal);
      this.work.onSource(source);
      if (old.tapePosition) safe.push({ ...source, ...old.tapePosition, checksum });
      else lost.push({ ...source, id: old.id });
    });
    return { fresh, lost, safe };
  }

  private async write(sources: readonly Source[]): Promise<WrittenFile[]> {
    const sizes = sources.map((source) => source.size);
    const positions = await reservePositions(this.ctx, { sizes, volumeSize: this.options.volumeSize });
    const written: WrittenFile[] = [];
    await this.doEach(sources, async (source, index) => {
      written.push(await writeSource(this.library, source, positions[index] as TapePosition, this.work.signal));
      this.work.onSource(source);
    });
    return await this.sync(written);
  }

  /**
   * Syncs the written volumes to disk, because a file must be durable before it is registered.
   * @returns the files on volumes that were synced
   */
  private async sync(written: readonly WrittenFile[]): Promise<WrittenFile[]> {
    const durable = new Set(written.map(({ volume }) => volume));
    for (const volume of durable) {
      try {
        await this.library.sync?.(volume, this.work.signal);
      } catch (error) {
        if (this.work.signal.aborted) throw error;
        durable.delete(volume);
        for (const { file } of written.filter((lost) => lost.volume === volume)) {
          this.work.result.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    return written.filter(({ volume }) => durable.has(volume));
  }

  /**
   * Returns the files whose tape copies are correct.
   * @param prefix text that precedes the error in messages about incorrect copies
   */
  private async verify(files: readonly WrittenFile[], prefix: string): Promise<WrittenFile[]> {
    const fail = ({ file }: WrittenFile, error: unknown) => {
      this.work.result.failed.push(`${file}: ${prefix}${messageOf(error)}`);
    };
    return await readBack(this.library, files, { signal: this.work.signal, fail });
  }

  /**
   * Returns the new files whose paths are still free in the catalogue. An import might have added another file at the
   * same path. The imported file must not get the new file's tape position.
   */
  private async keepFree(files: readonly WrittenFile[]): Promise<CheckedFiles> {
    const paths = files.map((file) => file.path);
    const known = await readKnown(this.ctx, paths);
    const clashes = await findDirectoryClashes(this.ctx, paths);
    const reasonOf = ({ path }: WrittenFile): string | undefined => {
      const old = known.get(path);
      if (old && isOnTape(old))
        return `${path} was added to the catalogue as a tape file; run the command again to compare the file with the tape copy`;
      const clash = clashes.get(path);
      return clash === undefined ? undefined : `${clash}: rename one of them, then run the command again`;
    };
    const passed: WrittenFile[] = [];
    for (const file of files) {
      const reason = reasonOf(file);
      if (reason === undefined) {
        passed.push(file);
        continue;
      }
      const position = `${file.volume}, position ${file.position}`;
      this.work.result.failed.push(
        `${file.file}: while the file was being written to tape, ${reason} (bytes at ${position} are unreferenced)`,
      );
    }
    return { passed, known: [] };
  }

  /**
   * Processes files one after another. If a file fails, adds its error to the result and continues. Stops early if
   * `signal` aborts or another Tapegate takes over the restore disks.
   */
  private async doEach<S extends Source>(
    sources: readonly S[],
    work: (source: S, index: number) => Promise<void>,
  ): Promise<void> {
    for (const [index, source] of sources.entries()) {
      await confirmOwned(this.ctx);
      try {
        await work(source, index);
      } catch (error) {
        if (this.work.signal.aborted) throw error;
        this.work.result.failed.push(`${source.file}: ${messageOf(error)}`);
      }
    }
  }
}

interface CheckedFiles {
  passed: WrittenFile[];
  known: KnownFile[];
}

/** Returns a file's catalogue id if the file's catalogue entry had no tape position, and undefined otherwise. */
type LostIdOf = (file: WrittenFile) => bigint | undefined;

const UNCONFIRMED = 'on tape according to the catalogue, but its tape copy cannot be confirmed: ';

function isOneOf(sources: readonly Source[]): (source: Source) => boolean {
  const files = new Set(sources.map((source) => source.file));
  return (source) => files.has(source.file);
}

function isOnTape(file: KnownFile): boolean {
  return file.stage === 'ONTAPE' || file.stage === 'RESTORING' || file.stage === 'RESTORED';
}

interface WrittenFile extends Source, TapePosition {
  checksum: string;
  /** Adler-32 of the bytes written to tape; undefined if the file was only compared with its catalogue entry. */
  adler32?: string | undefined;
}

/**
 * Writes a source to tape.
 * @throws Error if the source changed while it was being read; no other file is written to its tape position
 */
async function writeSource(
  library: WritableLibrary,
  source: Source,
  position: TapePosition,
  signal: AbortSignal,
): Promise<WrittenFile> {
  return await withSource(source, async (handle) => {
    const sums = await startSums(null, { wantsAdler32: true });
    const bytes = async function* () {
      for await (const chunk of readChunks(handle)) {
        sums.update(chunk);
        yield chunk;
      }
    };
    const size = await library.write(position.volume, position.position, bytes(), signal);
    if (size !== source.size)
      throw new Error(`the file changed from ${source.size} to ${size} bytes while it was being read`);
    if (isChanged(source, await handle.stat({ bigint: true })))
      throw new Error('the file changed while it was being read');
    const { checksum, adler32 } = sums.digest();
    return { ...source, ...position, checksum, adler32: adler32 ?? undefined };
  });
}

/**
 * Reads tape copies back, in position order, with one mount per volume.
 * @param fail callback for each tape copy that is unreadable or has a different checksum
 * @returns the files whose tape copies are correct
 * @throws `signal.reason` after an abort
 */
async function readBack(
  library: WritableLibrary,
  files: readonly WrittenFile[],
  how: { signal: AbortSignal; fail: (file: WrittenFile, error: unknown) => void },
): Promise<WrittenFile[]> {
  const byVolume = new Map<string, WrittenFile[]>();
  for (const file of files) byVolume.set(file.volume, [...(byVolume.get(file.volume) ?? []), file]);
  const intact: WrittenFile[] = [];
  for (const [name, group] of byVolume) {
    const bad = new Set<WrittenFile>();
    const fail = (file: WrittenFile, error: unknown) => {
      how.signal.throwIfAborted();
      if (!bad.has(file)) how.fail(file, error);
      bad.add(file);
    };
    try {
      await readVolumeBack(library, { name, files: group }, { ...how, fail });
    } catch (error) {
      for (const file of group) fail(file, error);
    }
    intact.push(...group.filter((file) => !bad.has(file)));
  }
  return intact;
}

async function readVolumeBack(
  library: WritableLibrary,
  { name, files }: { name: string; files: readonly WrittenFile[] },
  { signal, fail }: { signal: AbortSignal; fail: (file: WrittenFile, error: unknown) => void },
): Promise<void> {
  const describe = () => 'the checksum read back from tape differs';
  const volume = await library.mount(name, 'archive', signal);
  try {
    for (const file of [...files].sort((a, b) => (a.position < b.position ? -1 : 1))) {
      await readChecked(volume, file, { signal, describe }).catch((error: unknown) => fail(file, error));
    }
  } finally {
    await volume.unmount();
  }
}

export const OTHER_BYTES = 'is already on tape with different bytes';

/**
 * Compares a source with its catalogue entry.
 * @returns the source's checksum
 * @throws Error if the catalogue contains a different checksum or size for the path, or no checksum
 */
async function checkSame(source: Source, known: KnownFile, signal: AbortSignal): Promise<string> {
  const otherBytes = `${source.path} ${OTHER_BYTES}`;
  if (known.checksum === null)
    throw new Error(`${source.path} is already on tape, but the catalogue has no checksum to compare`);
  if (source.size !== known.size) throw new Error(otherBytes);
  const sums = { known: await startChecksum(known.checksum), own: await startChecksum(null) };
  await withSource(source, async (handle) => {
    for await (const chunk of readChunks(handle)) {
      signal.throwIfAborted();
      sums.known.update(chunk);
      sums.own.update(chunk);
    }
  });
  if (sums.known.digest() !== known.checksum) throw new Error(otherBytes);
  return sums.own.digest();
}

/** Archives files batch by batch: each step is done for all files of a batch before the next one begins. */
import type { Context } from '../../context.js';
import { messageOf, quote } from '../../errors.js';
import { type KnownFile, readKnown } from '../../operations/catalogue/files.js';
import { registerRows } from '../../operations/catalogue/import.js';
import { findFolderClashes } from '../../operations/catalogue/import-checks.js';
import { ImportError } from '../../operations/catalogue/import-lines.js';
import type { CatalogueRow } from '../../operations/catalogue/import-rows.js';
import { type Place, placeFiles } from '../../operations/catalogue/volumes.js';
import type { WritableBackend } from '../../tape/backend.js';
import { readChecked, readChunks, startChecksum } from '../checksum.js';
import { isChanged, removeSource, type Source, withSource } from './walk.js';

/** How files are archived. */
export interface BatchOptions {
  /** Of the catalogue rows. */
  spot?: string;
  /** Bytes that a volume takes before a new one is begun. */
  volumeSize: bigint;
  /** Remove each source file once it is verified. */
  move?: boolean;
}

/** What became of the files; it grows from batch to batch. */
export interface BatchResult {
  archived: number;
  bytes: bigint;
  /** On tape already with the same bytes: by the catalogue, and where sources are removed by reading their copies back. */
  unchanged: number;
  /** A line each: path and reason. */
  failed: string[];
}

/** Sources that are archived together, and where to tell what becomes of them. */
interface BatchWork {
  sources: readonly Source[];
  result: BatchResult;
  signal: AbortSignal;
  /** Called for each source that was written, or compared with what is on tape. */
  onSource: (source: Source) => void;
}

/**
 * Takes sources all the way: compared with what is on tape, written, registered, read back, registered again, removed.
 * A file that fails goes no further, and holds up no other.
 * @throws the reason of the signal, what the database threw, and nothing that concerns one file only
 */
export async function archiveBatch(
  ctx: Context,
  backend: WritableBackend,
  options: BatchOptions,
  work: BatchWork,
): Promise<void> {
  await new ArchiveBatch(ctx, backend, options, work).run();
}

class ArchiveBatch {
  private readonly ctx: Context;
  private readonly backend: WritableBackend;
  private readonly options: BatchOptions;
  private readonly sources: readonly Source[];
  private readonly result: BatchResult;
  private readonly signal: AbortSignal;
  private readonly onSource: BatchWork['onSource'];

  constructor(ctx: Context, backend: WritableBackend, options: BatchOptions, work: BatchWork) {
    const { sources, result, signal, onSource } = work;
    this.onSource = onSource;
    this.ctx = ctx;
    this.backend = backend;
    this.options = options;
    this.sources = sources;
    this.result = result;
    this.signal = signal;
  }

  async run(): Promise<void> {
    const { fresh, lost, safe } = await this.sort();
    const written = await this.write([...fresh, ...lost]);
    const isFresh = isOneOf(fresh);
    const registered = await this.registerFresh(written.filter(isFresh));
    const others = written.filter((file) => !isFresh(file));
    const read = await this.verify([...registered, ...others], '');
    const lostIds = new Map(lost.map(({ path, id }) => [path, id]));
    const verified = await this.registerRead(read, ({ path }) => lostIds.get(path));
    this.result.archived += verified.length;
    for (const file of verified) this.result.bytes += file.size;
    const unchanged = this.options.move ? await this.verify(safe, DOUBT) : safe;
    this.result.unchanged += unchanged.length;
    // last, so that a source is never gone while the catalogue still counts on it; nothing goes on the catalogue's word
    if (this.options.move) {
      const { standing } = await this.keepStanding([...verified, ...unchanged]);
      await this.doEach(standing, removeSource);
    }
  }

  /** What was found on tape is ONTAPE, over ONDISK, as long as the catalogue has the same of it as before. @returns those of which it has */
  private async registerRead(read: readonly Written[], lostIdOf: LostIdOf): Promise<Written[]> {
    const { standing, known } = await this.keepStanding(read, lostIdOf);
    try {
      await this.register(standing, 'ONTAPE', { verified: this.ctx.now(), known });
      return standing;
    } catch (error) {
      if (!(error instanceof ImportError)) throw error;
      const { standing: left } = await this.keepStanding(standing, lostIdOf); // one that was changed in between
      if (left.length < standing.length) return await this.registerRead(left, lostIdOf);
      throw error;
    }
  }

  /**
   * Of files that were found on tape, those that the catalogue still has there by their paths, and offers: one that somebody has renamed is not
   * to be registered once more, and the source of one that is withdrawn may soon be all that there is.
   * @param lostIdOf of a file that had no place, since its row is to say where it is: its id
   */
  private async keepStanding(
    files: readonly Written[],
    lostIdOf: LostIdOf = () => undefined,
  ): Promise<{ standing: Written[]; known: KnownFile[] }> {
    const paths = files.map(({ path }) => path);
    const found = await readKnown(this.ctx, paths);
    const [standing, known]: [Written[], KnownFile[]] = [[], []];
    for (const written of files) {
      const { file, path, volume, position } = written;
      const lostId = lostIdOf(written);
      const now = found.get(path);
      const isThere = now?.place?.volume === volume && now.place.position === position;
      if (now && !now.isWithdrawn && (lostId === undefined ? isThere : now.id === lostId && now.place === null)) {
        standing.push(written);
        known.push(now);
      } else {
        const what = 'was renamed or withdrawn, or got another place, while it was read back';
        this.result.failed.push(`${file}: ${path} ${what}; run it again`);
      }
    }
    return { standing, known };
  }

  /**
   * Which sources are to be written; which the catalogue has as ONTAPE without a place, so that their copy cannot be
   * had; and which are on tape already, with the same bytes.
   */
  private async sort(): Promise<{ fresh: Source[]; lost: (Source & { id: bigint })[]; safe: Written[] }> {
    const paths = this.sources.map((source) => source.path);
    const known = await readKnown(this.ctx, paths);
    const clashes = await findFolderClashes(this.ctx, paths); // before anything of them is on tape
    const fresh: Source[] = [];
    const lost: (Source & { id: bigint })[] = [];
    const safe: Written[] = [];
    await this.doEach(this.sources, async (source) => {
      const old = known.get(source.path);
      const clash = clashes.get(source.path);
      if (!old && clash !== undefined) throw new Error(clash);
      if (old?.isWithdrawn) {
        throw new Error(`${quote(source.path)} is withdrawn: reinstate it, or forget it, and run it again`);
      }
      if (!old || !isOnTape(old)) return void fresh.push(source);
      const checksum = await checkSame(source, old, this.signal);
      this.onSource(source);
      if (old.place) safe.push({ ...source, ...old.place, checksum });
      else lost.push({ ...source, id: old.id });
    });
    return { fresh, lost, safe };
  }

  private async write(sources: readonly Source[]): Promise<Written[]> {
    const sizes = sources.map((source) => source.size);
    const places = await placeFiles(this.ctx, { sizes, volumeSize: this.options.volumeSize });
    const written: Written[] = [];
    await this.doEach(sources, async (source, index) => {
      written.push(await writeSource(this.backend, source, places[index] as Place, this.signal));
      this.onSource(source);
    });
    return await this.sync(written);
  }

  /** Nothing is registered before it is durable. */
  private async sync(written: readonly Written[]): Promise<Written[]> {
    const durable = new Set(written.map(({ volume }) => volume));
    for (const volume of durable) {
      try {
        await this.backend.sync?.(volume, this.signal);
      } catch (error) {
        if (this.signal.aborted) throw error;
        durable.delete(volume);
        for (const { file } of written.filter((lost) => lost.volume === volume)) {
          this.result.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    return written.filter(({ volume }) => durable.has(volume));
  }

  /** @param doubt put before the reason of a file whose copy is not right */
  private async verify(files: readonly Written[], doubt: string): Promise<Written[]> {
    const fail = ({ file }: Written, error: unknown) => {
      this.result.failed.push(`${file}: ${doubt}${messageOf(error)}`);
    };
    return await readBack(this.backend, files, { signal: this.signal, fail });
  }

  /**
   * While these were written, an import may have said something else of their paths. Such a file is told, and what was written of it
   * counts for nothing: no row has its place, which nobody else is given. The others are registered all the same.
   * @returns those that are
   */
  private async registerFresh(files: readonly Written[]): Promise<Written[]> {
    const isOpen = await this.tellOvertaken(files);
    const open = files.filter(isOpen);
    try {
      await this.register(open, 'UNVERIFIED', { verified: null });
      return open;
    } catch (error) {
      if (!(error instanceof ImportError)) throw error;
      const left = open.filter(await this.tellOvertaken(open)); // one that came in between
      if (left.length < open.length) return await this.registerFresh(left);
      throw new Error(
        `what was written is not in the catalogue; run it again, which writes it anew: ${error.message}`,
        {
          cause: error,
        },
      );
    }
  }

  /** @returns whether nothing else is said of a file by now; the others are told as failed */
  private async tellOvertaken(files: readonly Written[]): Promise<(file: Written) => boolean> {
    const paths = files.map((file) => file.path);
    const known = await readKnown(this.ctx, paths);
    const clashes = await findFolderClashes(this.ctx, paths);
    const reasonOf = ({ path }: Written): string | undefined => {
      const old = known.get(path);
      if (old && isOnTape(old)) return `${path} came to be on tape; run it again, which compares the two`;
      const clash = clashes.get(path);
      return clash === undefined ? undefined : `${clash}: give one of them another name, and run it again`;
    };
    const overtaken = new Set<Written>();
    for (const file of files) {
      const reason = reasonOf(file);
      if (reason === undefined) continue;
      overtaken.add(file);
      const place = `${file.volume}, position ${file.position}`;
      this.result.failed.push(
        `${file.file}: while it was written, ${reason} (at ${place} are bytes that nothing refers to)`,
      );
    }
    return (file) => !overtaken.has(file);
  }

  /** @param known as the files are still to be @throws ImportError */
  private async register(
    files: readonly Written[],
    stage: CatalogueRow['stage'],
    { verified, known = [] }: { verified: string | null; known?: readonly KnownFile[] },
  ): Promise<void> {
    const spotName = this.options.spot ?? null;
    const rows = files.map((file, index) => ({ ...file, line: index + 1, stage, verified, spotName }));
    await registerRows(this.ctx, rows, known);
  }

  /** One file after the other; what fails is told in the result, unless all is to stop. */
  private async doEach<S extends Source>(
    sources: readonly S[],
    work: (source: S, index: number) => Promise<void>,
  ): Promise<void> {
    for (const [index, source] of sources.entries()) {
      try {
        await work(source, index);
      } catch (error) {
        if (this.signal.aborted) throw error;
        this.result.failed.push(`${source.file}: ${messageOf(error)}`);
      }
    }
  }
}

/** Undefined: it had a place, or is new. */
type LostIdOf = (file: Written) => bigint | undefined;

const DOUBT = 'on tape already by the catalogue, but its tape copy cannot be confirmed: ';

function isOneOf(sources: readonly Source[]): (source: Source) => boolean {
  const files = new Set(sources.map((source) => source.file));
  return (source) => files.has(source.file);
}

function isOnTape(file: KnownFile): boolean {
  return file.stage === 'ONTAPE' || file.stage === 'RESTORING' || file.stage === 'RESTORED';
}

/** A source of which there is a tape copy. */
interface Written extends Source, Place {
  /** Of the bytes that were handed to the tape. */
  checksum: string;
}

/** @throws Error when the source changed while it was read; the place is taken all the same */
async function writeSource(
  backend: WritableBackend,
  source: Source,
  place: Place,
  signal: AbortSignal,
): Promise<Written> {
  return await withSource(source, async (handle) => {
    const checksum = await startChecksum(null);
    const bytes = async function* () {
      for await (const chunk of readChunks(handle)) {
        checksum.update(chunk);
        yield chunk;
      }
    };
    const size = await backend.write(place.volume, place.position, bytes(), signal);
    if (size !== source.size) throw new Error(`it changed from ${source.size} to ${size} bytes while it was read`);
    if (isChanged(source, await handle.stat({ bigint: true }))) throw new Error('it changed while it was read');
    return { ...source, ...place, checksum: checksum.digest() };
  });
}

/**
 * Reads tape copies back, volume by volume, each volume mounted once and read in order of its positions.
 * @param fail is told of each copy that has other bytes than were written, or that cannot be read
 * @returns the files whose copies are right
 * @throws the reason of the signal
 */
async function readBack(
  backend: WritableBackend,
  files: readonly Written[],
  how: { signal: AbortSignal; fail: (file: Written, error: unknown) => void },
): Promise<Written[]> {
  const byVolume = new Map<string, Written[]>();
  for (const file of files) byVolume.set(file.volume, [...(byVolume.get(file.volume) ?? []), file]);
  const right: Written[] = [];
  for (const [name, group] of byVolume) {
    const bad = new Set<Written>();
    const fail = (file: Written, error: unknown) => {
      how.signal.throwIfAborted();
      if (!bad.has(file)) how.fail(file, error);
      bad.add(file);
    };
    try {
      await readVolumeBack(backend, { name, files: group }, { ...how, fail });
    } catch (error) {
      for (const file of group) fail(file, error);
    }
    right.push(...group.filter((file) => !bad.has(file)));
  }
  return right;
}

async function readVolumeBack(
  backend: WritableBackend,
  { name, files }: { name: string; files: readonly Written[] },
  { signal, fail }: { signal: AbortSignal; fail: (file: Written, error: unknown) => void },
): Promise<void> {
  const tell = () => 'reading it back from tape gave another checksum';
  const volume = await backend.mount(name, 'archive', signal);
  try {
    for (const file of [...files].sort((a, b) => (a.position < b.position ? -1 : 1))) {
      await readChecked(volume, file, { signal, tell }).catch((error: unknown) => fail(file, error));
    }
  } finally {
    await volume.unmount();
  }
}

/** What a source fails for that has changed since it was archived. */
export const OTHER_BYTES = 'is on tape already, with other bytes';

/**
 * @returns the checksum of the source, with which its tape copy can be read back
 * @throws Error when the catalogue has other bytes under the source's path, or it cannot be told
 */
async function checkSame(source: Source, known: KnownFile, signal: AbortSignal): Promise<string> {
  const other = `${source.path} ${OTHER_BYTES}`;
  if (known.checksum === null) throw new Error(`${source.path} is on tape already, and has no checksum to compare`);
  if (source.size !== known.size) throw new Error(other);
  const sums = { known: await startChecksum(known.checksum), own: await startChecksum(null) };
  await withSource(source, async (handle) => {
    for await (const chunk of readChunks(handle)) {
      signal.throwIfAborted();
      sums.known.update(chunk);
      sums.own.update(chunk);
    }
  });
  if (sums.known.digest() !== known.checksum) throw new Error(other);
  return sums.own.digest();
}

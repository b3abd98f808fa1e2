/** Files that are archived together: each step is done for all of them before the next one begins. */
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import { type KnownFile, readKnown } from '../../operations/catalogue/files.js';
import { importRows } from '../../operations/catalogue/import.js';
import type { CatalogueRow } from '../../operations/catalogue/import-rows.js';
import { type Place, placeFiles } from '../../operations/catalogue/volumes.js';
import type { TapeBackend } from '../../tape/backend.js';
import { removeSource, type Source } from './source.js';
import { checkSame, verifyWritten, type Written, writeSource } from './tape.js';

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
  /** On tape already, with the same bytes. */
  unchanged: number;
  /** A line each: path and reason. */
  failed: string[];
}

/** Sources that are archived together, and where to tell what becomes of them. */
export interface BatchWork {
  sources: readonly Source[];
  result: BatchResult;
  signal: AbortSignal;
}

/**
 * Takes sources all the way: compared with what is on tape, written, registered, read back, registered again, removed.
 * A file that fails goes no further, and holds up no other.
 * @throws the reason of the signal, what the database threw, and nothing that concerns one file only
 */
export async function archiveBatch(
  ctx: Context,
  backend: TapeBackend,
  options: BatchOptions,
  work: BatchWork,
): Promise<void> {
  await new ArchiveBatch(ctx, backend, options, work).run();
}

class ArchiveBatch {
  private readonly ctx: Context;
  private readonly backend: TapeBackend;
  private readonly options: BatchOptions;
  private readonly sources: readonly Source[];
  private readonly result: BatchResult;
  private readonly signal: AbortSignal;

  constructor(ctx: Context, backend: TapeBackend, options: BatchOptions, { sources, result, signal }: BatchWork) {
    this.ctx = ctx;
    this.backend = backend;
    this.options = options;
    this.sources = sources;
    this.result = result;
    this.signal = signal;
  }

  async run(): Promise<void> {
    const { fresh, safe } = await this.sort();
    const written = await this.write(fresh);
    await this.register(written, 'UNVERIFIED', null);
    const verified = await this.verify(written);
    const now = this.ctx.now();
    await this.register(verified, 'ONDISK', now);
    await this.register(verified, 'ONTAPE', now);
    this.result.archived += verified.length;
    for (const file of verified) this.result.bytes += file.size;
    // last, so that a source is never gone while the catalogue still counts on it
    if (this.options.move) await this.doEach([...verified, ...safe], removeSource);
  }

  /** Which sources are to be written, and which are on tape already with the same bytes. */
  private async sort(): Promise<{ fresh: Source[]; safe: Source[] }> {
    const paths = this.sources.map((source) => source.path);
    const known = await readKnown(this.ctx, paths);
    const fresh: Source[] = [];
    const safe: Source[] = [];
    await this.doEach(this.sources, async (source) => {
      const old = known.get(source.path);
      if (!old || !isOnTape(old)) fresh.push(source);
      else {
        await checkSame(source, old, this.signal);
        safe.push(source);
        this.result.unchanged++;
      }
    });
    return { fresh, safe };
  }

  private async write(sources: readonly Source[]): Promise<Written[]> {
    const sizes = sources.map((source) => source.size);
    const places = await placeFiles(this.ctx, { sizes, volumeSize: this.options.volumeSize });
    const written: Written[] = [];
    await this.doEach(sources, async (source, index) => {
      written.push(await writeSource(this.backend, source, places[index] as Place, this.signal));
    });
    return written;
  }

  private async verify(files: readonly Written[]): Promise<Written[]> {
    const verified: Written[] = [];
    await this.doEach(files, async (file) => {
      await verifyWritten(this.backend, file, this.signal);
      verified.push(file);
    });
    return verified;
  }

  private async register(
    files: readonly Written[],
    stage: CatalogueRow['stage'],
    verified: string | null,
  ): Promise<void> {
    const spotName = this.options.spot ?? null;
    const rows = files.map((file, index) => ({ ...file, line: index + 1, stage, verified, spotName }));
    await importRows(this.ctx, rows);
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

function isOnTape(file: KnownFile): boolean {
  return file.stage === 'ONTAPE' || file.stage === 'RESTORING' || file.stage === 'RESTORED';
}

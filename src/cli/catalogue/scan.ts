/** The command `scan` adds the files on a cartridge to the catalogue, with their positions. */
import { Readable } from 'node:stream';
import type { Command } from 'commander';
import { messageOf, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { printable } from '../../core/text/printable.js';
import { attributesOf } from '../../domain/catalogue/attributes.js';
import type { Context } from '../../domain/context.js';
import type { Reject } from '../../domain/import/import-incoming.js';
import { openContext } from '../connection/context.js';
import { CommandError, UsageError } from '../terminal/failure.js';
import { environment, onInterrupt } from '../terminal/io.js';
import { type OutputOptions, printJson, printLine, printToStderr } from '../terminal/output.js';
import { Rejects, type SkipOptions } from './rejects.js';

export function register(program: Command): void {
  program
    .command('scan <volume>')
    .option(
      '--library <name>',
      'library of the cartridge; required for a new volume if there are several LTFS libraries',
    )
    .option('--drive <name>', 'mount the cartridge in this drive (default: a free drive)')
    .option('--prefix <path>', 'register only files below this archive path')
    .option('--spot <name>', 'storage spot of the files')
    .option('--skip-invalid', 'skip files whose names cannot be restored, and write these names to a file')
    .option('--rejects <file>', 'with --skip-invalid: new file for the skipped names')
    .action((volume, options) => scanVolume(volume, options));
}

interface ScanOptions extends OutputOptions, SkipOptions {
  library?: string;
  drive?: string;
  prefix?: string;
  spot?: string;
}

interface ScanCounts {
  files: number;
  unchanged: number;
  skipped: number;
}

async function scanVolume(volume: string, options: ScanOptions): Promise<void> {
  const abort = new AbortController();
  onInterrupt(() => abort.abort(new CommandError('interrupted; nothing was registered')));
  const counts: ScanCounts = { files: 0, unchanged: 0, skipped: 0 };
  const rejects = await Rejects.open(options, undefined);
  let isImported = false;
  const registered = await registerFiles(volume, options, { counts, rejects }, abort.signal)
    .then(async (done) => {
      await rejects?.write(done.rejects ?? []);
      isImported = true;
      return done;
    })
    .finally(() => rejects?.end({ isImported }));
  const { added, updated } = registered;
  const result = { ...counts, added, updated, ...rejects?.facts };
  if (options.json) return printJson(result);
  printLine(
    `${plural(counts.files, 'file')} on ${printable(volume)}: ${added} added, ${updated} updated, ${counts.unchanged} unchanged`,
  );
  rejects?.print();
}

async function registerFiles(
  volume: string,
  options: ScanOptions,
  { counts, rejects }: { counts: ScanCounts; rejects: Rejects | undefined },
  signal: AbortSignal,
): Promise<{ added: number; updated: number; rejects?: Reject[] }> {
  const ctx = await openContext();
  const { importRows } = await import('../../domain/import/import.js');
  const { readRows } = await import('../../domain/import/import-rows.js');
  const { name, library } = await findLibrary(ctx, volume, options.library);
  const mounted = await (options.drive === undefined
    ? library.mountAnywhere(volume, signal)
    : library.mount(volume, options.drive, signal));
  let unmounting: Promise<void> | undefined;
  const unmount = () => {
    // only print an unmount error: the scan can succeed without the unmount, because the next mount moves the cartridge
    // back to its slot
    unmounting ??= mounted.unmount().catch((error: unknown) => printToStderr(messageOf(error)));
    return unmounting;
  };
  try {
    const onSkip = (file: string, why: string) => {
      counts.skipped++;
      printToStderr(`skipped: ${printable(file)} ${why}`);
    };
    const files = mounted.list({ below: options.prefix, signal, onSkip });
    const row = { volume, library: name, spot_name: options.spot };
    const lines = linesOf(ctx, files, { row, counts });
    const first = await lines.next();
    if (first.done) return { added: 0, updated: 0 }; // an import would reject an empty list
    const allLines = async function* () {
      yield first.value;
      yield* lines;
      await unmount();
    };
    const rows = readRows(Readable.from(allLines()));
    const { skipInvalid } = options;
    return await importRows(ctx, rejects ? rejects.filter(rows) : rows, { wanted: signal, skipInvalid });
  } finally {
    await unmount();
  }
}

async function findLibrary(ctx: Context, volume: string, given: string | undefined) {
  const { readLibraries } = await import('../../domain/libraries/libraries.js');
  const { findVolume, describeRetired } = await import('../../domain/catalogue/volumes.js');
  const { parseSettings } = await import('../../tape/kind.js');
  const { ltfs } = await import('../../tape/ltfs/index.js');
  const libraries = await readLibraries(ctx);
  const record = await findVolume(ctx, volume);
  if (record && record.retiredAt !== null) throw new CommandError(describeRetired(volume, record.retiredReason));
  const suitable = libraries.filter(({ kind }) => kind === 'ltfs');
  const known = libraries.find((library) => library.id === record?.libraryId);
  const found =
    given === undefined
      ? (known ?? (suitable.length === 1 ? suitable[0] : undefined))
      : libraries.find(({ name }) => name === given);
  if (!found)
    throw new UsageError(
      describeMissing(
        given,
        suitable.map(({ name }) => name),
      ),
    );
  if (known && known !== found) {
    throw new CommandError(`volume ${quote(volume)} is in library ${quote(known.name)}, not in ${quote(found.name)}`);
  }
  if (found.kind !== 'ltfs') {
    throw new CommandError(`library ${quote(found.name)} has type ${found.kind}: scan needs a library of type ltfs`);
  }
  const site = { name: found.name, dataDir: ctx.config.dataDir, env: environment() };
  return { name: found.name, library: ltfs.create(parseSettings(ltfs.settings, found.settings), site) };
}

function describeMissing(given: string | undefined, suitable: readonly string[]): string {
  const known =
    suitable.length === 0 ? 'there is no library of type ltfs' : `libraries of type ltfs: ${suitable.join(', ')}`;
  return given === undefined ? `--library is required; ${known}` : `there is no library ${quote(given)}; ${known}`;
}

const BATCH = 1000;

interface RowSettings {
  row: { volume: string; library: string; spot_name: string | undefined };
  counts: ScanCounts;
}

interface CartridgeFile {
  path: string;
  size: bigint;
  position: bigint;
  mtimeNs: bigint;
}

/**
 * Yields import rows for the files on a cartridge. Skips files that the catalogue already contains at the same tape
 * position.
 */
async function* linesOf(
  ctx: Context,
  files: AsyncIterable<CartridgeFile>,
  { row, counts }: RowSettings,
): AsyncGenerator<Buffer> {
  const { readPositions } = await import('../../domain/catalogue/tape-files.js');
  for await (const batch of inBatches(files)) {
    const known = await readPositions(
      ctx,
      batch.map(({ path }) => path),
      row.volume,
    );
    const lines: string[] = [];
    for (const { path, size, position, mtimeNs } of batch) {
      const there = known.get(path);
      const isSame = there?.volume === row.volume && there.position === position && there.size === size;
      counts.files++;
      if (isSame) counts.unchanged++;
      else lines.push(lineOf({ path, size, position, mtimeNs }, { row, isNew: there === undefined }));
    }
    if (lines.length > 0) yield Buffer.from(lines.join(''));
  }
}

/**
 * Sets the stage only if the file is new to the catalogue, because a cartridge does not show whether its files have
 * other copies.
 */
function lineOf(
  { path, size, position, mtimeNs }: CartridgeFile,
  { row, isNew }: Pick<RowSettings, 'row'> & { isNew: boolean },
): string {
  const { mtime } = attributesOf({ mode: 0n, mtimeNs, uid: 0n, gid: 0n });
  const line = { path, size: String(size), position: String(position), ...row, ...(mtime === null ? {} : { mtime }) };
  return `${JSON.stringify(isNew ? { ...line, stage: 'T' } : line)}\n`;
}

async function* inBatches<T>(items: AsyncIterable<T>): AsyncGenerator<T[]> {
  let batch: T[] = [];
  for await (const item of items) {
    batch.push(item);
    if (batch.length < BATCH) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

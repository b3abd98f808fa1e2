/**
 * Opens the file that an import reads. If another system wrote the list, options of the command supply the values that
 * are not in the list.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { messageOf } from '../../core/errors.js';
import type { RowError } from '../../domain/import/import-lines.js';
import { type CatalogueRow, type RowSource, readWith } from '../../domain/import/import-rows.js';
import { createFindReader, type ListFormat, listFormats, type Skipped } from '../../domain/import/lists.js';
import {
  createInventoryReader,
  type InventorySettings,
  type Manifest,
  type ManifestFile,
  parseManifest,
} from '../../domain/import/s3-inventory.js';
import { CommandError, optionOf, UsageError } from '../terminal/failure.js';
import { stdin } from '../terminal/io.js';

export interface ImportSource {
  file: string;
  size: number | undefined;
  /** Opens the file for reading. The file can be opened only once. */
  read(): Readable;
}

export interface OpenList {
  size: number | undefined;
  /**
   * Reads the rows of the list. The list can be read only once.
   * @param meter wraps a stream in order to count the bytes that the import reads
   */
  rows(meter: (source: Readable) => Readable): RowSource;
  skipped: Skipped;
  nameLines(message: string): string;
}

/** @param file the file's path, or `-` for standard input */
export async function openSource(file: string): Promise<ImportSource> {
  if (file === '-') return { file, size: undefined, read: stdin };
  const stats = await stat(file);
  return { file, size: stats.isFile() ? stats.size : undefined, read: () => createReadStream(file) };
}

/** Options for importing a list that another system wrote. */
export interface ListOptions {
  volume?: string;
  library?: string;
  prefix?: string;
  strip?: string;
  spot?: string;
  storageClass?: string;
}

const LIST_OPTIONS = ['volume', 'library', 'prefix', 'strip', 'spot', 'storageClass'] as const;

/**
 * Rejects options that are valid only for a list from another system.
 * @throws UsageError
 */
export function refuseListOptions(options: ListOptions): void {
  const given = LIST_OPTIONS.find((option) => options[option] !== undefined);
  if (given === undefined) return;
  throw new UsageError(`${optionOf(given)} needs ${listFormats.map((each) => `--format ${each}`).join(' or ')}`);
}

export async function openList(source: ImportSource, format: ListFormat, options: ListOptions): Promise<OpenList> {
  const settings = readSettings(format, options);
  const skipped: Skipped = new Map();
  if (format === 's3-inventory') return await openInventory(source, settings, skipped);
  return {
    size: source.size,
    rows: (meter) => readWith(meter(source.read()), createFindReader(settings)),
    skipped,
    nameLines: (message) => message,
  };
}

function readSettings(format: ListFormat, options: ListOptions): InventorySettings {
  const { volume, library, spot, storageClass } = options;
  if (!volume) throw new UsageError(`--volume is required: a list in format ${format} does not name the volume`);
  if (storageClass !== undefined && format !== 's3-inventory') {
    throw new UsageError(`--storage-class needs --format s3-inventory, not ${format}`);
  }
  const storageClasses = storageClass?.split(',').map((name) => name.trim());
  const prefixes = { prefix: readPrefix('prefix', options), strip: readPrefix('strip', options) };
  return { volume, library, spot, storageClasses, ...prefixes };
}

function readPrefix(option: 'prefix' | 'strip', options: ListOptions): string {
  const prefix = options[option] ?? '/';
  if (!prefix.startsWith('/')) {
    throw new UsageError(`--${option} must be an absolute path, not ${JSON.stringify(prefix)}`);
  }
  return prefix.replace(/\/+$/, '');
}

/**
 * Maximum size in bytes of an S3 inventory's manifest. This size is far above a realistic manifest: a manifest that
 * lists 100,000 files has 20 MB.
 */
const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;

interface Part extends ManifestFile {
  file: string;
  /**
   * Line number of the file's first line. Lines are numbered consecutively across all files in the inventory. Infinity
   * if the import has not reached the file yet.
   */
  first: number;
}

/**
 * Opens an S3 inventory: a manifest and the files that the manifest lists.
 * @throws CommandError if the manifest or a listed file is invalid
 */
async function openInventory({ file }: ImportSource, settings: InventorySettings, skipped: Skipped): Promise<OpenList> {
  if (file === '-')
    throw new CommandError('an S3 inventory cannot be read from standard input: give the path of its manifest.json');
  const manifest = await readManifest(file);
  const parts: Part[] = [];
  for (const listed of manifest.files)
    parts.push({ ...listed, file: await findPart(file, listed), first: Number.POSITIVE_INFINITY });
  return {
    size: parts.reduce((sum, { size }) => sum + size, 0),
    rows: (meter) => readParts(parts, { manifest, settings, skipped, meter }),
    skipped,
    nameLines: (message) => message.replace(LINES, (_whole, numbers: string) => nameLines(parts, numbers)),
  };
}

const LINES = /(?<=^\s*)lines? (\d+(?: and \d+)*)(?=: | contain )/gm;

function nameLines(parts: readonly Part[], numbers: string): string {
  const named = numbers.split(' and ').map((text) => {
    const part = parts.findLast(({ first }) => first <= Number(text));
    return part ? `${part.file} line ${Number(text) - part.first + 1}` : `line ${text}`;
  });
  return named.join(' and ');
}

async function readManifest(file: string): Promise<Manifest> {
  const { size } = await stat(file);
  if (size > MAX_MANIFEST_BYTES) {
    throw new CommandError(
      `${file} is too large for a manifest: ${size} bytes, expected at most ${MAX_MANIFEST_BYTES}`,
    );
  }
  try {
    return parseManifest(await readFile(file, 'utf8'));
  } catch (error) {
    throw new CommandError(`${file} is not the manifest of an S3 inventory in CSV: ${messageOf(error)}`);
  }
}

/**
 * Returns the path of a file in the inventory. The manifest contains the file's key in the bucket. Searches for the
 * file in the manifest's directory, and in nearby directories named `data`. Then tries the key's path below each parent
 * directory of the manifest.
 */
async function findPart(manifest: string, { key, size }: ManifestFile): Promise<string> {
  const directory = path.dirname(path.resolve(manifest));
  const name = path.posix.basename(key);
  const above = key
    .split('/')
    .map((_part, depth) => path.join(directory, ...new Array<string>(depth + 1).fill('..'), key));
  const candidates = [
    path.join(directory, name),
    path.join(directory, 'data', name),
    path.join(directory, '..', 'data', name),
    ...above,
  ];
  for (const candidate of candidates) {
    const found = await stat(candidate).catch(() => undefined);
    if (!found?.isFile()) continue;
    if (found.size === size) return candidate;
    throw new CommandError(`${candidate} has ${found.size} bytes, but the manifest ${manifest} requires ${size}`);
  }
  throw new CommandError(
    `cannot find ${key}, which ${manifest} lists, in the manifest's directory or at ${candidates.at(-1)}`,
  );
}

async function* readParts(
  parts: readonly Part[],
  {
    manifest,
    settings,
    skipped,
    meter,
  }: {
    manifest: Manifest;
    settings: InventorySettings;
    skipped: Skipped;
    meter: (source: Readable) => Readable;
  },
): AsyncGenerator<CatalogueRow | RowError> {
  let lines = 0;
  for (const part of parts) {
    part.first = lines + 1;
    const md5 = createHash('md5');
    const bytes = Readable.from(hashed(meter(createReadStream(part.file)), md5));
    lines += yield* readWith(bytes, createInventoryReader(manifest, settings, skipped), part.first - 1);
    const found = md5.digest('hex');
    if (part.md5 === null || found === part.md5) continue;
    throw new CommandError(
      `${part.file} has MD5 ${found}, but the manifest requires ${part.md5}: the file is damaged or from another inventory`,
    );
  }
}

async function* hashed(source: Readable, md5: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    md5.update(chunk);
    yield chunk;
  }
}

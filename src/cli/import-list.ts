/** The file of an import, and lists of other systems, whose missing values come from options. */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { messageOf } from '../core/errors.js';
import type { RowError } from '../domain/import/import-lines.js';
import { type CatalogueRow, type RowSource, readWith } from '../domain/import/import-rows.js';
import { createFindReader, type ListFormat, listFormats, type Skipped } from '../domain/import/lists.js';
import {
  createInventoryReader,
  type InventorySettings,
  type Manifest,
  type ManifestFile,
  parseManifest,
} from '../domain/import/s3-inventory.js';
import { CommandError, optionOf, UsageError } from './terminal/failure.js';
import { stdin } from './terminal/io.js';

export interface ImportSource {
  file: string;
  size: number | undefined;
  /** To be called once. */
  read(): Readable;
}

export interface OpenList {
  size: number | undefined;
  /** To be called once. @param meter what is read goes through it */
  rows(meter: (source: Readable) => Readable): RowSource;
  skipped: Skipped;
  /** A message that names lines, with the files of which they are. */
  nameLines(message: string): string;
}

/** @param file `-` is standard input */
export async function openSource(file: string): Promise<ImportSource> {
  if (file === '-') return { file, size: undefined, read: stdin };
  const stats = await stat(file);
  return { file, size: stats.isFile() ? stats.size : undefined, read: () => createReadStream(file) };
}

/** What the command was given beside the file. */
export interface ListOptions {
  volume?: string;
  library?: string;
  prefix?: string;
  strip?: string;
  spot?: string;
  storageClass?: string;
}

const LIST_OPTIONS = ['volume', 'library', 'prefix', 'strip', 'spot', 'storageClass'] as const;

/** Rows of CSV and JSON Lines say all of it themselves. @throws UsageError */
export function refuseListOptions(options: ListOptions): void {
  const given = LIST_OPTIONS.find((option) => options[option] !== undefined);
  if (given === undefined) return;
  throw new UsageError(
    `${optionOf(given)} is for lists of other systems: add ${listFormats.map((each) => `--format ${each}`).join(' or ')}`,
  );
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
  if (!volume)
    throw new UsageError(`--volume is missing: a list of the format ${format} does not say which volume has the files`);
  if (storageClass !== undefined && format !== 's3-inventory') {
    throw new UsageError(`--storage-class is for s3-inventory, and the list is ${format}`);
  }
  const storageClasses = storageClass?.split(',').map((name) => name.trim());
  const folders = { prefix: readFolder('prefix', options), strip: readFolder('strip', options) };
  return { volume, library, spot, storageClasses, ...folders };
}

/** Without a slash at its end; empty for none. */
function readFolder(option: 'prefix' | 'strip', options: ListOptions): string {
  const folder = options[option] ?? '/';
  if (!folder.startsWith('/')) {
    throw new UsageError(`--${option} must begin with "/", not be ${JSON.stringify(folder)}`);
  }
  return folder.replace(/\/+$/, '');
}

/** A manifest of 100,000 files has 20 MB. */
const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;

interface Part extends ManifestFile {
  file: string;
  /** The number of its first line among those of all parts; infinite before it is read. */
  first: number;
}

/** @throws CommandError where the manifest, or what it lists, is not as it should be */
async function openInventory({ file }: ImportSource, settings: InventorySettings, skipped: Skipped): Promise<OpenList> {
  if (file === '-')
    throw new CommandError('an inventory of S3 is given as its manifest.json, beside which its files are');
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

/** How faults begin: `line 3: …`, `lines 3 and 70000: …` */
const LINES = /(?<=^\s*)lines? (\d+(?: and \d+)*)(?=: )/gm;

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
    throw new CommandError(`${file} is no manifest: it has ${size} bytes, more than ${MAX_MANIFEST_BYTES}`);
  }
  try {
    return parseManifest(await readFile(file, 'utf8'));
  } catch (error) {
    throw new CommandError(`${file} is no manifest of an S3 inventory in CSV: ${messageOf(error)}`);
  }
}

/**
 * The keys of a manifest are of the bucket that it is written to. Its files are where a copy of the bucket has them, seen from the
 * manifest, or beside it.
 */
async function findPart(manifest: string, { key, size }: ManifestFile): Promise<string> {
  const folder = path.dirname(path.resolve(manifest));
  const name = path.posix.basename(key);
  const above = key
    .split('/')
    .map((_part, depth) => path.join(folder, ...new Array<string>(depth + 1).fill('..'), key));
  const places = [
    path.join(folder, name),
    path.join(folder, 'data', name),
    path.join(folder, '..', 'data', name),
    ...above,
  ];
  for (const place of places) {
    const found = await stat(place).catch(() => undefined);
    if (!found?.isFile()) continue;
    if (found.size === size) return place;
    throw new CommandError(`${place} has ${found.size} bytes, and ${manifest} says ${size}`);
  }
  throw new CommandError(`${key} of ${manifest} is not here: it was looked for beside it, and at ${places.at(-1)}`);
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
      `${part.file} has the MD5 ${found}, and the manifest says ${part.md5}: it is damaged, or another one`,
    );
  }
}

async function* hashed(source: Readable, md5: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    md5.update(chunk);
    yield chunk;
  }
}

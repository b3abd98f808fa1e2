/** An inventory of S3 on this host: its manifest, and the files that it lists, wherever they were put with it. */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline, type Readable, Transform } from 'node:stream';
import { messageOf } from '../errors.js';
import type { RowError } from '../operations/catalogue/import-lines.js';
import type { CatalogueRow } from '../operations/catalogue/import-rows.js';
import type { Skipped } from '../operations/catalogue/lists/list-rows.js';
import { readList } from '../operations/catalogue/lists/read-list.js';
import {
  createInventoryReader,
  type InventorySettings,
  type Manifest,
  type ManifestFile,
  parseManifest,
} from '../operations/catalogue/lists/s3-inventory.js';
import { CommandError } from './failure.js';
import type { ImportSource, OpenList } from './import-source.js';

/** A manifest of 100,000 files has 20 MB. */
const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;

interface Part extends ManifestFile {
  /** Where it is here. */
  file: string;
  /** The number of its first line among those of all parts. */
  first: number;
}

/** @throws CommandError where the manifest, or what it lists, is not as it should be */
export async function openInventory(
  { file }: ImportSource,
  settings: InventorySettings,
  skipped: Skipped,
): Promise<OpenList> {
  if (file === '-')
    throw new CommandError('an inventory of S3 is given as its manifest.json, beside which its files are');
  const manifest = await readManifest(file);
  const parts: Part[] = [];
  for (const listed of manifest.files) parts.push({ ...listed, file: await findPart(file, listed), first: 1 });
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
    const bytes = hashed(meter(createReadStream(part.file)), md5);
    lines += yield* readList(bytes, createInventoryReader(manifest, settings, skipped), part.first);
    const found = md5.digest('hex');
    if (part.md5 === null || found === part.md5) continue;
    throw new CommandError(
      `${part.file} has the MD5 ${found}, and the manifest says ${part.md5}: it is damaged, or another one`,
    );
  }
}

/** What fails in the source fails what reads it. */
function hashed(source: Readable, md5: Hash): Readable {
  const tap = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      md5.update(chunk);
      done(null, chunk);
    },
  });
  return pipeline(source, tap, () => {}) as Transform;
}

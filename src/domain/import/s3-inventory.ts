/**
 * Reads an Amazon S3 Inventory in CSV with its JSON manifest. Reads only each object's latest version, and skips delete
 * markers.
 */
import { z } from 'zod';
import { quote } from '../../core/errors.js';
import { parseZonedTime } from '../../core/time.js';
import { createCsvReader, RowError } from './import-lines.js';
import type { CatalogueRow, RowReader } from './import-rows.js';
import { countSkipped, type ListSettings, makeEntryRow, type Skipped } from './lists.js';

const keyProblem = 'must be the key of a file';
const sizeProblem = 'must be a number of bytes';
const md5Problem = 'must be 32 digits in hex';

const manifestFile = z
  .object({
    key: z
      .string(keyProblem)
      .refine((key) => !key.split('/').some((part) => ['', '.', '..'].includes(part)), keyProblem),
    size: z.int(sizeProblem).nonnegative(sizeProblem),
    MD5checksum: z
      .string(md5Problem)
      .regex(/^[0-9a-f]{32}$/i, md5Problem)
      .optional(),
  })
  .transform(({ key, size, MD5checksum }) => ({ key, size, md5: MD5checksum?.toLowerCase() ?? null }));

const manifestSchema = z.object(
  {
    sourceBucket: z.string('must be a name'),
    fileFormat: z.literal('CSV', 'must be "CSV"'),
    fileSchema: z.string('must contain the column names'),
    files: z.array(manifestFile, 'must be a list'),
  },
  'not a JSON object',
);

export type ManifestFile = z.infer<typeof manifestFile>;

export interface Manifest {
  bucket: string;
  schema: string[];
  files: ManifestFile[];
}

/** Parses an inventory's manifest. @throws Error that describes the invalid part of the manifest */
export function parseManifest(text: string): Manifest {
  const { data, error } = manifestSchema.safeParse(JSON.parse(text), { reportInput: true });
  if (!data) {
    const { path, message, input } = error.issues[0] ?? { path: [], message: 'is not valid' };
    const value = typeof input === 'string' ? input : (JSON.stringify(input) ?? 'nothing');
    throw new Error(path.length === 0 ? message : `${z.core.toDotPath(path)} ${message}, not ${quote(value)}`);
  }
  const schema = data.fileSchema.split(',').map((name) => name.trim());
  const missing = ['Bucket', 'Key', 'Size'].find((name) => !schema.includes(name));
  if (missing !== undefined) throw new Error(`fileSchema has no column ${missing}: ${quote(data.fileSchema)}`);
  return { bucket: data.sourceBucket, schema, files: data.files };
}

export interface InventorySettings extends ListSettings {
  storageClasses?: readonly string[] | undefined;
}

export function createInventoryReader(
  { bucket, schema }: Manifest,
  settings: InventorySettings,
  skipped: Skipped,
): RowReader {
  const csv = createCsvReader({ known: schema, needed: [], header: { names: schema, from: 'fileSchema' } });
  return {
    read: (line) => {
      const row = csv.read(line);
      if (!row || row instanceof RowError) return row;
      return readObject(row.line, row.fields, { bucket, settings, skipped });
    },
    end: csv.end,
  };
}

type S3Object = Partial<Record<string, string | null>>;

function readObject(
  line: number,
  object: S3Object,
  { bucket, settings, skipped }: { bucket: string; settings: InventorySettings; skipped: Skipped },
): CatalogueRow | RowError | undefined {
  const { Bucket, Key, Size, LastModifiedDate, StorageClass } = object;
  if (Bucket !== bucket) return new RowError(line, `the bucket must be ${quote(bucket)}, not ${quote(Bucket ?? '')}`);
  const key = decodeKey(Key ?? '');
  if (key === undefined) {
    return new RowError(line, `the key ${quote(Key ?? '')} is not URL-encoded UTF-8`, { namesake: undefined });
  }
  if (object.IsLatest === 'false') return countSkipped(skipped, 'versions that are not the latest');
  if (object.IsDeleteMarker === 'true') return countSkipped(skipped, 'delete markers');
  if (key.endsWith('/') && Size === '0') return countSkipped(skipped, 'directories');
  const { storageClasses } = settings;
  if (storageClasses && !storageClasses.includes(StorageClass ?? '')) {
    return countSkipped(skipped, 'objects of other storage classes');
  }
  const mtime = LastModifiedDate ? parseZonedTime(LastModifiedDate) : null;
  if (mtime === undefined) {
    return new RowError(line, `LastModifiedDate must be a time, not ${quote(LastModifiedDate ?? '')}`);
  }
  // keep the key's leading slash, so that checkRow rejects a path that begins with two slashes
  return makeEntryRow(line, { path: `/${key}`, size: Size ?? null, mtime, ...tagOf(object) }, settings);
}

/** Decodes an object's key, which the inventory contains in URL encoding with a plus sign for each space. */
function decodeKey(key: string): string | undefined {
  try {
    return decodeURIComponent(key.replaceAll('+', '%20'));
  } catch {
    return undefined;
  }
}

/**
 * Returns the MD5 checksum of an object, if known. The entity tag is the MD5 checksum if the object was uploaded in one
 * part without encryption by a KMS key or a customer key.
 */
function tagOf({ ETag, IsMultipartUploaded, EncryptionStatus }: S3Object): { checksum?: string } {
  const isMd5 = IsMultipartUploaded === 'false' && ['NOT-SSE', 'SSE-S3'].includes(EncryptionStatus ?? '');
  return isMd5 && /^[0-9a-f]{32}$/i.test(ETag ?? '') ? { checksum: `md5:${ETag}` } : {};
}

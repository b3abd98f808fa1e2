/**
 * Amazon S3 Inventory in CSV: a manifest (JSON) that names the columns, and files without a line of names that have the rows. Of a bucket with
 * versions only the latest counts, and none that is a mark of deletion.
 */
import { quote } from '../../../errors.js';
import { parseZonedTime } from '../../../time.js';
import { createCsvSplitter } from '../import-csv.js';
import { RowError } from '../import-lines.js';
import type { CatalogueRow, RowReader } from '../import-rows.js';
import { countSkipped, type ListSettings, makeEntryRow, type Skipped } from './list-rows.js';

/** What a manifest says. */
export interface Manifest {
  bucket: string;
  /** The columns of the files, in order. */
  schema: string[];
  files: ManifestFile[];
}

export interface ManifestFile {
  /** In the bucket to which the inventory is written. */
  key: string;
  /** Bytes, of the file as it is, gzipped. */
  size: number;
  /** In hex; null where the manifest has none. */
  md5: string | null;
}

/** @throws Error that says what is wrong with the manifest */
export function parseManifest(text: string): Manifest {
  const manifest = JSON.parse(text) as Record<string, unknown> | null;
  if (typeof manifest !== 'object' || manifest === null) throw new Error('it is no JSON object');
  const { sourceBucket, fileFormat, fileSchema, files } = manifest;
  if (fileFormat !== 'CSV') throw new Error(`fileFormat must be "CSV", not ${show(fileFormat)}`);
  if (typeof sourceBucket !== 'string') throw new Error(`sourceBucket must be a name, not ${show(sourceBucket)}`);
  if (typeof fileSchema !== 'string') throw new Error(`fileSchema must name the columns, not be ${show(fileSchema)}`);
  if (!Array.isArray(files)) throw new Error(`files must be a list, not ${show(files)}`);
  const schema = fileSchema.split(',').map((name) => name.trim());
  const missing = ['Bucket', 'Key', 'Size'].find((name) => !schema.includes(name));
  if (missing !== undefined) throw new Error(`fileSchema has no column ${missing}: ${quote(fileSchema)}`);
  return { bucket: sourceBucket, schema, files: files.map(readFile) };
}

function readFile(file: unknown, index: number): ManifestFile {
  const { key, size, MD5checksum } = (file ?? {}) as Record<string, unknown>;
  const at = `files[${index}]`;
  if (typeof key !== 'string' || key.split('/').some((part) => part === '' || part === '.' || part === '..')) {
    throw new Error(`${at}.key must be the key of a file, not ${show(key)}`);
  }
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
    throw new Error(`${at}.size must be a number of bytes, not ${show(size)}`);
  }
  if (MD5checksum === undefined) return { key, size, md5: null };
  if (typeof MD5checksum === 'string' && /^[0-9a-f]{32}$/i.test(MD5checksum)) {
    return { key, size, md5: MD5checksum.toLowerCase() };
  }
  throw new Error(`${at}.MD5checksum must be 32 digits in hex, not ${show(MD5checksum)}`);
}

const show = (value: unknown) => quote(typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing'));

export interface InventorySettings extends ListSettings {
  /** Takes objects of these storage classes alone. */
  storageClasses?: readonly string[] | undefined;
}

/** Of one file of an inventory. @param skipped is told what was left out */
export function createInventoryReader(
  { bucket, schema }: Manifest,
  settings: InventorySettings,
  skipped: Skipped,
): RowReader {
  const splitter = createCsvSplitter();
  return {
    read: (line) => {
      const record = splitter.read(line);
      if (!record || record instanceof RowError) return record;
      if (record.fields.length !== schema.length) {
        const problem = `there must be ${schema.length} fields, as in fileSchema, not ${record.fields.length}`;
        return new RowError(record.line, problem);
      }
      const object = Object.fromEntries(schema.map((name, index) => [name, record.fields[index] ?? '']));
      return readObject(record.line, object, { bucket, settings, skipped });
    },
    end: () => splitter.end(),
  };
}

type S3Object = Record<string, string>;

function readObject(
  line: number,
  object: S3Object,
  { bucket, settings, skipped }: { bucket: string; settings: InventorySettings; skipped: Skipped },
): CatalogueRow | RowError | undefined {
  const { Bucket, Key = '', Size = '', LastModifiedDate = '', StorageClass } = object;
  if (Bucket !== bucket) return new RowError(line, `the bucket must be ${quote(bucket)}, not ${quote(Bucket ?? '')}`);
  const key = decodeKey(Key);
  if (key === undefined) return new RowError(line, `the key ${quote(Key)} is not URL-encoded UTF-8`);
  if (object.IsLatest === 'false') return countSkipped(skipped, 'versions that are not the latest');
  if (object.IsDeleteMarker === 'true') return countSkipped(skipped, 'marks of deletion');
  if (key.endsWith('/') && Size === '0') return countSkipped(skipped, 'folders');
  const { storageClasses } = settings;
  if (storageClasses && !storageClasses.includes(StorageClass ?? '')) {
    return countSkipped(skipped, 'objects of other storage classes');
  }
  const mtime = LastModifiedDate === '' ? null : parseZonedTime(LastModifiedDate);
  if (mtime === undefined) return new RowError(line, `LastModifiedDate must be a time, not ${quote(LastModifiedDate)}`);
  const fields = { size: Size, mtime, ...tagOf(object) };
  // a slash at its beginning is part of the key, and no path of the catalogue has two of them
  return makeEntryRow(line, { path: `/${key}`, fields }, settings);
}

/** As a form in a browser encodes it: a space is a plus. */
function decodeKey(key: string): string | undefined {
  try {
    return decodeURIComponent(key.replaceAll('+', '%20'));
  } catch {
    return undefined;
  }
}

/** An entity tag is the MD5 of an object that came in one part, and is encrypted with no key of a customer's. */
function tagOf({ ETag = '', IsMultipartUploaded, EncryptionStatus = '' }: S3Object): { checksum?: string } {
  const isMd5 = IsMultipartUploaded === 'false' && ['NOT-SSE', 'SSE-S3'].includes(EncryptionStatus);
  return isMd5 && /^[0-9a-f]{32}$/i.test(ETag) ? { checksum: `md5:${ETag}` } : {};
}

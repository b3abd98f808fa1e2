/**
 * Looks up objects with one HEAD each. Lists would take fewer requests, but some providers' lists do not report
 * restores, and no list reports whether an object of Intelligent-Tiering is archived. If a HEAD does not show whether
 * an object is readable, a GET of its first byte decides.
 */
import { setMaxListeners } from 'node:events';
import type { Readable } from 'node:stream';
import type { HeadObjectCommandOutput } from '@aws-sdk/client-s3';
import { quote, TapeError } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import type { FileState } from '../staging.js';
import { failureOf, fileErrorOf, libraryErrorOf } from './failures.js';
import type { Prefix, S3Settings } from './settings.js';
import type { S3Calls } from './signed-requests.js';

/** Result of a lookup: undefined if there is no such object, or an error that concerns only this key. */
export type Sight = Seen | undefined | TapeError;

/**
 * @param keys the object keys, possibly with duplicates
 * @returns a result for each key
 * @throws LibraryError if the failure affects all keys
 */
export async function lookUp(
  calls: S3Calls,
  keys: readonly string[],
  settings: S3Settings,
  signal: AbortSignal,
): Promise<Map<string, Sight>> {
  const sights = new Map<string, Sight>();
  await eachAtOnce([...new Set(keys)], settings.concurrency, signal, async (key, each) => {
    sights.set(key, await headOf(calls, key, settings, each));
  });
  return sights;
}

/**
 * Reads the first byte of an object if its HEAD does not show whether the object is archived. Providers choose names
 * for archive classes freely, and some report a copy without an expiry date.
 * @throws LibraryError
 */
export async function tryToRead(calls: S3Calls, key: string, sight: Sight, signal: AbortSignal): Promise<Sight> {
  if (sight === undefined || sight instanceof TapeError || sight.isCertain) return sight;
  try {
    const { Body } = await calls.get({ Key: key, Range: 'bytes=0-0' }, signal);
    (Body as Readable).destroy(); // a server without ranges sends the whole object
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `GetObject of ${calls.nameOf(key)}`);
    if (failure.code === 'InvalidObjectState') return { ...sight, access: 'archived', until: null };
    const ofLibrary = libraryErrorOf(failure);
    if (ofLibrary) throw ofLibrary;
    if (failure.status >= 500) throw new LibraryError('TRANSIENT', failure.message, { cause: error });
    // the object is empty, or a later read reports this error with its class
  }
  return sight;
}

/**
 * Checks the bucket by listing one key, because an error of a list has a body, unlike an error of a HEAD.
 * @throws LibraryError
 */
async function checkBucket(calls: S3Calls, key: string, signal: AbortSignal): Promise<void> {
  try {
    await calls.list({ Prefix: key, MaxKeys: 1 }, signal);
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `ListObjectsV2 of ${calls.nameOf(key)}`);
    const { errorClass, message } = fileErrorOf(failure);
    throw libraryErrorOf(failure) ?? new LibraryError(errorClass, message, { cause: error });
  }
}

/** @throws LibraryError */
export async function headOf(
  calls: S3Calls,
  key: string,
  { archiveClasses }: S3Settings,
  signal: AbortSignal,
): Promise<Sight> {
  try {
    return seeHead(await calls.head({ Key: key }, signal), archiveClasses, new Date());
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `HeadObject of ${calls.nameOf(key)}`);
    // a HEAD error has no body, so a missing object looks like a missing bucket, and a denied key like a denied bucket
    if (AMBIGUOUS.includes(failure.status)) await checkBucket(calls, key, signal);
    if (failure.code === 'NoSuchKey') return undefined;
    const ofLibrary = libraryErrorOf(failure);
    if (ofLibrary) throw ofLibrary;
    if (failure.status >= 500) throw new LibraryError('TRANSIENT', failure.message, { cause: error });
    return fileErrorOf(failure);
  }
}

const AMBIGUOUS = [400, 403, 404];

export interface Seen {
  storageClass: string;
  /**
   * State of the object:
   * - `readable`: needs no restore;
   * - `archived`: no copy exists, and no restore is in progress;
   * - `restoring`: a restore is in progress;
   * - `restored`: a copy exists until `until`.
   */
  access: 'readable' | 'archived' | 'restoring' | 'restored';
  /** False if the HEAD does not show whether the object is readable, so that a GET decides (`tryToRead`). */
  isCertain: boolean;
  /** When the restored copy expires; null if S3 does not report the date. */
  until: Date | null;
  /** Whether the object is in Intelligent-Tiering, in which a restore is permanent. */
  isTiered: boolean;
  /** Whether the object is in a class or tier without Expedited retrieval. */
  isDeep: boolean;
}

const TIERED = 'INTELLIGENT_TIERING';

function seeHead(head: HeadObjectCommandOutput, archiveClasses: readonly string[], now: Date): Seen {
  const { StorageClass: storageClass = 'STANDARD', Restore: restore = '' } = head;
  const isComing = /ongoing-request="?true/i.test(restore);
  const isTiered = storageClass === TIERED;
  const isDeep = storageClass === 'DEEP_ARCHIVE' || head.ArchiveStatus === 'DEEP_ARCHIVE_ACCESS';
  const seen = { storageClass, until: null, isTiered, isDeep, isCertain: true };
  if (isTiered && head.ArchiveStatus !== undefined) return { ...seen, access: isComing ? 'restoring' : 'archived' };
  if (isTiered) return { ...seen, access: 'readable', isCertain: false };
  if (isComing) return { ...seen, access: 'restoring' };
  const isArchive = archiveClasses.includes(storageClass);
  if (/ongoing-request="?false/i.test(restore)) {
    // an invalid date if the header contains no date
    const until = new Date(/expiry-date="([^"]*)"/.exec(restore)?.[1] ?? '');
    if (until > now) return { ...seen, access: 'restored', until };
    if (Number.isNaN(until.getTime())) return { ...seen, access: 'restored', isCertain: false };
    // S3 reports a copy for a while after the copy has expired
  }
  return isArchive ? { ...seen, access: 'archived' } : { ...seen, access: 'readable', isCertain: false };
}

/**
 * @param seen undefined if there is no such object
 * @param what the object's name in messages
 */
export function stateOf(path: string, seen: Seen | undefined, what: string): FileState {
  if (!seen) return { path, state: 'failed', error: new TapeError('PERMANENT', `${what}: no such object`) };
  if (seen.access === 'restoring') return { path, state: 'waiting' };
  if (seen.access === 'archived') return { path, state: 'forgotten' };
  return { path, state: 'ready', until: seen.until };
}

/**
 * Runs `work` for each item, `atOnce` items at a time.
 * @param work gets a signal that aborts with `signal`, or when the work for another item fails
 * @throws the first error, after all started work has ended; the signal's reason if it aborted
 */
export async function eachAtOnce<T>(
  items: readonly T[],
  atOnce: number,
  signal: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  signal.throwIfAborted();
  const failed = new AbortController();
  const each = AbortSignal.any([signal, failed.signal]);
  setMaxListeners(2 * atOnce, each); // an unread body keeps its listener until it is closed
  const left = items[Symbol.iterator]();
  const workThrough = async () => {
    for (const item of left) {
      if (each.aborted) return;
      await work(item, each);
    }
  };
  const workers = Array.from({ length: Math.min(atOnce, items.length) }, workThrough);
  await Promise.all(workers.map((worker) => worker.catch((error: unknown) => failed.abort(error))));
  each.throwIfAborted();
}

/** S3's limit for the length of a key, in bytes of UTF-8. */
const MAX_KEY_BYTES = 1024;

/**
 * Returns the object key of a file in the catalogue.
 * @param prefixes the prefixes, longest path first
 * @throws TapeError PERMANENT if the settings give no key for the path
 */
export function keyOf(path: string, prefixes: readonly Prefix[]): string {
  const prefix = prefixes.find((each) => path.startsWith(each.path));
  if (!prefix) {
    const known = prefixes.map((each) => quote(each.path)).join(', ');
    throw new TapeError('PERMANENT', `${quote(path)} does not match a prefix of the library (${known})`);
  }
  const key = prefix.key + path.slice(prefix.path.length);
  const bytes = Buffer.byteLength(key);
  if (bytes === 0 || bytes > MAX_KEY_BYTES || !key.isWellFormed())
    throw new TapeError(
      'PERMANENT',
      `${quote(key)} is not a valid S3 key: ${bytes} bytes, must be 1 to ${MAX_KEY_BYTES}`,
    );
  return key;
}

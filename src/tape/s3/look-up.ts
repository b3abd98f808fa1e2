/**
 * Finds the state of each object with one HEAD request. List requests are not sufficient: some providers omit restores
 * from lists, and a list does not show whether an object in Intelligent-Tiering is archived. If a HEAD response does
 * not show whether an object is readable, sends a GET request for the object's first byte.
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

/**
 * Result for one object key: the object's state; undefined if the object does not exist; or an error that affects only
 * this key.
 */
export type Sight = Seen | undefined | TapeError;

/**
 * @param keys the object keys, possibly with duplicates
 * @returns the results, keyed by object key
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
 * Reads an object's first byte if the HEAD response does not show whether the object is archived. Some providers have
 * archive classes with unknown names, or report a copy without an expiry date.
 * @throws LibraryError
 */
export async function tryToRead(calls: S3Calls, key: string, sight: Sight, signal: AbortSignal): Promise<Sight> {
  if (sight === undefined || sight instanceof TapeError || sight.isCertain) return sight;
  try {
    const { Body } = await calls.get({ Key: key, Range: 'bytes=0-0' }, signal);
    // close the connection, because a server without support for ranges would send the whole object
    (Body as Readable).destroy();
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `GetObject of ${calls.nameOf(key)}`);
    if (failure.code === 'InvalidObjectState') return { ...sight, access: 'archived', until: null };
    const ofLibrary = libraryErrorOf(failure);
    if (ofLibrary) throw ofLibrary;
    if (failure.status >= 500) throw new LibraryError('TRANSIENT', failure.message, { cause: error });
    // either the object is empty, or a later read will fail with the same error
  }
  return sight;
}

/**
 * Checks that the bucket exists and is accessible. Lists one key, because a failed list request returns an error code,
 * unlike a failed HEAD request.
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
    // a HEAD response does not show whether its status concerns the object or the bucket
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
   * The state of the object. A `readable` object does not need a restore. An `archived` object needs a restore. For a
   * `restoring` object, a restore is in progress. A `restored` object has a temporary copy, which expires at `until`.
   */
  access: 'readable' | 'archived' | 'restoring' | 'restored';
  /** Whether the HEAD response proves that `access` is correct. If not, `tryToRead` sends a GET request. */
  isCertain: boolean;
  /** Time at which the restored copy expires; null if S3 does not report it. */
  until: Date | null;
  /** Whether the object is in Intelligent-Tiering, whose restores are permanent. */
  isTiered: boolean;
  /** Whether the object is in a storage class or tier that does not support Expedited retrieval. */
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
    // `until` is an invalid date if the header does not contain an expiry date
    const until = new Date(/expiry-date="([^"]*)"/.exec(restore)?.[1] ?? '');
    if (until > now) return { ...seen, access: 'restored', until };
    if (Number.isNaN(until.getTime())) return { ...seen, access: 'restored', isCertain: false };
    // the copy has expired: S3 still reports an expired copy for some time
  }
  return isArchive ? { ...seen, access: 'archived' } : { ...seen, access: 'readable', isCertain: false };
}

/**
 * Returns the state of a file.
 * @param seen the state of the file's object; undefined if the object does not exist
 * @param what name of the object in error messages
 */
export function stateOf(path: string, seen: Seen | undefined, what: string): FileState {
  if (!seen) return { path, state: 'failed', error: new TapeError('PERMANENT', `${what}: no such object`) };
  if (seen.access === 'restoring') return { path, state: 'waiting' };
  if (seen.access === 'archived') return { path, state: 'forgotten' };
  return { path, state: 'ready', until: seen.until };
}

/**
 * Calls `work` for each item, with at most `atOnce` concurrent calls.
 * @param work receives a signal, which aborts if `signal` aborts, or if `work` fails for another item
 * @throws the first error from `work`, but only after all started calls have ended
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
  // allow many listeners, because each response body listens to the signal until it is closed
  setMaxListeners(2 * atOnce, each);
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

/** Maximum length of a key in S3, in bytes of UTF-8. */
const MAX_KEY_BYTES = 1024;

/**
 * Converts a catalogue path to an object key.
 * @param prefixes the prefixes from the settings, from the longest path to the shortest
 * @throws TapeError PERMANENT if no prefix matches the path, or if the key is invalid
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

/**
 * Looks up many keys with few requests: a list returns 1,000 consecutive keys, a HEAD one key. A list costs as much as
 * a dozen HEADs. If a list returns fewer of the keys, the others use HEAD.
 */
import { setMaxListeners } from 'node:events';
import type { HeadObjectCommandOutput, ListObjectsV2CommandOutput } from '@aws-sdk/client-s3';
import { quote, TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { FileState } from '../staging.js';
import type { S3Calls } from './calls.js';
import { failureOf, fileErrorOf, libraryErrorOf } from './failures.js';
import type { Prefix, S3Settings } from './settings.js';

/** Undefined if there is no such object; an error if it concerns this key only. */
export type Sight = Seen | undefined | TapeError;

/** Keys that a list must find to be cheaper than HEADs. */
const WORTH_A_LIST = 12;

/**
 * @param given in any order, may contain duplicates
 * @returns an entry for each key
 * @throws LibraryError if the failure affects all keys
 */
export async function lookUp(
  calls: S3Calls,
  given: readonly string[],
  { stateBy, concurrency }: S3Settings,
  signal: AbortSignal,
): Promise<Map<string, Sight>> {
  const keys = [...new Set(given)].sort(compareKeys);
  const prefix = commonFolder(keys);
  const sights = new Map<string, Sight>();
  const single: string[] = [];
  let at = 0;
  for (let isDense = stateBy === 'list'; isDense && keys.length - at >= WORTH_A_LIST; ) {
    const told = await listFrom(calls, { prefix, keys, at }, signal);
    for (const [key, seen] of told.sights) sights.set(key, seen);
    single.push(...told.untold);
    at = told.next;
    isDense = told.sights.size >= WORTH_A_LIST;
  }
  single.push(...keys.slice(at));
  await eachAtOnce(single, concurrency, signal, async (key, each) => {
    sights.set(key, await headOf(calls, key, each));
  });
  return sights;
}

interface Told {
  sights: Map<string, Seen>;
  /** Keys that need a HEAD: the list did not contain them, or lacks details. */
  untold: string[];
  /** Index of the first key that the list did not reach. */
  next: number;
}

async function listFrom(
  calls: S3Calls,
  { prefix, keys, at }: { prefix: string; keys: readonly string[]; at: number },
  signal: AbortSignal,
): Promise<Told> {
  const after = Array.from(keys[at] ?? '')
    .slice(0, -1)
    .join(''); // sorts before the key, and almost next to it
  const page = await askForList(calls, { Prefix: prefix, ...(after !== '' && { StartAfter: after }) }, signal);
  const isEncoded = page.EncodingType === 'url'; // some systems ignore the request for encoding
  const entries = new Map(page.Contents?.map(({ Key = '', ...entry }) => [isEncoded ? decode(Key) : Key, entry]));
  const last = [...entries.keys()].at(-1);
  const told: Told = { sights: new Map(), untold: [], next: at };
  const now = new Date();
  for (; told.next < keys.length; told.next++) {
    const key = keys[told.next] as string;
    const isReached = !page.IsTruncated || (last !== undefined && compareKeys(key, last) <= 0);
    if (!isReached) break;
    const entry = entries.get(key);
    const seen = entry && seeEntry(entry, now);
    // a HEAD confirms that a key is missing: a list alone is no proof
    if (seen) told.sights.set(key, seen);
    else told.untold.push(key);
  }
  return told; // a list that does not reach the first key is unordered, as on some systems: its keys use HEAD
}

async function askForList(calls: S3Calls, input: { Prefix: string; StartAfter?: string }, signal: AbortSignal) {
  try {
    return await calls.list(
      // XML cannot represent some characters of keys
      { ...input, EncodingType: 'url', OptionalObjectAttributes: ['RestoreStatus'] },
      signal,
    );
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `ListObjectsV2 of ${calls.nameOf(input.Prefix)}`);
    const { errorClass, message } = fileErrorOf(failure);
    throw libraryErrorOf(failure) ?? new LibraryError(errorClass, message, { cause: error });
  }
}

function decode(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch {
    return key; // a malformed key must not fail the whole list
  }
}

/** @throws LibraryError */
export async function headOf(calls: S3Calls, key: string, signal: AbortSignal): Promise<Sight> {
  try {
    return seeHead(await calls.head({ Key: key }, signal), new Date());
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, `HeadObject of ${calls.nameOf(key)}`);
    // a HEAD has no body, and cannot tell a missing object from a missing bucket, or a denied key from a denied bucket
    if (AMBIGUOUS.includes(failure.status)) await askForList(calls, { Prefix: key }, signal);
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
   * - `readable`: needs no restore;
   * - `archived`: no copy, no restore in progress;
   * - `restoring`: restore in progress;
   * - `restored`: a copy exists until `until`.
   */
  access: 'readable' | 'archived' | 'restoring' | 'restored';
  /** When the restored copy expires; null if S3 does not say. */
  until: Date | null;
  /** In Intelligent-Tiering: a restore moves the object back permanently. */
  isTiered: boolean;
  /** In a class or tier without Expedited retrieval. */
  isDeep: boolean;
}

type Entry = NonNullable<ListObjectsV2CommandOutput['Contents']>[number];

const ARCHIVED = ['GLACIER', 'DEEP_ARCHIVE'];
const TIERED = 'INTELLIGENT_TIERING';

/** @returns undefined for Intelligent-Tiering: a list does not say whether such an object is archived */
function seeEntry({ StorageClass = 'STANDARD', RestoreStatus }: Entry, now: Date): Seen | undefined {
  if (StorageClass === TIERED) return undefined;
  return seeCopy(StorageClass, {
    isComing: RestoreStatus?.IsRestoreInProgress === true,
    until: RestoreStatus?.RestoreExpiryDate,
    now,
  });
}

function seeHead(head: HeadObjectCommandOutput, now: Date): Seen {
  const storageClass = head.StorageClass ?? 'STANDARD';
  const isComing = /ongoing-request="true"/.test(head.Restore ?? '');
  if (storageClass === TIERED) {
    const access = head.ArchiveStatus === undefined ? 'readable' : isComing ? 'restoring' : 'archived';
    return { storageClass, access, until: null, isTiered: true, isDeep: head.ArchiveStatus === 'DEEP_ARCHIVE_ACCESS' };
  }
  const [, expiry] = /expiry-date="([^"]*)"/.exec(head.Restore ?? '') ?? [];
  return seeCopy(storageClass, { isComing, until: expiry === undefined ? undefined : new Date(expiry), now });
}

function seeCopy(
  storageClass: string,
  { isComing, until, now }: { isComing: boolean; until: Date | undefined; now: Date },
): Seen {
  const seen = { storageClass, until: null, isTiered: false, isDeep: storageClass === 'DEEP_ARCHIVE' };
  if (!ARCHIVED.includes(storageClass)) return { ...seen, access: 'readable' };
  if (isComing) return { ...seen, access: 'restoring' };
  // S3 still lists a copy for a while after it has expired
  const isThere = until !== undefined && until > now;
  return isThere ? { ...seen, access: 'restored', until } : { ...seen, access: 'archived' };
}

/** @param seen undefined if there is no such object @param what its name, for messages */
export function stateOf(path: string, seen: Seen | undefined, what: string): FileState {
  if (!seen) return { path, state: 'failed', error: new TapeError('PERMANENT', `${what}: there is no such object`) };
  if (seen.access === 'restoring') return { path, state: 'waiting' };
  if (seen.access === 'archived') return { path, state: 'forgotten' };
  return { path, state: 'ready', until: seen.until };
}

/**
 * Runs `work` for each item, `atOnce` at a time.
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
  setMaxListeners(atOnce, each);
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

/** S3's limit for keys, in bytes of UTF-8. */
const MAX_KEY_BYTES = 1024;

/**
 * Returns the object key of a file in the catalogue.
 * @param prefixes longest path first
 * @throws TapeError PERMANENT if the settings have no key for the path
 */
export function keyOf(path: string, prefixes: readonly Prefix[]): string {
  const prefix = prefixes.find((each) => path.startsWith(each.path));
  if (!prefix) {
    const known = prefixes.map((each) => quote(each.path)).join(', ');
    throw new TapeError('PERMANENT', `${quote(path)} is below none of the library's prefixes (${known})`);
  }
  const key = prefix.key + path.slice(prefix.path.length);
  const bytes = Buffer.byteLength(key);
  if (bytes === 0 || bytes > MAX_KEY_BYTES || !key.isWellFormed())
    throw new TapeError(
      'PERMANENT',
      `${quote(key)} can be no key of S3: ${bytes} bytes, from 1 to ${MAX_KEY_BYTES} can be`,
    );
  return key;
}

/** Orders keys as S3 lists do: by UTF-8 bytes, not by UTF-16 units as JavaScript does. */
function compareKeys(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Longest common prefix of the keys that ends with a slash. */
function commonFolder(keys: readonly string[]): string {
  const [first = '', ...others] = keys;
  let end = first.lastIndexOf('/') + 1;
  for (const key of others) {
    while (!key.startsWith(first.slice(0, end))) end = first.slice(0, end - 1).lastIndexOf('/') + 1;
  }
  return first.slice(0, end);
}

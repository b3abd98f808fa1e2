/**
 * Looks up many keys with few requests: a list returns 1,000 consecutive keys, a HEAD one key. A list costs as much as
 * a dozen HEADs. After a list that found fewer keys, the next keys use HEAD, in runs that double up to the next list.
 */
import { setMaxListeners } from 'node:events';
import type { HeadObjectCommandOutput, ListObjectsV2CommandOutput } from '@aws-sdk/client-s3';
import { quote, TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { FileState } from '../staging.js';
import type { S3Calls } from './calls.js';
import { type Failure, failureOf, fileErrorOf, libraryErrorOf } from './failures.js';
import type { Prefix, S3Settings } from './settings.js';

/** Undefined if there is no such object; an error if it concerns this key only. */
export type Sight = Seen | undefined | TapeError;

/** Keys that a list must find to be cheaper than HEADs. */
const WORTH_A_LIST = 12;
const FIRST_RUN = 16;
const LONGEST_RUN = 1024;

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
  let run = FIRST_RUN;
  let hasListed = false;
  for (let at = 0; at < keys.length; ) {
    if (stateBy === 'head' || keys.length - at < WORTH_A_LIST) {
      single.push(...keys.slice(at));
      break;
    }
    const told = await listFrom(calls, { prefix, keys, at }, signal);
    hasListed = true;
    for (const [key, seen] of told.sights) sights.set(key, seen);
    single.push(...told.untold);
    at = told.next;
    if (told.sights.size >= WORTH_A_LIST) run = FIRST_RUN;
    else {
      single.push(...keys.slice(at, at + run));
      at += run;
      run = Math.min(run * 2, LONGEST_RUN);
    }
  }
  await eachAtOnce(single, concurrency, signal, async (key, each) => {
    sights.set(key, await headOf(calls, key, each));
  });
  const denied = [...sights].find(([, sight]) => sight instanceof TapeError && sight.errorClass === 'POLICY');
  // if listing is denied too, the library has no access at all: this throws
  if (denied && stateBy === 'list' && !hasListed) await askForList(calls, { Prefix: denied[0] }, signal);
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
  const after = justBefore(keys[at] ?? '');
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
    const failure = await explainHead(calls, key, error, signal);
    signal.throwIfAborted();
    if (failure.code === 'NoSuchKey') return undefined;
    const ofLibrary = libraryErrorOf(failure);
    if (ofLibrary) throw ofLibrary;
    if (failure.status >= 500) throw new LibraryError('TRANSIENT', failure.message, { cause: error });
    return fileErrorOf(failure);
  }
}

/** A HEAD has no body, and cannot tell a missing object from a missing bucket, or a denied key from a denied bucket. */
const AMBIGUOUS = [400, 403, 404];

async function explainHead(calls: S3Calls, key: string, error: unknown, signal: AbortSignal): Promise<Failure> {
  const failure = failureOf(error, `HeadObject of ${calls.nameOf(key)}`);
  if (!AMBIGUOUS.includes(failure.status)) return failure;
  try {
    const { Body } = await calls.get({ Key: key, Range: 'bytes=0-0' }, signal);
    Body.destroy();
    return failure;
  } catch (second) {
    const told = failureOf(second, `GetObject of ${calls.nameOf(key)}`);
    return told.status === failure.status ? told : failure;
  }
}

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
  const abort = new AbortController();
  setMaxListeners(atOnce + 1, abort.signal);
  const stop = () => abort.abort(signal.reason);
  signal.addEventListener('abort', stop);
  let failed: { error: unknown } | undefined;
  const left = items[Symbol.iterator]();
  const workThrough = async () => {
    for (const item of left) {
      if (abort.signal.aborted) return;
      try {
        await work(item, abort.signal);
      } catch (error) {
        failed ??= { error };
        abort.abort(error);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, workThrough));
  } finally {
    signal.removeEventListener('abort', stop);
  }
  signal.throwIfAborted();
  if (failed) throw failed.error;
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
export function compareKeys(a: string, b: string): number {
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

/** The last code point available to users: practically no key contains it. */
const LAST = '\u{10FFFD}';

/** Returns a StartAfter value for a list that begins with `key`: practically no key lies between them. */
export function justBefore(key: string): string {
  const points = Array.from(key);
  const last = points.pop()?.codePointAt(0) ?? 0;
  if (last <= 1) return points.join('');
  const before = last === 0xe000 ? 0xd7ff : last - 1; // skips the surrogates
  return points.join('') + String.fromCodePoint(before) + LAST;
}

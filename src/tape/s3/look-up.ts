/**
 * What S3 says of many keys, by few requests: a list tells of a thousand keys that follow one another, and a HEAD of one. A list costs what
 * a dozen HEADs do, so that where it has told of fewer, the next keys are asked for one by one, more and more of them until a list is
 * worth another try.
 */
import { TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { S3Calls } from './calls.js';
import { eachAtOnce } from './concurrently.js';
import { type Failure, failureOf, fileErrorOf, libraryErrorOf } from './failures.js';
import { commonFolder, compareKeys, justBefore } from './keys.js';
import { type Seen, seeEntry, seeHead } from './states.js';

export interface LookUpOptions {
  stateBy: 'list' | 'head';
  concurrency: number;
}

/** What is known of a key: undefined where there is no such object; an error where it is this key's own. */
export type Sight = Seen | undefined | TapeError;

/** Keys that a list is to tell of, to be worth its price. */
const WORTH_A_LIST = 12;
const FIRST_RUN = 16;
const LONGEST_RUN = 1024;

/**
 * @param given in any order, also twice
 * @returns every one of them
 * @throws LibraryError for what concerns all of them
 */
export async function lookUp(
  calls: S3Calls,
  given: readonly string[],
  { stateBy, concurrency }: LookUpOptions,
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
  // where nothing may be listed either, it is the right to all of them that is missing
  if (denied && stateBy === 'list' && !hasListed) await askForList(calls, { Prefix: denied[0] }, signal);
  return sights;
}

interface Told {
  sights: Map<string, Seen>;
  /** Keys of which a list does not say enough, or nothing. */
  untold: string[];
  /** The first key that was not reached. */
  next: number;
}

/** One page of a list, from the key on. */
async function listFrom(
  calls: S3Calls,
  { prefix, keys, at }: { prefix: string; keys: readonly string[]; at: number },
  signal: AbortSignal,
): Promise<Told> {
  const after = justBefore(keys[at] ?? '');
  const page = await askForList(calls, { Prefix: prefix, ...(after !== '' && { StartAfter: after }) }, signal);
  const isEncoded = page.EncodingType === 'url'; // some do not, although they are asked to
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
    // of what a list leaves out nothing is given up by its word alone
    if (seen) told.sights.set(key, seen);
    else told.untold.push(key);
  }
  return told; // one that does not come to the first of them is not in order, as those of some systems: they are asked for one by one
}

async function askForList(calls: S3Calls, input: { Prefix: string; StartAfter?: string }, signal: AbortSignal) {
  try {
    return await calls.list(
      // XML has no way to write some characters that a key may have
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

/** As forms are encoded. */
function decode(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch {
    return key; // one that is not must not keep the others from being told
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

/** What a HEAD cannot say, which has no body: whether there is no object or no bucket, whether it is this key that is denied, or all. */
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

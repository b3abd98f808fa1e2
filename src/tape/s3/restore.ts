/** Asks S3 for the copy of one object, and understands each of its answers. */
import { TapeError } from '../../errors.js';
import type { FileState } from '../staging.js';
import type { S3Calls } from './calls.js';
import { failureOf, fileErrorOf, libraryErrorOf } from './failures.js';
import { headOf } from './look-up.js';
import type { Tier } from './settings.js';
import { type Seen, stateOf } from './states.js';

export interface Demanded {
  path: string;
  key: string;
  /** Not `readable`. */
  seen: Seen;
}

export interface RestoreOptions {
  tier: Tier;
  fallbackTiers: readonly Tier[];
  days: number;
}

/**
 * Asking again is safe: a copy that is on its way is joined, and one that is there stays for as many days from now.
 * @throws LibraryError for what concerns every file
 */
export async function restoreOne(
  calls: S3Calls,
  { path, key, seen }: Demanded,
  options: RestoreOptions,
  signal: AbortSignal,
): Promise<FileState> {
  const tiers = [options.tier, ...options.fallbackTiers].filter((tier) => tier !== 'Expedited' || !seen.isDeep);
  const what = `RestoreObject of ${calls.nameOf(key)}`;
  let error = new TapeError(
    'POLICY',
    `${what}: Expedited is not to be had for ${seen.storageClass}, and no other tier is set`,
  );
  for (const tier of tiers) {
    const outcome = await ask(calls, { key, what, seen, tier, days: options.days }, signal);
    if (outcome === 'asked') return { path, state: 'waiting' };
    if (outcome === 'there') return await lookAgain(calls, { path, key, what }, signal);
    error = outcome.error;
    if (outcome.of === 'file') break;
  }
  return { path, state: 'failed', error };
}

type Outcome = 'asked' | 'there' | { of: 'tier' | 'file'; error: TapeError };

async function ask(
  calls: S3Calls,
  { key, what, seen, tier, days }: { key: string; what: string; seen: Seen; tier: Tier; days: number },
  signal: AbortSignal,
): Promise<Outcome> {
  // what is tiered comes back for good
  const RestoreRequest = { ...(!seen.isTiered && { Days: days }), GlacierJobParameters: { Tier: tier } };
  try {
    const answer = await calls.restore({ Key: key, RestoreRequest }, signal);
    return answer.$metadata.httpStatusCode === 200 ? 'there' : 'asked';
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, what);
    if (failure.code === 'RestoreAlreadyInProgress') return 'asked';
    if (['ObjectAlreadyInActiveTierError', 'InvalidObjectState'].includes(failure.code)) return 'there';
    const ofLibrary = libraryErrorOf(failure);
    if (ofLibrary) throw ofLibrary;
    const isTiers = failure.code === 'GlacierExpeditedRetrievalNotAvailable';
    return { of: isTiers ? 'tier' : 'file', error: fileErrorOf(failure) };
  }
}

/** What S3 says is there already: until when it does not say in the same answer. */
async function lookAgain(
  calls: S3Calls,
  { path, key, what }: { path: string; key: string; what: string },
  signal: AbortSignal,
): Promise<FileState> {
  const seen = await headOf(calls, key, signal);
  if (seen instanceof TapeError) return { path, state: 'failed', error: seen };
  const state = stateOf(path, seen, what);
  if (state.state !== 'forgotten') return state;
  // neither there nor on its way: to ask at once again would bring the same
  const error = new TapeError('TRANSIENT', `${what}: S3 says that nothing is to be restored, and has no copy`);
  return { path, state: 'failed', error };
}

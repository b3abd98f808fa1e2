/**
 * The library type `s3`, for objects in S3's archive classes. S3 restores a temporary copy of an object within hours,
 * and removes the copy after some days.
 */
import { TapeError } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import type { Site, StagingKind } from '../kind.js';
import type { Demand, FileState, RetainedFile, StagedFile, StagingLibrary } from '../staging.js';
import { failureOf, fileErrorOf, isDenied, libraryErrorOf } from './failures.js';
import { eachAtOnce, headOf, keyOf, lookUp, type Seen, type Sight, stateOf, tryToRead } from './look-up.js';
import { readObject } from './read.js';
import { priceOf, type S3Settings, s3Settings, type Tier } from './settings.js';
import { S3Calls } from './signed-requests.js';

export const s3: StagingKind<S3Settings> = {
  contract: 'staging',
  settings: s3Settings,
  create: (settings, { env }) => createS3Library(settings, env),

  terms(settings) {
    const { charges, waitSeconds, prefixes } = settings;
    return {
      prefixes: prefixes.map(({ path }) => path),
      ...(charges && { price: (files) => priceOf(charges, settings, files) }),
      ...(waitSeconds && { waitSeconds }),
    };
  },
};

/**
 * Maximum number of files per `stage` call. The number is limited because a call that fails midway has already started
 * to restore some of the files.
 */
const STAGED_AT_ONCE = 500;
/** Maximum number of files per `poll` or `release` call. Each file takes one HEAD request. */
const POLLED_AT_ONCE = 1000;

function createS3Library(settings: S3Settings, env: Site['env']): StagingLibrary {
  const calls = new S3Calls(settings, env);
  return {
    limits: { stage: STAGED_AT_ONCE, poll: POLLED_AT_ONCE, release: POLLED_AT_ONCE },
    pollSeconds: settings.pollSeconds,
    // the limit is twice `timeoutSeconds`, because connecting and waiting for the response can each take that long
    ownSeconds: { call: 2 * settings.timeoutSeconds, read: 2 * settings.timeoutSeconds },
    usage: calls.usage,

    async stage(files, signal) {
      const known: FileState[] = [];
      const result = await lookUpFiles(calls, settings, files, signal);
      known.push(...result.refused);
      const demands: FileState[] = [];
      await eachAtOnce(result.found, settings.concurrency, signal, async ({ path, key, sight: ofHead }, each) => {
        const sight = await tryToRead(calls, key, ofHead, each);
        const state = isArchived(sight)
          ? await restoreOne(calls, { path, key, seen: sight }, settings, each)
          : stateOfSight(path, calls.nameOf(key), sight);
        if (isArchived(sight)) demands.push(state);
        if (state.state !== 'waiting') known.push(state);
      });
      refuseDenied(demands);
      return { id: null, known };
    },

    async poll({ files }, signal) {
      const { refused, found } = await lookUpFiles(calls, settings, files, signal);
      const states: FileState[] = [...refused];
      await eachAtOnce(found, settings.concurrency, signal, async ({ path, key, sight }, each) => {
        states.push(stateOfSight(path, calls.nameOf(key), await tryToRead(calls, key, sight, each)));
      });
      return states;
    },

    read: ({ path, size, checksum }, from, signal, version = {}) =>
      readObject(calls, { path, size, from, checksum, version }, settings, signal),

    async release(demand, signal) {
      return await findKept(calls, settings, demand, signal);
    },
  };
}

/** Throws a LibraryError if S3 denies every restore, because the credentials probably do not allow restores. */
function refuseDenied(demands: readonly FileState[]): void {
  const errors = demands.flatMap((each) => (each.state === 'failed' && isDenied(each.error) ? [each.error] : []));
  const [first] = errors;
  if (first && errors.length === demands.length) throw new LibraryError('POLICY', first.message, { cause: first });
}

interface LookUpResult {
  refused: FileState[];
  found: { path: string; key: string; sight: Sight }[];
}

async function lookUpFiles(
  calls: S3Calls,
  settings: S3Settings,
  files: readonly StagedFile[],
  signal: AbortSignal,
): Promise<LookUpResult> {
  signal.throwIfAborted();
  const refused: FileState[] = [];
  const keys = new Map<string, string>();
  for (const { path } of files) {
    try {
      keys.set(path, keyOf(path, settings.prefixes));
    } catch (error) {
      if (!(error instanceof TapeError)) throw error;
      refused.push({ path, state: 'failed', error });
    }
  }
  const sights = await lookUp(calls, [...keys.values()], settings, signal);
  return { refused, found: [...keys].map(([path, key]) => ({ path, key, sight: sights.get(key) })) };
}

function isArchived(sight: Sight): sight is Seen {
  return sight !== undefined && !(sight instanceof TapeError) && sight.access !== 'readable';
}

function stateOfSight(path: string, name: string, sight: Sight): FileState {
  if (sight instanceof TapeError) return { path, state: 'failed', error: sight };
  return stateOf(path, sight, name);
}

/**
 * Returns the released files that still have copies. S3 cannot cancel a restore, so each copy stays until its expiry
 * date.
 */
async function findKept(
  calls: S3Calls,
  settings: S3Settings,
  { files }: Demand,
  signal: AbortSignal,
): Promise<RetainedFile[]> {
  const { found } = await lookUpFiles(calls, settings, files, signal);
  return found.flatMap(({ path, sight }): RetainedFile[] => {
    if (!isArchived(sight) || sight.isTiered || sight.access === 'archived') return [];
    return [{ path, until: sight.until }];
  });
}

/**
 * Asks S3 to restore an object. Repeating the request continues a restore in progress, or extends the lifetime of an
 * existing copy.
 * @throws LibraryError if the failure affects all files
 */
async function restoreOne(
  calls: S3Calls,
  { path, key, seen }: { path: string; key: string; seen: Seen },
  options: S3Settings,
  signal: AbortSignal,
): Promise<FileState> {
  const tiers = [options.tier, ...options.fallbackTiers].filter((tier) => tier !== 'Expedited' || !seen.isDeep);
  const what = `RestoreObject of ${calls.nameOf(key)}`;
  let error = new TapeError(
    'POLICY',
    `${what}: Expedited is not available for ${seen.storageClass}, and no other tier is configured`,
  );
  for (const tier of tiers) {
    const outcome = await ask(calls, { key, what, seen, tier, days: options.days }, signal);
    if (outcome === 'asked') return { path, state: 'waiting' };
    if (outcome === 'there') return await checkRestored(calls, { path, key, what }, options, signal);
    error = outcome.error;
    if (outcome.of === 'file') break;
  }
  return { path, state: 'failed', error };
}

type RestoreCallResult = 'asked' | 'there' | { of: 'tier' | 'file'; error: TapeError };

async function ask(
  calls: S3Calls,
  { key, what, seen, tier, days }: { key: string; what: string; seen: Seen; tier: Tier; days: number },
  signal: AbortSignal,
): Promise<RestoreCallResult> {
  // omit `Days` for Intelligent-Tiering, because its restores are permanent
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

/** Finds the state of a file, after S3 has reported that the file's object does not need a restore. */
async function checkRestored(
  calls: S3Calls,
  { path, key, what }: { path: string; key: string; what: string },
  settings: S3Settings,
  signal: AbortSignal,
): Promise<FileState> {
  const sight = await headOf(calls, key, settings, signal);
  // try to read even an object in an archive class, because S3 has just reported that the object needs no restore
  const isArchive = isArchived(sight) && sight.access === 'archived' && !sight.isTiered;
  const doubtful: Sight = isArchive ? { ...sight, access: 'restored', isCertain: false } : sight;
  const seen = await tryToRead(calls, key, doubtful, signal);
  if (seen instanceof TapeError) return { path, state: 'failed', error: seen };
  const state = stateOf(path, seen, what);
  if (state.state !== 'forgotten') return state;
  // do not return `forgotten`, because the engine would repeat the restore request, and S3 would reject it again
  const error = new TapeError(
    'TRANSIENT',
    `${what}: S3 rejects the restore request as unnecessary, although S3 has no restored copy`,
  );
  return { path, state: 'failed', error };
}

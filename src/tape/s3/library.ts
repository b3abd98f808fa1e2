/** Objects in the archive classes of S3 as a staging library: a copy is asked for, comes after hours, and leaves by itself after days. */
import { TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { Demand, FileState, Kept, StagedFile, StagingLibrary } from '../staging.js';
import { S3Calls } from './calls.js';
import { eachAtOnce } from './concurrently.js';
import type { CredentialsEnvironment } from './credentials.js';
import { isDenied } from './failures.js';
import { keyOf } from './keys.js';
import { lookUp, type Sight } from './look-up.js';
import { readObject } from './read.js';
import { restoreOne } from './restore.js';
import type { S3Settings } from './settings.js';
import { type Seen, stateOf } from './states.js';

/** One request a file: a call that fails in its middle has asked for the files before. */
const STAGED_AT_ONCE = 500;
/** Lists tell of a thousand each. */
const POLLED_AT_ONCE = 10_000;

export function createS3Library(settings: S3Settings, env: CredentialsEnvironment): StagingLibrary {
  const calls = new S3Calls(settings, env);
  return {
    limits: { stage: STAGED_AT_ONCE, poll: POLLED_AT_ONCE, release: POLLED_AT_ONCE },
    pollSeconds: settings.pollSeconds,
    ownSeconds: { call: 2 * settings.timeoutSeconds, read: 2 * settings.timeoutSeconds }, // for a connection, and for an answer
    usage: calls.usage,

    async stage(files, signal) {
      const known: FileState[] = [];
      const looked = await look(calls, settings, files, signal);
      known.push(...looked.refused);
      const demands: FileState[] = [];
      await eachAtOnce(looked.found, settings.concurrency, signal, async ({ path, key, sight }, each) => {
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
      const looked = await look(calls, settings, files, signal);
      return [
        ...looked.refused,
        ...looked.found.map(({ path, key, sight }) => stateOfSight(path, calls.nameOf(key), sight)),
      ];
    },

    read: ({ path, size }, from, signal, version = {}) =>
      readObject(calls, { path, size, from, version }, settings, signal),

    async release(demand, signal) {
      return await findKept(calls, settings, demand, signal);
    },
  };
}

/** They may all be looked at, and none may be restored: it is the right to restore that is missing. */
function refuseDenied(demands: readonly FileState[]): void {
  const errors = demands.flatMap((each) => (each.state === 'failed' && isDenied(each.error) ? [each.error] : []));
  const [first] = errors;
  if (first && errors.length === demands.length) throw new LibraryError('POLICY', first.message, { cause: first });
}

interface Looked {
  /** What the settings have no key for. */
  refused: FileState[];
  found: { path: string; key: string; sight: Sight }[];
}

async function look(
  calls: S3Calls,
  settings: S3Settings,
  files: readonly StagedFile[],
  signal: AbortSignal,
): Promise<Looked> {
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

/** S3 takes nothing back: a copy that is there or on its way leaves by itself. */
async function findKept(calls: S3Calls, settings: S3Settings, { files }: Demand, signal: AbortSignal): Promise<Kept[]> {
  const { found } = await look(calls, settings, files, signal);
  return found.flatMap(({ path, sight }): Kept[] => {
    if (!isArchived(sight) || sight.isTiered || sight.access === 'archived') return [];
    return [{ path, until: sight.until }];
  });
}

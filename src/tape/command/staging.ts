/**
 * A staging library of a site's own scripts: one asks for files, one says what has become of them, one gives the bytes of a file, one
 * lets files go.
 */
import { quote } from '../../errors.js';
import type { Demand, Kept, StagedFile, StagingLibrary } from '../staging.js';
import { askScript, type Caller, endSeconds, streamScript } from './calls.js';
import { Answer, writeFiles } from './lines.js';

export interface StagingSettings {
  /** Program and arguments of each. */
  stage: readonly string[];
  poll: readonly string[];
  fetch: readonly string[];
  /** Null where files leave by themselves. */
  release: readonly string[] | null;
  stageBatch: number;
  pollBatch: number;
  releaseBatch: number;
  pollSeconds: { least: number; most: number };
  callSeconds: number;
  silenceSeconds: number;
  /** The script can begin at any byte; else it gives the whole file, and what comes before is left out here. */
  offsets: boolean;
}

export function createCommandStaging(settings: StagingSettings, caller: Caller): StagingLibrary {
  const { stage, poll, release, stageBatch, pollBatch, releaseBatch, pollSeconds } = settings;
  const call = async (
    what: string,
    command: readonly string[],
    files: readonly StagedFile[],
    answer: Answer,
    signal: AbortSignal,
  ) => {
    const onLine = (line: string) => answer.take(line);
    const request = { what, command, concern: 'all' as const, input: writeFiles(files), onLine };
    await askScript(caller, request, settings.callSeconds, signal);
    return answer;
  };
  const ask = async ({ id, files }: Demand, signal: AbortSignal) => {
    const answer = new Answer(files, ['waiting', 'ready', 'failed', 'forgotten']);
    const { states } = await call('poll', withId(poll, id), files, answer, signal);
    return [...states.values()];
  };
  return {
    limits: { stage: stageBatch, poll: pollBatch, release: release ? releaseBatch : pollBatch },
    pollSeconds,
    ownSeconds: {
      call: settings.callSeconds + endSeconds(caller),
      read: settings.silenceSeconds + endSeconds(caller),
    },

    async stage(files, signal) {
      const answer = new Answer(files, ['waiting', 'ready', 'failed']);
      const { id, states } = await call('stage', withId(stage, null), files, answer, signal);
      return { id, known: [...states.values()].filter(({ state }) => state !== 'waiting') };
    },

    poll: ask,

    read: (file, from, signal) => readFrom(settings, caller, { file, from }, signal),

    async release(demand, signal) {
      if (!release) return findKept(await ask(demand, signal));
      const { id, files } = demand;
      const { kept } = await call('release', withId(release, id), files, new Answer(files, ['kept']), signal);
      return [...kept.values()];
    },
  };
}

function withId(command: readonly string[], id: string | null): readonly string[] {
  return id === null ? [...command, '--'] : [...command, '--', id];
}

/** Where nothing can be let go, what is on disk stays there for its time, and what is on its way comes. */
function findKept(states: Awaited<ReturnType<StagingLibrary['poll']>>): Kept[] {
  return states.flatMap((state) => {
    if (state.state === 'ready') return [{ path: state.path, until: state.until }];
    return state.state === 'waiting' ? [{ path: state.path, until: null }] : [];
  });
}

function readFrom(
  { fetch, offsets, silenceSeconds }: StagingSettings,
  caller: Caller,
  { file, from }: { file: StagedFile; from: bigint },
  signal: AbortSignal,
): AsyncIterable<Uint8Array> {
  const { path, volume, position, size } = file;
  const offset = offsets ? from : 0n;
  const call = {
    what: `fetch of ${quote(path)} from byte ${from}`,
    command: [...fetch, '--', path, String(offset), volume, String(position ?? ''), String(size)],
    concern: 'staged' as const,
  };
  const bytes = streamScript(caller, call, silenceSeconds, signal);
  return offset === from ? bytes : leaveOut(Number(from), bytes);
}

/** What comes after so many bytes. */
async function* leaveOut(count: number, bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = count;
  for await (const chunk of bytes) {
    if (left < chunk.length) yield chunk.subarray(left);
    left = Math.max(0, left - chunk.length);
  }
}

/**
 * The library types `command` and `command-staging`, which run a site's own scripts. A drive library has scripts that
 * mount a volume, print a file's bytes, and unmount the volume. A staging library has scripts that request files,
 * report file states, print a file's bytes, and release files.
 */
import os from 'node:os';
import { z } from 'zod';
import { quote } from '../../core/errors.js';
import { type DriveLibrary, LibraryError } from '../drive-library.js';
import { PLAIN_NAME, programPath } from '../host-files.js';
import {
  type DriveKind,
  flag,
  integer,
  listOf,
  readWait,
  type Site,
  type StagingKind,
  seconds,
  settingsOf,
  texts,
  waitSettings,
} from '../kind.js';
import type { Demand, RetainedFile, StagedFile, StagingLibrary } from '../staging.js';
import { Answer, ProtocolFault, writeFiles } from './lines.js';
import { type Caller, endSeconds, runScript, streamScript } from './script-calls.js';

const script = () =>
  texts().refine(([program = '']) => PLAIN_NAME.test(program), {
    error: ({ input }) =>
      `must begin with the file name of a program in TAPEGATE_LIBRARY_DIR/programs, not ${JSON.stringify((input as string[])[0])}`,
  });

/**
 * Matches the names of environment variables whose values are probably secret. Settings must not contain secrets,
 * because the database stores settings.
 */
const SECRET = /(SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS|KEY)$/i;

/**
 * Matches the names of allowed environment variables. With other variables, such as LD_PRELOAD, an operator could run
 * programs that the host's administrator has not approved.
 */
const SAFE = /^TAPE(?!GATE)/;

/**
 * Schema of an environment variable, `NAME=value`. Error messages never show the value, because it might be a secret.
 */
const variable = z.string({ error: 'must be a list of NAME=value' }).transform((line, ctx) => {
  const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s.exec(line) ?? [];
  if (name !== undefined && value !== undefined && SAFE.test(name) && !SECRET.test(name)) return [name, value] as const;
  ctx.addIssue(
    name !== undefined && !SAFE.test(name)
      ? `must have variables whose names begin with TAPE, such as TAPE_ROOT, not ${name}`
      : name === undefined
        ? `must be a list of NAME=value, but an entry of ${line.length} characters does not have this form`
        : `must not contain the secret ${name}, which would be stored in the database: let the script read it from a file`,
  );
  return z.NEVER;
});

const common = {
  environment: listOf(variable).default([]).describe('additional environment variables for the scripts'),
  killSeconds: seconds(300).default(10).describe('time between SIGTERM and SIGKILL'),
};

const driveSettings = settingsOf({
  mount: script().optional().describe('mounts a volume'),
  read: script().describe('prints the bytes of a file'),
  unmount: script().optional().describe('unmounts a volume'),
  mountSeconds: seconds().default(900).describe('timeout of `mount`'),
  unmountSeconds: seconds().default(900).describe('timeout of `unmount`'),
  silenceSeconds: seconds().default(600).describe('maximum time without output from `read`'),
  ...common,
});

type DriveSettings = z.output<typeof driveSettings>;

const filesOfCall = () => integer(1, 10_000).default(1000);

const stagingSettings = settingsOf({
  stage: script().describe('requests files'),
  poll: script().describe('reports the states of files'),
  fetch: script().describe('prints the bytes of a file'),
  release: script().optional().describe('releases files; without this script, staged files expire'),
  offsets: flag()
    .default(true)
    .describe('whether `fetch` can begin at any byte; if false, `fetch` always prints the whole file'),
  stageBatch: filesOfCall().describe('files per `stage` call'),
  pollBatch: filesOfCall().describe('files per `poll` call'),
  releaseBatch: filesOfCall().describe('files per `release` call'),
  pollLeastSeconds: seconds().default(30).describe('minimum time between `poll` calls'),
  pollMostSeconds: seconds().default(600).describe('maximum time between `poll` calls'),
  callSeconds: seconds().default(300).describe('timeout of `stage`, `poll` and `release`'),
  silenceSeconds: seconds().default(600).describe('maximum time without output from `fetch`'),
  ...waitSettings,
  ...common,
}).transform((settings, ctx) => ({ ...settings, waitSeconds: readWait(ctx, settings) }));

type StagingSettings = z.output<typeof stagingSettings>;

export const command: DriveKind<DriveSettings> = {
  contract: 'drive',
  findsBy: 'path',
  settings: driveSettings,
  create: (settings, site) => createDrives(settings, createCaller(settings, site)),
};

export const commandStaging: StagingKind<StagingSettings> = {
  contract: 'staging',
  settings: stagingSettings,
  create: (settings, site) => createStaging(settings, createCaller(settings, site)),
  terms: ({ waitSeconds }) => (waitSeconds ? { waitSeconds } : {}),
};

/** Creates the object that runs a library's scripts. */
function createCaller({ environment, killSeconds }: StagingSettings | DriveSettings, { name, env }: Site): Caller {
  return {
    locate: ([program = '', ...args]) => [programPath(env, program), ...args],
    environment: {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      HOME: os.homedir(),
      LANG: 'C.UTF-8',
      TZ: 'UTC',
      TAPEGATE_LIBRARY: name,
      ...Object.fromEntries(environment),
    },
    killMs: killSeconds * 1000,
  };
}

function createDrives(settings: DriveSettings, caller: Caller): DriveLibrary {
  const { mount, read, unmount, mountSeconds, unmountSeconds, silenceSeconds } = settings;
  const end = endSeconds(caller);
  return {
    ownSeconds: { mount: mountSeconds + end, read: silenceSeconds + end, unmount: unmountSeconds + end },

    async mount(volume, drive, signal) {
      const call = (what: string, program: readonly string[]) => ({
        what: `${what} of ${quote(volume)}`,
        command: [...program, '--', volume, drive],
        concern: 'volume' as const,
        isRead: false,
      });
      signal.throwIfAborted();
      if (mount) await runScript(caller, call('mount', mount), mountSeconds, signal);
      return {
        read({ path, position, size }, readSignal) {
          const where = position === null ? 'without a position' : `position ${position}`;
          const what = `read of ${quote(path)} from volume ${quote(volume)}, ${where}`;
          const args = [...read, '--', path, volume, String(position ?? ''), String(size), drive];
          return streamScript(caller, { what, command: args, concern: 'file' }, silenceSeconds, readSignal);
        },

        async unmount() {
          if (unmount) await runScript(caller, call('unmount', unmount), unmountSeconds, new AbortController().signal);
        },
      };
    },
  };
}

function createStaging(settings: StagingSettings, caller: Caller): StagingLibrary {
  const { stage, poll, release, stageBatch, pollBatch, releaseBatch, callSeconds, silenceSeconds } = settings;
  const end = endSeconds(caller);
  const call = async (
    { what, program, id }: { what: string; program: readonly string[]; id: string | null },
    files: readonly StagedFile[],
    states: readonly string[],
    signal: AbortSignal,
  ) => {
    const answer = new Answer(files, states);
    const request = {
      what,
      command: id === null ? [...program, '--'] : [...program, '--', id],
      concern: 'all' as const,
      input: writeFiles(files),
      isRead: true,
    };
    const output = await runScript(caller, request, callSeconds, signal);
    try {
      answer.take(output);
    } catch (error) {
      if (!(error instanceof ProtocolFault)) throw error;
      throw new LibraryError('TRANSIENT', `${what}: the output of the script violates the protocol: ${error.message}`);
    }
    return answer;
  };
  const ask = async ({ id, files }: Demand, signal: AbortSignal) => {
    const words = ['waiting', 'ready', 'failed', 'forgotten'];
    const { states } = await call({ what: 'poll', program: poll, id }, files, words, signal);
    return [...states.values()];
  };
  return {
    limits: { stage: stageBatch, poll: pollBatch, release: release ? releaseBatch : pollBatch },
    pollSeconds: {
      least: settings.pollLeastSeconds,
      most: Math.max(settings.pollLeastSeconds, settings.pollMostSeconds),
    },
    ownSeconds: { call: callSeconds + end, read: silenceSeconds + end },

    async stage(files, signal) {
      const words = ['waiting', 'ready', 'failed'];
      const { id, states } = await call({ what: 'stage', program: stage, id: null }, files, words, signal);
      return { id, known: [...states.values()].filter(({ state }) => state !== 'waiting') };
    },

    poll: ask,

    read: (file, from, signal) => readFrom(settings, caller, { file, from }, signal),

    async release(demand, signal) {
      if (!release) return findKept(await ask(demand, signal));
      const { id, files } = demand;
      const { kept } = await call({ what: 'release', program: release, id }, files, ['kept'], signal);
      return [...kept.values()];
    },
  };
}

/** Returns the released files that are still on the library's disk, or will arrive there later. */
function findKept(states: Awaited<ReturnType<StagingLibrary['poll']>>): RetainedFile[] {
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
  return offset === from ? bytes : skipBytes(Number(from), bytes);
}

async function* skipBytes(count: number, bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = count;
  for await (const chunk of bytes) {
    if (left < chunk.length) yield chunk.subarray(left);
    left = Math.max(0, left - chunk.length);
  }
}

/**
 * The library type `wlcg`, for systems with the WLCG Tape REST API: dCache, EOS with CTA, StoRM Tape, or another
 * Tapegate.
 */
import { TapeError } from '../../core/errors.js';
import { secretPath } from '../host-files.js';
import { SiteClient } from '../http/site-client.js';
import type { Site, StagingKind } from '../kind.js';
import type { Demand, FileState, ReadVersion, RetainedFile, StagedFile, StagingLibrary } from '../staging.js';
import { attempt, TapeApi } from './api.js';
import type { CallRefusedError } from './parts.js';
import { readStaged } from './read.js';
import { isOnDisk, judge, type StageAnswer } from './responses.js';
import { lifetimeMs, toRemotePath, type WlcgSettings, wlcgSettings } from './settings.js';

/** Maximum number of connections for API calls, not for data transfers. */
const CALL_SOCKETS = 4;

/**
 * The library checks immediately after a stage request which of the files are on disk. If an immediate check does not
 * find any file on disk, the library skips immediate checks for `POLL_MS` milliseconds.
 */
const POLL_MS = 300_000;

export const wlcg: StagingKind<WlcgSettings> = {
  contract: 'staging',
  settings: wlcgSettings,
  create: (settings, { env }) => new WlcgLibrary(settings, env),
  terms: ({ waitSeconds, prefixes }) => ({ prefixes: [`${prefixes.own}/`], ...(waitSeconds && { waitSeconds }) }),
};

class WlcgLibrary implements StagingLibrary {
  readonly pollSeconds: StagingLibrary['pollSeconds'];
  readonly ownSeconds: { call: number; read: number };
  private readonly settings: WlcgSettings;
  private readonly api: TapeApi;
  private readonly bytes: SiteClient;
  /** Time at which the library resumes its immediate checks after stage requests, measured by `performance.now()`. */
  private nextPollAt = 0;

  constructor(settings: WlcgSettings, env: Site['env']) {
    const { trusted, token, identity: names, limits, sockets } = settings;
    const identity = Object.fromEntries(Object.entries(names).map(([part, name]) => [part, secretPath(env, name)]));
    const site = { trusted, identity, limits, ...(token !== undefined && { token: secretPath(env, token) }) };
    this.settings = settings;
    this.pollSeconds = settings.pollSeconds;
    const seconds = (limits.connectMs + limits.answerMs + limits.silenceMs) / 1000;
    this.ownSeconds = { call: seconds, read: seconds };
    this.api = new TapeApi(new SiteClient({ ...site, sockets: CALL_SOCKETS }), settings);
    this.bytes = new SiteClient({ ...site, sockets });
  }

  get limits(): StagingLibrary['limits'] {
    const { stage, release } = this.api.parts;
    return { stage: stage.size, poll: this.settings.stageFiles, release: release.size };
  }

  async stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }> {
    const { byRemote, known } = this.sort(files);
    const ids: string[] = [];
    const refused = new Map<string, CallRefusedError>();
    const send = async (part: readonly string[]) => void ids.push(await this.api.stage(part, signal));
    try {
      await this.api.parts.stage.send([...byRemote.keys()], send, (remote, error) => void refused.set(remote, error));
    } catch (error) {
      // delete the stage requests that the server has already accepted, because the engine will not poll or release
      // these
      if (!signal.aborted) for (const id of ids) await attempt(this.api.delete(id, signal));
      throw error;
    }
    known.push(...toRefusedStates(byRemote, refused));
    const id = joinIds(ids);
    return { id, known: [...known, ...(await this.findReady(id, byRemote, signal))] };
  }

  /**
   * Finds files in a new stage request that are already on disk, so that the engine can read them before the first
   * poll.
   */
  private async findReady(id: string | null, byRemote: ReadonlyMap<string, StagedFile[]>, signal: AbortSignal) {
    if (id === null || performance.now() < this.nextPollAt) return [];
    const ready: FileState[] = [];
    try {
      const { answers } = await this.queryStates(id, signal);
      for (const [remote, same] of byRemote) {
        for (const file of same) {
          const state = this.toState(file, answers.get(remote));
          if (state?.state === 'ready') ready.push(state);
        }
      }
    } catch (error) {
      // ignore the error, because the engine polls the stage request later anyway
      if (signal.aborted || !(error instanceof TapeError)) throw error;
    }
    this.nextPollAt = ready.length > 0 ? 0 : performance.now() + POLL_MS;
    return ready;
  }

  async poll({ id, files }: Demand, signal: AbortSignal): Promise<FileState[]> {
    const { byRemote, known } = this.sort(files);
    const { answers, isForgotten } = await this.queryStates(id, signal);
    const open = [...byRemote.keys()].filter((remote) => (answers.get(remote)?.word ?? 'failed') === 'failed');
    const infos = open.length > 0 ? await this.api.findLocalities(open, signal) : new Map();
    for (const [remote, same] of byRemote) {
      const answer = answers.get(remote);
      for (const file of same) {
        const judged = { answer, hasOthers: answers.size > 0, isForgotten, info: infos.get(remote) };
        const state = this.toState(file, answer) ?? judge(file, judged);
        if (state) known.push(state);
      }
    }
    return known;
  }

  async *read(
    file: StagedFile,
    from: bigint,
    signal: AbortSignal,
    version: ReadVersion = {},
  ): AsyncGenerator<Uint8Array> {
    signal.throwIfAborted();
    const remote = toRemotePath(this.settings.prefixes, file.path);
    const source = { client: this.bytes, api: this.api, endpoint: this.settings.url };
    yield* readStaged(source, { file, remote, from, version }, signal);
  }

  async release({ id, files }: Demand, signal: AbortSignal): Promise<RetainedFile[]> {
    signal.throwIfAborted();
    const { byRemote } = this.sort(files);
    const remotes = [...byRemote.keys()];
    const coming = new Set<string>();
    for (const each of splitIds(id)) {
      for (const remote of await this.letGo(each, remotes, signal)) coming.add(remote);
    }
    if (this.settings.releases) return [];
    const infos = await this.api.findLocalities(remotes, signal);
    const kept = [...byRemote].flatMap(([remote, same]) => {
      const info = infos.get(remote);
      return coming.has(remote) ? same : same.filter((file) => info && isOnDisk(info, file));
    });
    return kept.map(({ path }) => ({ path, until: null }));
  }

  /**
   * Cancels staging for the waiting files of a stage request. If the settings enable release calls, releases all files
   * of the stage request.
   * @returns remote paths of files that might still arrive; empty if the settings enable release calls
   */
  private async letGo(id: string, remotes: readonly string[], signal: AbortSignal): Promise<string[]> {
    const answers = await this.api.poll(id, signal);
    if (!answers) return [];
    const held = remotes.filter((remote) => (answers.get(remote)?.word ?? 'failed') !== 'failed');
    const waiting = held.filter((remote) => answers.get(remote)?.word === 'waiting');
    if (waiting.length > 0) await this.api.cancel(id, waiting, signal);
    const { releases } = this.settings;
    // release waiting files too, because the server might have staged some before it received the cancellation
    if (releases && held.length > 0) await this.api.release(id, held, signal);
    const coming = releases ? [] : waiting;
    const released = new Set(releases ? held : held.filter((remote) => !waiting.includes(remote)));
    const isOver = [...answers].every(([remote, { word }]) => word === 'failed' || released.has(remote));
    // delete an empty stage request, because the server would otherwise store it indefinitely
    if (isOver) await attempt(this.api.delete(id, signal));
    return coming;
  }

  private async queryStates(id: string | null, signal: AbortSignal) {
    signal.throwIfAborted();
    const answers = new Map<string, StageAnswer>();
    const ids = splitIds(id);
    let isForgotten = ids.length === 0;
    for (const each of ids) {
      const found = await this.api.poll(each, signal);
      if (!found) isForgotten = true;
      for (const [path, answer] of found ?? []) answers.set(path, answer);
    }
    return { answers, isForgotten };
  }

  /**
   * Returns a file's state from a poll response; undefined if the response does not report the file as waiting or
   * ready. A staged file stays on disk for `diskLifetime`, counted from `finishedAt`.
   */
  private toState({ path }: StagedFile, answer: StageAnswer | undefined): FileState | undefined {
    if (answer?.word === 'waiting') return { path, state: 'waiting' };
    if (answer?.word !== 'done') return undefined;
    const { diskLifetime } = this.settings;
    const since = diskLifetime === undefined ? null : answer.finishedAt;
    const until = since && new Date(since.getTime() + lifetimeMs(diskLifetime ?? ''));
    return { path, state: 'ready', until };
  }

  /**
   * Groups files by remote path, because two catalogue paths can map to the same remote path. Returns the state
   * `failed` for each file that does not have a valid remote path.
   */
  private sort(files: readonly StagedFile[]): { byRemote: Map<string, StagedFile[]>; known: FileState[] } {
    const byRemote = new Map<string, StagedFile[]>();
    const known: FileState[] = [];
    for (const file of files) {
      try {
        const remote = toRemotePath(this.settings.prefixes, file.path);
        byRemote.set(remote, [...(byRemote.get(remote) ?? []), file]);
      } catch (error) {
        if (!(error instanceof TapeError)) throw error;
        known.push({ path: file.path, state: 'failed', error });
      }
    }
    return { byRemote, known };
  }
}

/**
 * Returns the state `failed` for each file that the server refused.
 * @throws CallRefusedError if the server refused several files and accepted none, because the call itself might be
 * invalid
 */
function toRefusedStates(
  byRemote: ReadonlyMap<string, StagedFile[]>,
  refused: ReadonlyMap<string, CallRefusedError>,
): FileState[] {
  const [first] = refused.values();
  const hasTaken = refused.size < byRemote.size;
  if (first && !hasTaken && refused.size > 1) throw first;
  const errorClass = hasTaken ? 'PERMANENT' : 'TRANSIENT';
  return [...refused].flatMap(([remote, { message }]) =>
    (byRemote.get(remote) ?? []).map(({ path }): FileState => {
      const error = new TapeError(errorClass, `the library did not accept ${JSON.stringify(path)}: ${message}`);
      return { path, state: 'failed', error };
    }),
  );
}

/** Combines the ids of a stage request's parts into one id. If there are several parts, the id is a JSON list. */
function joinIds(ids: readonly string[]): string | null {
  const [only] = ids;
  if (only === undefined) return null;
  return ids.length === 1 && !only.startsWith('[') ? only : JSON.stringify(ids);
}

function splitIds(id: string | null): string[] {
  if (id === null) return [];
  if (!id.startsWith('[')) return [id];
  try {
    const ids: unknown = JSON.parse(id);
    if (Array.isArray(ids) && ids.every((each) => typeof each === 'string')) return ids;
  } catch {}
  return [id];
}

/** How engines of the torture reach the systems behind its staging libraries: by HTTP, over which anything may go wrong. */
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { type ErrorClass, messageOf, TapeError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { readSettings, type StagingKind } from '../../src/tape/kind.js';
import { kinds } from '../../src/tape/kinds.js';
import {
  type FileState,
  NotReadyError,
  RetryLaterError,
  type StagedFile,
  type StagingLibrary,
} from '../../src/tape/staging.js';

/** A state as it is sent. */
export type SentState =
  | { path: string; state: 'waiting' | 'forgotten' }
  | { path: string; state: 'ready'; until: string | null }
  | { path: string; state: 'failed'; errorClass: ErrorClass; error: string };

export interface Sent {
  id?: string | null;
  states?: SentState[];
  kept?: { path: string; until: string | null }[];
}

export const TORTURE_KIND = 'torture';

/** In every process that works with the libraries, or adds them. */
export function registerTortureKind(): void {
  const kind: StagingKind<{ url: string }> = {
    contract: 'staging',
    parse: (settings) => ({ url: readSettings(settings, ['url']).text('url') }),
    create: ({ url }) => createClient(url),
  };
  kinds[TORTURE_KIND] = kind as StagingKind;
}

/** @param url of one system */
function createClient(url: string): StagingLibrary {
  const call = async (what: string, body: object, signal: AbortSignal): Promise<Sent> => {
    const answer = await reach(`${url}/${what}`, { method: 'POST', body: JSON.stringify(body), signal });
    return await readAnswer<Sent>(answer, signal);
  };
  return {
    limits: { stage: 40, poll: 40, release: 40 },
    pollSeconds: { least: 0.2, most: 1 },
    stage: async (files, signal) => {
      const { id = null, states = [] } = await call('stage', { paths: pathsOf(files) }, signal);
      return { id, known: states.map(toState) };
    },
    poll: async ({ id, files }, signal) =>
      ((await call('poll', { id, paths: pathsOf(files) }, signal)).states ?? []).map(toState),
    read: (file, from, signal) => read(url, file, from, signal),
    release: async ({ id, files }, signal) =>
      ((await call('release', { id, paths: pathsOf(files) }, signal)).kept ?? []).map(({ path, until }) => ({
        path,
        until: until === null ? null : new Date(until),
      })),
  };
}

async function* read(url: string, { path }: StagedFile, from: bigint, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const answer = await reach(`${url}/bytes?from=${from}&path=${encodeURIComponent(path)}`, { signal });
  if (answer.status === 404) throw new TapeError('PERMANENT', `there is no ${path}`);
  if (answer.status === 409) throw new NotReadyError(`${path} is not on disk`);
  if (!answer.ok || !answer.body) throw new LibraryError('TRANSIENT', `the bytes answer ${answer.status}`);
  try {
    for await (const chunk of Readable.fromWeb(answer.body as ReadableStream)) yield chunk as Uint8Array;
  } catch (error) {
    signal.throwIfAborted();
    throw new TapeError('TRANSIENT', `the bytes broke off: ${messageOf(error)}`);
  }
}

async function reach(url: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    init.signal.throwIfAborted();
    throw new LibraryError('TRANSIENT', `the library is not reached: ${messageOf(error)}`);
  }
}

async function readAnswer<T>(answer: Response, signal: AbortSignal): Promise<T> {
  if (answer.status === 503)
    throw new RetryLaterError('the library is busy', Number(answer.headers.get('retry-after')));
  if (!answer.ok) throw new LibraryError('TRANSIENT', `the library answers ${answer.status}`);
  try {
    return (await answer.json()) as T;
  } catch (error) {
    signal.throwIfAborted();
    throw new LibraryError('TRANSIENT', `the answer broke off: ${messageOf(error)}`);
  }
}

function toState(sent: SentState): FileState {
  if (sent.state === 'ready') return { ...sent, until: sent.until === null ? null : new Date(sent.until) };
  if (sent.state !== 'failed') return sent;
  return { path: sent.path, state: 'failed', error: new TapeError(sent.errorClass, sent.error) };
}

function pathsOf(files: readonly StagedFile[]): string[] {
  return files.map(({ path }) => path);
}

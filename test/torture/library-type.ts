/**
 * Library type of the torture test's staging libraries, which call their systems over HTTP.
 * Processes load this file before the program, with `--import`.
 */
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { type ErrorClass, messageOf, TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { type StagingKind, settingsOf, text } from '../../src/tape/kind.js';
import { kinds } from '../../src/tape/kinds.js';
import {
  type FileState,
  NotReadyError,
  RetryLaterError,
  type StagedFile,
  type StagingLibrary,
} from '../../src/tape/staging.js';

/** State of a file, in the form that responses contain. */
export type SentState =
  | { path: string; state: 'waiting' | 'forgotten' }
  | { path: string; state: 'ready'; until: string | null }
  | { path: string; state: 'failed'; errorClass: ErrorClass; error: string };

export interface SentResponse {
  id?: string | null;
  states?: SentState[];
  kept?: { path: string; until: string | null }[];
}

export const TORTURE_TYPE = 'torture';

const type: StagingKind<{ url: string }> = {
  contract: 'staging',
  settings: settingsOf({ url: text() }),
  create: ({ url }) => createClient(url),
  terms: () => ({}),
};
kinds[TORTURE_TYPE] = type as StagingKind;

const dateOf = (until: string | null) => (until === null ? null : new Date(until));

function createClient(url: string): StagingLibrary {
  const call = async (
    what: string,
    id: string | null | undefined,
    files: readonly StagedFile[],
    signal: AbortSignal,
  ) => {
    const body = JSON.stringify({ id, paths: files.map(({ path }) => path) });
    const response = await reach(`${url}/${what}`, { method: 'POST', body, signal });
    return await readResponse(response, signal);
  };
  return {
    limits: { stage: 40, poll: 40, release: 40 },
    pollSeconds: { least: 0.2, most: 1 },
    stage: async (files, signal) => {
      const { id = null, states = [] } = await call('stage', undefined, files, signal);
      return { id, known: states.map(toState) };
    },
    poll: async ({ id, files }, signal) => ((await call('poll', id, files, signal)).states ?? []).map(toState),
    read: (file, from, signal) => read(url, file, from, signal),
    release: async ({ id, files }, signal) => {
      const { kept = [] } = await call('release', id, files, signal);
      return kept.map(({ path, until }) => ({ path, until: dateOf(until) }));
    },
  };
}

async function* read(url: string, { path }: StagedFile, from: bigint, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const response = await reach(`${url}/bytes?from=${from}&path=${encodeURIComponent(path)}`, { signal });
  if (response.status === 404) throw new TapeError('PERMANENT', `there is no ${path}`);
  if (response.status === 409) throw new NotReadyError(`${path} is not on disk`);
  if (!response.ok || !response.body) throw new LibraryError('TRANSIENT', `reading returned ${response.status}`);
  try {
    for await (const chunk of Readable.fromWeb(response.body as ReadableStream)) yield chunk as Uint8Array;
  } catch (error) {
    signal.throwIfAborted();
    throw new TapeError('TRANSIENT', `reading was interrupted: ${messageOf(error)}`);
  }
}

async function reach(url: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    init.signal.throwIfAborted();
    throw new LibraryError('TRANSIENT', `the library cannot be reached: ${messageOf(error)}`);
  }
}

async function readResponse(response: Response, signal: AbortSignal): Promise<SentResponse> {
  const { status, headers } = response;
  if (status === 503) throw new RetryLaterError('the library is busy', Number(headers.get('retry-after')));
  if (!response.ok) throw new LibraryError('TRANSIENT', `the library returned ${status}`);
  try {
    return (await response.json()) as SentResponse;
  } catch (error) {
    signal.throwIfAborted();
    throw new LibraryError('TRANSIENT', `the response was interrupted: ${messageOf(error)}`);
  }
}

function toState(sent: SentState): FileState {
  if (sent.state === 'ready') return { ...sent, until: dateOf(sent.until) };
  if (sent.state !== 'failed') return sent;
  return { path: sent.path, state: 'failed', error: new TapeError(sent.errorClass, sent.error) };
}

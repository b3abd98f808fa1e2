/**
 * Reads a staged file over HTTP. After a failed read, asks the tape API where the file is, because servers report the
 * same error with different statuses.
 */
import { TapeError } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { SilentServerError } from '../http/exchange.js';
import { type Problem, toLibraryError } from '../http/problems.js';
import { RefusedError, readRange } from '../http/ranges.js';
import type { SiteClient } from '../http/site-client.js';
import { NotReadyError, type ReadVersion, type StagedFile } from '../staging.js';
import type { TapeApi } from './api.js';
import { findFailure, isOnDisk, type Locality } from './responses.js';
import { toUrl } from './settings.js';

interface Site {
  client: SiteClient;
  api: TapeApi;
  endpoint: URL;
}

interface ReadOptions {
  file: StagedFile;
  remote: string;
  from: bigint;
  version: ReadVersion;
}

export async function* readStaged(source: Site, reading: ReadOptions, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const url = toUrl(source.endpoint, reading.remote);
  try {
    const { file, from, version } = reading;
    const { size, checksum } = file;
    yield* readRange(source.client, url, { from, size, version, checksum, signal });
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    // also ask the tape API after a timeout, because some servers do not answer until they have staged the file
    const problem = error instanceof RefusedError ? error.problem : undefined;
    if (!problem && !(error instanceof SilentServerError)) throw error;
    throw await explain(source, reading, { problem, error, signal });
  }
}

/** HTTP statuses with which servers refuse to send a file that is not on disk. */
const NOT_YET = [202, 409, 415, 423];

async function explain(
  { api }: Site,
  { file, remote }: ReadOptions,
  { problem, error, signal }: { problem: Problem | undefined; error: unknown; signal: AbortSignal },
): Promise<unknown> {
  if (problem && [401, 429].includes(problem.status)) return toLibraryError(problem);
  const text = `${JSON.stringify(file.path)}: ${problem?.text ?? (error as Error).message}`;
  const options = { cause: error };
  const info = await findInfo(api, remote, signal);
  if (info?.locality === 'TAPE') return new NotReadyError(`${text} (the file is only on tape)`, options);
  const isThere = info !== undefined && isOnDisk(info, file);
  const failure = info && !isThere ? findFailure(file, info) : undefined;
  if (failure) return new TapeError(failure.errorClass, `${failure.message} (${text})`, options);
  if (!problem) return error;
  if (NOT_YET.includes(problem.status)) return new NotReadyError(text, options);
  const isDenied = problem.status === 403;
  // report an error for the file only if the tape API works; otherwise the token or the server causes the error
  if (isDenied && info) return new TapeError('POLICY', text, options);
  if (problem.status !== 404 && problem.status !== 410) return toLibraryError(problem);
  if (!info)
    return new LibraryError('TRANSIENT', `${text}, and the tape API does not report where the file is`, options);
  if (!isThere) return new TapeError('PERMANENT', text, options);
  const hint = 'although the tape API reports that the file is on disk: check the settings url and remotePathPrefix';
  return new LibraryError('TRANSIENT', `${text}, ${hint}`, options);
}

/** Returns a file's locality, such as `TAPE`; undefined if the tape API does not report it. */
async function findInfo(api: TapeApi, remote: string, signal: AbortSignal): Promise<Locality | undefined> {
  try {
    return (await api.findLocalities([remote], signal)).get(remote);
  } catch (error) {
    if (signal.aborted || !(error instanceof TapeError)) throw error;
    return undefined;
  }
}

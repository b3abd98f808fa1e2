/**
 * Runs a site's scripts with time limits, and maps their exit codes to errors (docs/operators/libraries/command.md).
 */
import { type ErrorClass, oneLine, TapeError } from '../../core/errors.js';
import { DriveError, LibraryError, VolumeError } from '../drive-library.js';
import { NotReadyError, RetryLaterError } from '../staging.js';
import { GIVE_UP_MS, type Script, type ScriptEnd, startScript } from './script.js';

export interface Caller {
  environment: Readonly<Record<string, string>>;
  killMs: number;
  locate(command: readonly string[]): string[];
}

/** Returns how many seconds, at most, Tapegate waits for a script to exit after it sends SIGTERM to the script. */
export function endSeconds({ killMs }: Caller): number {
  return Math.ceil((killMs + GIVE_UP_MS) / 1000);
}

/**
 * The files that a failed script call affects. `all` stands for all files in the call; such a failure counts against
 * the library. `volume` stands for all files on the mounted volume. `file` stands for one file of a drive library.
 * `staged` stands for one file that a staging library was asked to stage, but might not have staged yet.
 */
type Concern = 'all' | 'volume' | 'file' | 'staged';

interface Call {
  /** The call's name in error messages, such as `mount of "A00001"`. */
  what: string;
  command: readonly string[];
  concern: Concern;
}

/**
 * Stops the script when the signal aborts.
 * @returns a function that stops listening to the signal
 */
function stopWith(script: Script, signal: AbortSignal): () => void {
  if (signal.aborted) script.stop(signal.reason);
  const onAbort = () => script.stop(signal.reason);
  signal.addEventListener('abort', onAbort);
  return () => signal.removeEventListener('abort', onAbort);
}

/** Maximum output of a script, in bytes. Tapegate keeps the whole output in memory. */
const MAX_ANSWER = 32 * 1024 * 1024;

/**
 * Runs a script.
 * @returns the script's output; empty unless `isRead`
 * @throws TapeError if the script fails. The exit code determines the error class. The class is TRANSIENT if the script
 * runs longer than `seconds`, or writes more than `MAX_ANSWER` bytes.
 */
export async function runScript(
  caller: Caller,
  { what, command, concern, ...how }: Call & { input?: string; isRead: boolean },
  seconds: number,
  signal: AbortSignal,
): Promise<Uint8Array> {
  signal.throwIfAborted();
  const script = startScript({ ...caller, command: caller.locate(command), ...how });
  const release = stopWith(script, signal);
  const late = `${what}: the script did not finish within ${seconds} s`;
  const error = concern === 'all' ? new LibraryError('TRANSIENT', late) : new TapeError('TRANSIENT', late);
  const timer = setTimeout(() => script.stop(error), seconds * 1000);
  try {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of script.output()) {
      bytes += chunk.length;
      const isTooLong = bytes > MAX_ANSWER;
      if (isTooLong) script.stop(new LibraryError('TRANSIENT', `${what}: more than ${MAX_ANSWER} bytes of output`));
      else chunks.push(chunk);
    }
    const failure = findExitError(what, await script.finish(), concern);
    if (failure) throw failure;
    return Buffer.concat(chunks);
  } finally {
    clearTimeout(timer);
    release();
    await script.close();
  }
}

/**
 * Yields a script's output as fast as the reader processes it. Stops the script if its output pauses for more than
 * `silenceSeconds` seconds.
 * @throws TapeError after the last byte, if the script fails
 */
export async function* streamScript(
  caller: Caller,
  { what, command, concern }: Call,
  silenceSeconds: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  signal.throwIfAborted();
  const script = startScript({ ...caller, command: caller.locate(command), isRead: true });
  const release = stopWith(script, signal);
  const silence = new TapeError('TRANSIENT', `${what}: no output for ${silenceSeconds} s`);
  let isWaiting = true;
  const timer = setTimeout(() => isWaiting && script.stop(silence), silenceSeconds * 1000);
  try {
    for await (const chunk of script.output()) {
      isWaiting = false; // do not stop the script while the reader processes a chunk
      yield chunk;
      signal.throwIfAborted();
      isWaiting = true;
      timer.refresh();
    }
    const failure = findExitError(what, await script.finish(), concern);
    if (failure) throw failure;
  } finally {
    clearTimeout(timer);
    release();
    await script.close();
  }
}

const CLASSES: Readonly<Record<number, ErrorClass>> = {
  100: 'TRANSIENT',
  101: 'PERMANENT',
  102: 'MEDIA',
  103: 'SPACE',
  104: 'POLICY',
};

const AWAY = 105;
const LATER = 106;
const NOT_READY = 107;
const VOLUME = 108;
const DRIVE = 109;

/**
 * Matches the line on standard error with which a script requests a retry after some seconds. Error messages omit this
 * line.
 */
const RETRY_AFTER = /^retry-after:\s*(\d{1,9})\s*$/i;
const DEFAULT_RETRY_SECONDS = 60;
const MAX_SAID = 1000;

/** @returns the error for the script's exit code; undefined if the script succeeded */
function findExitError(what: string, end: ScriptEnd, concern: Concern): TapeError | undefined {
  if (end.code === 0) return undefined;
  const message = `${what}: ${describe(end)}`;
  if (end.code === AWAY) return new LibraryError('TRANSIENT', message);
  if (end.code === LATER) return new RetryLaterError(message, findRetrySeconds(end.said));
  if (end.code === NOT_READY && concern === 'staged') return new NotReadyError(message);
  if (end.code === DRIVE && (concern === 'volume' || concern === 'file')) return new DriveError('TRANSIENT', message);
  if (end.code === VOLUME && concern === 'file') return new VolumeError('MEDIA', message);
  const errorClass = CLASSES[end.code ?? 0] ?? (end.code === VOLUME ? 'MEDIA' : 'TRANSIENT');
  return concern === 'all' ? new LibraryError(errorClass, message) : new TapeError(errorClass, message);
}

function describe({ code, signal, said }: ScriptEnd): string {
  const how = code !== null ? `exit code ${code}` : `ended by ${signal}`;
  const lines = said.split('\n').filter((line) => line.trim() !== '' && !RETRY_AFTER.test(line));
  const last = lines.at(-1);
  return last === undefined ? `no output (${how})` : `${oneLine(last, MAX_SAID).trim()} (${how})`;
}

function findRetrySeconds(said: string): number {
  const found = said.split('\n').flatMap((line) => RETRY_AFTER.exec(line)?.[1] ?? []);
  return Number(found.at(-1) ?? DEFAULT_RETRY_SECONDS);
}

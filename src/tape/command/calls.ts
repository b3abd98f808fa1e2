/** Three ways to have a script do something: for what it does, for lines that it says, and for bytes. Each is bounded in time. */
import { TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { type Concern, findExitError } from './exits.js';
import { LineSplitter, ProtocolFault } from './lines.js';
import { GIVE_UP_MS, type Script, type ScriptRun, startScript } from './script.js';

/** A script as the settings of its library have it. */
export interface Caller {
  environment: Readonly<Record<string, string>>;
  killMs: number;
}

/** A script that is told to end, and does not, is given up after so long. */
export function endSeconds({ killMs }: Caller): number {
  return Math.ceil((killMs + GIVE_UP_MS) / 1000);
}

export interface Call {
  /** For messages: `mount of "A00001"`. */
  what: string;
  command: readonly string[];
  concern: Concern;
}

/** What is over for a script, and then nothing is left of it. */
async function withScript<T>(run: ScriptRun, signal: AbortSignal, work: (script: Script) => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  const script = startScript(run);
  if (signal.aborted) script.stop(signal.reason);
  const onAbort = () => script.stop(signal.reason);
  signal.addEventListener('abort', onAbort);
  try {
    return await work(script);
  } finally {
    signal.removeEventListener('abort', onAbort);
    await script.close();
  }
}

/** @throws TapeError by its exit code, or TRANSIENT when it takes longer than `seconds` */
export async function runScript(
  { environment, killMs }: Caller,
  { what, command, concern }: Call,
  seconds: number,
  signal: AbortSignal,
): Promise<void> {
  await withScript({ command, environment, killMs, isRead: false }, signal, async (script) => {
    const timer = setTimeout(() => script.stop(tookTooLong(what, seconds, concern)), seconds * 1000);
    const end = await script.finish().finally(() => clearTimeout(timer));
    const error = findExitError(what, end, concern);
    if (error) throw error;
  });
}

/**
 * Gives a script lines, and is given lines. What the script says counts when it has ended well; where it has not, its exit code says
 * more than a line that cannot be understood.
 * @param onLine throws a ProtocolFault where something is wrong with a line
 */
export async function askScript(
  { environment, killMs }: Caller,
  { what, command, concern, input, onLine }: Call & { input: string; onLine: (line: string) => void },
  seconds: number,
  signal: AbortSignal,
): Promise<void> {
  await withScript({ command, environment, killMs, input, isRead: true }, signal, async (script) => {
    const timer = setTimeout(() => script.stop(tookTooLong(what, seconds, concern)), seconds * 1000);
    try {
      const fault = await readLines(script, onLine);
      const error = findExitError(what, await script.finish(), concern);
      if (error) throw error;
      if (fault) throw new LibraryError('TRANSIENT', `${what}: its answer breaks the protocol: ${fault.message}`);
    } finally {
      clearTimeout(timer);
    }
  });
}

/** @returns what was wrong with the first line that could not be understood; what follows it is read, since a script may wait for that */
async function readLines(script: Script, onLine: (line: string) => void): Promise<ProtocolFault | undefined> {
  const splitter = new LineSplitter(onLine);
  let fault: ProtocolFault | undefined;
  const take = (work: () => void) => {
    try {
      if (!fault) work();
    } catch (error) {
      if (!(error instanceof ProtocolFault)) throw error;
      fault = error;
    }
  };
  for await (const chunk of script.output()) take(() => splitter.push(chunk));
  take(() => splitter.end());
  return fault;
}

/**
 * The bytes that a script gives. It waits while the reader does; when the reader waits longer than `silenceSeconds` for the next byte, or
 * for its end, it is ended.
 * @throws TapeError by its exit code, after the last byte
 */
export async function* streamScript(
  { environment, killMs }: Caller,
  { what, command, concern }: Call,
  silenceSeconds: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  signal.throwIfAborted();
  const script = startScript({ command, environment, killMs, isRead: true });
  if (signal.aborted) script.stop(signal.reason);
  const onAbort = () => script.stop(signal.reason);
  signal.addEventListener('abort', onAbort);
  const silence = new TapeError('TRANSIENT', `${what}: no byte came for ${silenceSeconds} s`);
  let isWaiting = true;
  const timer = setTimeout(() => isWaiting && script.stop(silence), silenceSeconds * 1000);
  try {
    for await (const chunk of script.output()) {
      isWaiting = false; // the reader's time is its own
      yield chunk;
      signal.throwIfAborted();
      isWaiting = true;
      timer.refresh();
    }
    const error = findExitError(what, await script.finish(), concern);
    if (error) throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    await script.close();
  }
}

function tookTooLong(what: string, seconds: number, concern: Concern): TapeError {
  const message = `${what}: it took longer than ${seconds} s`;
  return concern === 'all' ? new LibraryError('TRANSIENT', message) : new TapeError('TRANSIENT', message);
}

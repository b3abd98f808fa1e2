/** What the exit code of a script means. The table for those who write scripts is in README.md. */
import { type ErrorClass, oneLine, TapeError } from '../../errors.js';
import { DriveError, LibraryError, VolumeError } from '../backend.js';
import { NotReadyError, RetryLaterError } from '../staging.js';
import type { ScriptEnd } from './script.js';

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

/** A line on standard error beside the message. */
const RETRY_AFTER = /^retry-after:\s*(\d{1,9})\s*$/i;
const DEFAULT_RETRY_SECONDS = 60;
const MOST_RETRY_SECONDS = 86_400;
const MAX_SAID = 1000;

/**
 * - `all`: what fails concerns all files of a call, and is the library's;
 * - `volume`: it concerns the volume that is mounted;
 * - `file`: it concerns the one file of a drive library;
 * - `staged`: the same of a staging library, which may have a file on tape alone.
 */
export type Concern = 'all' | 'volume' | 'file' | 'staged';

/**
 * @param what was to be done, for the message: `mount of "A00001"`
 * @returns undefined where the script has done it
 */
export function findExitError(what: string, end: ScriptEnd, concern: Concern): TapeError | undefined {
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
  return last === undefined ? `it said nothing (${how})` : `${oneLine(last, MAX_SAID).trim()} (${how})`;
}

function findRetrySeconds(said: string): number {
  const found = said.split('\n').flatMap((line) => RETRY_AFTER.exec(line)?.[1] ?? []);
  const seconds = Number(found.at(-1) ?? DEFAULT_RETRY_SECONDS);
  return Math.min(Math.max(seconds, 1), MOST_RETRY_SECONDS);
}

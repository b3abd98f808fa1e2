/**
 * Parses responses from the WLCG Tape REST API. A response's members can be missing, null or unknown, because servers
 * differ.
 */
import { TapeError } from '../../core/errors.js';
import type { FileState, StagedFile } from '../staging.js';
import { normalisePath } from './settings.js';

export interface StageAnswer {
  word: 'done' | 'waiting' | 'failed';
  said: string | undefined;
  finishedAt: Date | null;
}

export interface Locality {
  /** The locality of a file, such as `TAPE`; undefined if the server does not report it. */
  locality: string | undefined;
  said: string | undefined;
}

type Fields = Record<string, unknown>;

/**
 * Parses the response to a poll.
 * @returns the states of the files, keyed by remote path; empty if the response is malformed
 */
export function readStageAnswer(json: unknown): Map<string, StageAnswer> {
  const files = asFields(json).files;
  return byPath(files, (file) => ({ ...readWord(file), finishedAt: readTime(file.finishedAt) }));
}

export function readLocalities(json: unknown): Map<string, Locality> {
  return byPath(json, (file) => ({ locality: textOf(file.locality)?.toUpperCase(), said: textOf(file.error) }));
}

function byPath<T>(list: unknown, read: (file: Fields) => T): Map<string, T> {
  const found = new Map<string, T>();
  for (const item of Array.isArray(list) ? list : []) {
    const file = asFields(item);
    if (typeof file.path === 'string') found.set(normalisePath(file.path), read(file));
  }
  return found;
}

function asFields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? value.trim() : undefined;
}

/**
 * Final states of a file in a stage request; in any other state, the file is waiting. Some servers write CANCELED
 * instead of CANCELLED.
 */
const ENDED = new Map<string, StageAnswer['word']>([
  ['COMPLETED', 'done'],
  ['FAILED', 'failed'],
  ['CANCELLED', 'failed'],
  ['CANCELED', 'failed'],
  ['SKIPPED', 'failed'],
]);

/**
 * Reads a file's state from a poll response. Like other clients, treats a file with the member `error` as failed,
 * regardless of the other members.
 */
function readWord({ error, onDisk, state }: Fields): Omit<StageAnswer, 'finishedAt'> {
  const said = textOf(error);
  if (said !== undefined) return { word: 'failed', said };
  if (typeof onDisk === 'boolean') return { word: onDisk ? 'done' : 'waiting', said };
  const name = textOf(state)?.toUpperCase() ?? '';
  const word = ENDED.get(name) ?? 'waiting';
  return { word, said: word === 'failed' && name !== 'FAILED' ? `the library reports ${name}` : undefined };
}

/**
 * Largest number that is read as seconds since 1970 (a date in the year 5138). Larger numbers are read as milliseconds.
 */
const LAST_SECONDS = 1e11;

/**
 * Reads a time. Some servers send seconds, others milliseconds. The number 0 means that the server has not set a time.
 */
function readTime(value: unknown): Date | null {
  const time = Number(value ?? 0);
  if (!(time > 0) || !Number.isFinite(time)) return null;
  const date = new Date(time > LAST_SECONDS ? time : time * 1000);
  return Number.isNaN(date.getTime()) ? null : date;
}

const WORDS: [RegExp, TapeError['errorClass']][] = [
  [
    /no such (file|entry|path)|(file|path|entry) (was |is )?not found|does not exist|\benoent\b|is a (directory|directory)|not a regular file/i,
    'PERMANENT',
  ],
  [
    /permission denied|access denied|not (permitted|allowed|authori[sz]ed)|unauthori[sz]ed|forbidden|may not (read|request|stage)/i,
    'POLICY',
  ],
  [/\bno (room|space)\b|(quota|space|disk) (is |was )?(exceeded|full)|\b(enospc|edquot)\b/i, 'SPACE'],
  [/checksum|media error|(i\/o|input\/output) error|(tape|cartridge)\b.*\b(broken|damaged)/i, 'MEDIA'],
];

function classOf(said: string): TapeError['errorClass'] {
  return WORDS.find(([words]) => words.test(said))?.[1] ?? 'TRANSIENT';
}

export function isOnDisk({ locality }: Locality, { size }: StagedFile): boolean {
  // treat an empty file with the locality NONE as being on disk, because some servers report NONE for empty files
  return locality === 'DISK' || locality === 'DISK_AND_TAPE' || (locality === 'NONE' && size === 0n);
}

/**
 * Returns the error for a file, according to its locality and the server's error texts.
 * @param said the server's error text, if the server has failed to stage the file
 * @returns undefined if the server can stage the file
 */
export function findFailure(
  file: StagedFile,
  { locality, said: ofInfo }: Locality,
  said?: string,
): TapeError | undefined {
  const words = [said, ofInfo].filter((each) => each !== undefined).join('; ');
  const tell = (errorClass: TapeError['errorClass'], what: string) =>
    new TapeError(errorClass, `${JSON.stringify(file.path)} ${what}${words === '' ? '' : `: ${words}`}`);
  if (locality === 'LOST') return tell('PERMANENT', 'is lost');
  if (locality === 'NONE') return tell('PERMANENT', 'has no data: it may be a directory or an empty file');
  if (locality === 'UNAVAILABLE') return tell('TRANSIENT', 'is temporarily unavailable');
  if (locality === undefined) return tell(classOf(words), 'is not available');
  if (said === undefined) return undefined;
  // the file exists on tape, so a text such as "no such file" refers to something else, such as a pool or a replica
  const errorClass = classOf(said);
  return tell(errorClass === 'PERMANENT' ? 'TRANSIENT' : errorClass, 'could not be staged');
}

/**
 * Determines a file's state from its locality (such as `TAPE`). Used if the poll response reports the file as failed,
 * or does not contain the file. Returns undefined if the state is unknown.
 */
export function judge(file: StagedFile, { answer, hasOthers, isForgotten, info }: Judged): FileState | undefined {
  const { path } = file;
  if (info && isOnDisk(info, file)) return { path, state: 'ready', until: null };
  if (answer) {
    const said = answer.said ?? 'the library gave no reason';
    const error = findFailure(file, info ?? { locality: 'TAPE', said: undefined }, said);
    return error && { path, state: 'failed', error };
  }
  const error = info && info.locality !== 'UNAVAILABLE' ? findFailure(file, info) : undefined;
  if (error) return { path, state: 'failed', error };
  const isOmitted = hasOthers && info?.locality === 'TAPE';
  return isForgotten || isOmitted ? { path, state: 'forgotten' } : undefined;
}

interface Judged {
  /** State of the file in the poll response; undefined if the response does not contain the file. */
  answer: StageAnswer | undefined;
  /**
   * Whether the poll response contains any files. A poll response that contains any files should contain all files in
   * the stage request.
   */
  hasOthers: boolean;
  /** Whether the server no longer knows the stage request, or one of its parts. */
  isForgotten: boolean;
  info: Locality | undefined;
}

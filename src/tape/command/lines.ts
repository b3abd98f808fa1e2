/**
 * Formats the list of files that a script receives, and parses the file states that the script reports. Both are in
 * JSON Lines format.
 */
import { type ErrorClass, oneLine, quote, TapeError } from '../../core/errors.js';
import { showValue as show } from '../kind.js';
import type { FileState, RetainedFile, StagedFile } from '../staging.js';

export class ProtocolFault extends Error {}

/** Returns one line of JSON per file. File sizes and positions are JSON integers of up to 64 bits. */
export function writeFiles(files: readonly StagedFile[]): string {
  return files
    .map(({ path, volume, position, size }) => {
      const names = `"path":${JSON.stringify(path)},"volume":${JSON.stringify(volume)}`;
      return `{${names},"position":${position},"size":${size}}\n`;
    })
    .join('');
}

const CLASSES: readonly ErrorClass[] = ['TRANSIENT', 'PERMANENT', 'MEDIA', 'SPACE', 'POLICY'];
const MAX_ID = 1000;

/** Parses a script's output, and checks that the output contains only files that the script received. */
export class Answer {
  id: string | null = null;
  readonly states = new Map<string, FileState>();
  readonly kept = new Map<string, RetainedFile>();
  private readonly paths: ReadonlySet<string>;
  private readonly words: readonly string[];

  /** @param words the file states that the script is allowed to report */
  constructor(files: readonly StagedFile[], words: readonly string[]) {
    this.paths = new Set(files.map(({ path }) => path));
    this.words = words;
  }

  /** @throws ProtocolFault if the output violates the protocol */
  take(output: Uint8Array): void {
    for (const line of decode(output).split('\n')) if (line.trim() !== '') this.takeLine(line);
  }

  private takeLine(line: string): void {
    const said = parseObject(line);
    if (said.path === undefined && said.id !== undefined) this.id = readId(said.id);
    else this.takeState(said);
  }

  private takeState(said: Record<string, unknown>): void {
    const { path, state } = said;
    if (typeof path !== 'string' || !this.paths.has(path)) {
      throw new ProtocolFault(`"path" must be one of the requested paths, not ${show(path)}`);
    }
    if (typeof state !== 'string' || !this.words.includes(state)) {
      throw new ProtocolFault(`"state" of ${quote(path)} must be one of ${this.words.join(', ')}, not ${show(state)}`);
    }
    if (state === 'kept') this.kept.set(path, { path, until: readUntil(path, said.until) });
    else this.states.set(path, toState(path, state, said));
  }
}

function decode(output: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(output);
  } catch {
    throw new ProtocolFault('the output is not UTF-8');
  }
}

function toState(path: string, state: string, said: Record<string, unknown>): FileState {
  if (state === 'ready') return { path, state, until: readUntil(path, said.until) };
  if (state === 'failed') return { path, state, error: readError(path, said) };
  return { path, state: state === 'waiting' ? 'waiting' : 'forgotten' };
}

function parseObject(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // ignore the syntax error, because the statement below throws an error with a clearer message
  }
  throw new ProtocolFault(`a line is not a JSON object: ${quote(line)}`);
}

function readId(id: unknown): string {
  const isFit = typeof id === 'string' && id !== '' && id.length <= MAX_ID && id.isWellFormed() && !id.includes('\0');
  if (!isFit) throw new ProtocolFault(`"id" must be a string of 1 to ${MAX_ID} characters, not ${show(id)}`);
  return id;
}

/** Matches a time in the format of RFC 3339. */
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;

function readUntil(path: string, until: unknown): Date | null {
  if (until === undefined || until === null) return null;
  const time = typeof until === 'string' && TIME.test(until) ? new Date(until) : undefined;
  if (time && !Number.isNaN(time.getTime())) return time;
  throw new ProtocolFault(
    `"until" of ${quote(path)} must be a time such as "2030-01-31T12:00:00Z", not ${show(until)}`,
  );
}

function readError(path: string, { class: given, message }: Record<string, unknown>): TapeError {
  const errorClass = CLASSES.find((each) => each === given);
  if (!errorClass)
    throw new ProtocolFault(`"class" of ${quote(path)} must be one of ${CLASSES.join(', ')}, not ${show(given)}`);
  const text = typeof message === 'string' ? oneLine(message, 1000).trim() : '';
  return new TapeError(
    errorClass,
    text === '' ? `the library reported a failure of ${quote(path)} without a reason` : text,
  );
}

/**
 * What every kind of library has: its contract, the settings that it takes, and how one is made of them. A kind stands in its own folder
 * and has a line in kinds.ts.
 */
import { quote, SettingsError } from '../errors.js';
import type { TapeBackend } from './backend.js';
import type { StagingLibrary, StagingTerms } from './staging.js';

/** What a library knows of where it is made. */
export interface Site {
  /** Of the library. */
  name: string;
  /** Of this host. */
  dataDir: string;
  /** Of this process: what settings name by variables. */
  env: Readonly<Record<string, string | undefined>>;
}

export interface DriveKind<Settings = unknown> {
  contract: 'drive';
  /** How it finds a file on its volume: one that goes by paths needs no position, and reads in the order of those that are known. */
  findsBy: 'position' | 'path';
  /** Also on hosts that do not have the library: nothing is opened. @throws SettingsError */
  parse(settings: unknown): Settings;
  create(settings: Settings, site: Site): TapeBackend;
}

export interface StagingKind<Settings = unknown> {
  contract: 'staging';
  /** The same. */
  parse(settings: unknown): Settings;
  create(settings: Settings, site: Site): StagingLibrary;
  /** Absent where no settings of the kind tell any. */
  terms?(settings: Settings): StagingTerms;
}

export type Kind<Settings = unknown> = DriveKind<Settings> | StagingKind<Settings>;

/**
 * Reads settings by name. From the command line all values are texts: numbers, and `true` and `false`, are taken in both forms. A setting that
 * is empty or null counts as not given.
 */
export interface SettingsReader {
  text(name: string): string;
  text<T>(name: string, fallback: T): string | T;
  /** Absolute: hosts are started in different folders. */
  file(name: string): string;
  file<T>(name: string, fallback: T): string | T;
  oneOf<V extends string>(name: string, values: readonly V[], fallback?: V): V;
  integer<T = never>(name: string, bounds: { least: number; most: number; fallback?: T }): number | T;
  flag(name: string, fallback: boolean): boolean;
  /** Of texts; with one at least where it must be given. */
  list(name: string): string[];
  list<T>(name: string, fallback: T): string[] | T;
}

/**
 * @param names of all settings that the kind has
 * @throws SettingsError when there are others
 */
export function readSettings(settings: unknown, names: readonly string[]): SettingsReader {
  if (typeof settings !== 'object' || settings === null || Array.isArray(settings)) {
    throw new SettingsError('settings', `must be an object, not ${show(settings)}`);
  }
  const given = new Map(Object.entries(settings));
  for (const name of given.keys()) {
    const known = names.length > 0 ? `the settings are ${names.join(', ')}` : 'it has none';
    if (!names.includes(name)) throw new SettingsError(name, `is no setting of this kind; ${known}`);
  }
  return createReader((name) => given.get(name) ?? undefined);
}

const NAMES_SECRET = /(secret|password|token|credentials|key)/i;

const BOOLEANS: Record<string, boolean> = { true: true, false: false };

function createReader(given: (name: string) => unknown): SettingsReader {
  /** @param parse gives undefined for what is not as expected @param rest the fallback, where there is one */
  const read = <T, F>(name: string, expected: string, parse: (value: unknown) => T | undefined, rest: F[]): T | F => {
    const value = given(name);
    if (value === undefined || value === '') {
      if (rest.length > 0) return rest[0] as F;
      throw new SettingsError(name, `must be given: ${expected}`);
    }
    const found = parse(value);
    if (found !== undefined) return found;
    // one who is asked where a secret is may give the secret
    const shown = NAMES_SECRET.test(name) ? 'what is given' : show(value);
    throw new SettingsError(name, `must be ${expected}, not ${shown}`);
  };
  return {
    text: <F>(name: string, ...rest: F[]) => read(name, 'a text of one line', readText, rest),
    file: <F>(name: string, ...rest: F[]) => read(name, 'an absolute path', readAbsolute, rest),
    oneOf: <V extends string>(name: string, values: readonly V[], ...rest: V[]) =>
      read(name, `one of ${values.join(', ')}`, (value) => values.find((each) => each === value), rest),
    integer: (name, { least, most, ...rest }) => {
      const parse = (value: unknown) => {
        const number = /^\d{1,15}$/.test(String(value)) ? Number(value) : Number.NaN;
        return number >= least && number <= most ? number : undefined;
      };
      const fallback = 'fallback' in rest ? [rest.fallback as never] : [];
      return read(name, `a whole number from ${least} to ${most}`, parse, fallback);
    },
    flag: (name, fallback) => read(name, 'true or false', (value) => BOOLEANS[String(value)], [fallback]),
    list: <F>(name: string, ...rest: F[]) => read(name, 'a list of texts', readTexts, rest),
  } as SettingsReader;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f]/;

function readText(value: unknown): string | undefined {
  const text = typeof value === 'number' ? String(value) : value;
  return typeof text === 'string' && !CONTROL.test(text) && text.isWellFormed() ? text : undefined;
}

function readAbsolute(value: unknown): string | undefined {
  const text = readText(value);
  return text?.startsWith('/') ? text : undefined;
}

function readTexts(value: unknown): string[] | undefined {
  const texts = Array.isArray(value) && value.length > 0 ? value.map(readText) : [undefined];
  return texts.every((text) => text !== undefined) ? texts : undefined;
}

function show(value: unknown): string {
  return typeof value === 'string' ? quote(value) : quote(JSON.stringify(value) ?? 'nothing').slice(1, -1);
}

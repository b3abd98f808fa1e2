/**
 * Defines library types. Each library type has a contract, a schema of its settings, a constructor, a directory in
 * src/tape, and a line in kinds.ts (docs/operators/libraries).
 *
 * Schemas also accept strings for numbers and booleans, because the command line passes strings. An empty or null
 * setting counts as missing.
 */
import { z } from 'zod';
import { quote, SettingsError } from '../core/errors.js';
import type { DriveLibrary } from './drive-library.js';
import type { StagingLibrary, StagingTerms } from './staging.js';

export interface Site {
  name: string;
  dataDir: string;
  env: Readonly<Record<string, string | undefined>>;
}

export interface DriveKind<Settings = unknown> {
  contract: 'drive';
  /** Whether the library finds a file on its volume by position or by path. */
  findsBy: 'position' | 'path';
  settings: z.ZodType<Settings>;
  /** Creates the library object. Does not open devices, files or connections. */
  create(settings: Settings, site: Site): DriveLibrary;
}

export interface StagingKind<Settings = unknown> {
  contract: 'staging';
  settings: z.ZodType<Settings>;
  create(settings: Settings, site: Site): StagingLibrary;
  terms(settings: Settings): StagingTerms;
}

export type Kind<Settings = unknown> = DriveKind<Settings> | StagingKind<Settings>;

/**
 * Validates settings, and converts each value to the type of its setting.
 * @throws SettingsError, whose message describes all faults
 */
export function parseSettings<T>(schema: z.ZodType<T>, given: unknown): T {
  const read = schema.safeParse(given);
  if (read.success) return read.data;
  const faults = new Map<string, string>();
  for (const issue of read.error.issues) {
    // remove list indexes from the path, so that the message names the setting that contains the list
    const path = issue.path.filter((part) => typeof part === 'string');
    const paths = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...path, key]) : [path];
    for (const each of paths) {
      const name = each.join('.') || 'settings';
      if (!faults.has(name)) faults.set(name, issue.message);
    }
  }
  const [[setting, problem] = ['settings', 'cannot be read'], ...others] = faults;
  throw new SettingsError(setting, [problem, ...others.map((other) => other.join(' '))].join('; '));
}

type Issue = Pick<z.core.$ZodRawIssue, 'code' | 'input' | 'path'>;

/** Matches the names of settings whose values must not appear in error messages. */
const NAMES_SECRET = /(secret|password|token|credentials|key)/i;

function show({ input, path = [] }: Issue): string {
  if (path.some((part) => NAMES_SECRET.test(String(part)))) return 'the given value';
  return showValue(input);
}

export function showValue(value: unknown): string {
  return typeof value === 'string' ? quote(value) : quote(JSON.stringify(value) ?? 'nothing').slice(1, -1);
}

/** Returns an option for a setting's schema that creates the message for an invalid or missing value. */
export function expects(expected: string) {
  const error = (issue: Issue) =>
    issue.input === undefined ? `must be given: ${expected}` : `must be ${expected}, not ${show(issue)}`;
  return { error };
}

/** Reports that the value of a setting conflicts with other settings. */
export function refuse(ctx: z.RefinementCtx, setting: string, problem: string): void {
  ctx.addIssue({ code: 'custom', path: [setting], message: problem });
}

/** Returns the schema of an object that contains only the settings in `shape`. */
export function settingsOf<Shape extends z.ZodRawShape>(shape: Shape) {
  const names = Object.keys(shape);
  const error = (issue: Issue) =>
    issue.code === 'unrecognized_keys'
      ? `is not a setting of this library type; its settings are ${names.join(', ')}`
      : `must be an object, not ${show(issue)}`;
  const isBlank = ([name, value]: [string, unknown]) => names.includes(name) && (value === '' || value === null);
  const withoutBlank = (given: unknown) => {
    if (typeof given !== 'object' || given === null || Array.isArray(given)) return given;
    return Object.fromEntries(Object.entries(given).filter((entry) => !isBlank(entry)));
  };
  return z.preprocess(withoutBlank, z.strictObject(shape, { error }));
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern finds control characters to reject
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Returns the schema of a one-line string. @param form pattern that the string must match */
export function text(expected = 'a single-line string', form = /^/) {
  const isRight = (value: string) => !CONTROL.test(value) && value.isWellFormed() && form.test(value);
  const rule = expects(expected);
  return z.preprocess(
    (value) => (typeof value === 'number' ? String(value) : value),
    z.string(rule).refine(isRight, rule),
  );
}

/** Schema of an absolute path. */
export const file = () => text('an absolute path', /^\//);

export const choice = <const Values extends readonly string[]>(values: Values) =>
  z.enum(values, expects(`one of ${values.join(', ')}`));

export function integer(least: number, most: number) {
  const rule = expects(`a whole number from ${least} to ${most}`);
  return z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int(rule).min(least, rule).max(most, rule),
  );
}

/** Returns the schema of a number of seconds. @param most the maximum number of seconds; by default one day */
export const seconds = (most = 86_400) => integer(1, most);

export const flag = () =>
  z.preprocess(
    (value) => (value === 'true' ? true : value === 'false' ? false : value),
    z.boolean(expects('true or false')),
  );

const LIST = 'a list of strings';

/** Returns the schema of a list with at least one item. */
export const listOf = <Item extends z.ZodType>(item: Item) => z.array(item, expects(LIST)).min(1, expects(LIST));

export const texts = () => listOf(text(LIST));

/**
 * Schema of an HTTP URL. Rejects credentials in the URL, because the database would store them. Error messages omit the
 * URL, because it might contain credentials.
 */
export const webUrl = () =>
  text().transform((value, ctx) => {
    const url = URL.canParse(value) ? new URL(value) : undefined;
    const isWeb = url && ['http:', 'https:'].includes(url.protocol);
    if (isWeb && [url.username, url.password, url.search, url.hash].every((part) => part === '')) return url;
    ctx.addIssue('must be an http or https URL without credentials or a query');
    return z.NEVER;
  });

/** Minimum and maximum time, in seconds, that a requested file is expected to take to arrive on disk. */
export interface Wait {
  least: number;
  most: number;
}

const MOST_MINUTES = 30 * 24 * 60;

/**
 * Settings for the expected time until a requested file is on disk. Estimates use these settings until Tapegate has
 * measured actual waits.
 */
export const waitSettings = {
  waitMinutes: integer(0, MOST_MINUTES)
    .optional()
    .describe('for estimates: minimum time until a file is on disk, in minutes'),
  waitMinutesMost: integer(0, MOST_MINUTES)
    .optional()
    .describe('for estimates: maximum time until a file is on disk, in minutes'),
};

/**
 * Returns the expected wait according to the settings in `waitSettings`, converted from minutes to seconds.
 * @param usual the wait if both settings are missing
 */
export function readWait(
  ctx: z.RefinementCtx,
  { waitMinutes, waitMinutesMost }: { waitMinutes?: number | undefined; waitMinutesMost?: number | undefined },
  usual?: Wait,
): Wait | undefined {
  if (waitMinutes === undefined && waitMinutesMost === undefined) return usual;
  refuseLess(ctx, ['waitMinutesMost', waitMinutesMost], ['waitMinutes', waitMinutes]);
  const [least, most] = [waitMinutes, waitMinutesMost].map((each) => (each === undefined ? undefined : each * 60));
  return {
    least: least ?? Math.min(usual?.least ?? 0, most ?? 0),
    most: most ?? Math.max(usual?.most ?? 0, least ?? 0),
  };
}

type NamedNumber = readonly [setting: string, value: number | undefined];

export function refuseLess(ctx: z.RefinementCtx, [name, value]: NamedNumber, [leastName, least]: NamedNumber): void {
  if (value === undefined || least === undefined || value >= least) return;
  refuse(ctx, name, `must be at least ${leastName} (${least}), not ${value}`);
}

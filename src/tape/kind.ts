/**
 * What each type of library has: its contract, a schema of its settings, and how one is made of them. A type has a directory, or a file,
 * and a line in kinds.ts. The descriptions of settings are those of the tables in the README of each type.
 *
 * From the command line all values are texts: numbers, `true` and `false` are accepted in both forms. A setting that is empty or null
 * counts as missing.
 */
import { z } from 'zod';
import { quote, SettingsError } from '../errors.js';
import type { TapeBackend } from './backend.js';
import type { StagingLibrary, StagingTerms } from './staging.js';

/** Where a library is made. */
export interface Site {
  /** Of the library. */
  name: string;
  /** Of this host. */
  dataDir: string;
  /** Of this process: some settings name a variable. */
  env: Readonly<Record<string, string | undefined>>;
}

export interface DriveKind<Settings = unknown> {
  contract: 'drive';
  /** How it finds a file on its volume. By path it needs no position, and reads in the order of the known positions. */
  findsBy: 'position' | 'path';
  settings: z.ZodType<Settings>;
  /** Opens nothing. */
  create(settings: Settings, site: Site): TapeBackend;
}

export interface StagingKind<Settings = unknown> {
  contract: 'staging';
  settings: z.ZodType<Settings>;
  /** Opens nothing. */
  create(settings: Settings, site: Site): StagingLibrary;
  terms(settings: Settings): StagingTerms;
}

export type Kind<Settings = unknown> = DriveKind<Settings> | StagingKind<Settings>;

/** @throws SettingsError with all faults; it names the setting of the first one */
export function parseSettings<T>(schema: z.ZodType<T>, given: unknown): T {
  const read = schema.safeParse(given);
  if (read.success) return read.data;
  const faults = new Map<string, string>();
  for (const issue of read.error.issues) {
    const place = issue.path.filter((part) => typeof part === 'string'); // an item of a list counts as its list
    const places = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...place, key]) : [place];
    for (const each of places) {
      const name = each.join('.') || 'settings';
      if (!faults.has(name)) faults.set(name, issue.message);
    }
  }
  const [[setting, problem] = ['settings', 'cannot be read'], ...others] = faults;
  throw new SettingsError(setting, [problem, ...others.map((other) => other.join(' '))].join('; '));
}

type Issue = Pick<z.core.$ZodRawIssue, 'code' | 'input' | 'path'>;

/** The value may be a secret if the setting says where one is. */
const NAMES_SECRET = /(secret|password|token|credentials|key)/i;

function show({ input, path = [] }: Issue): string {
  if (path.some((part) => NAMES_SECRET.test(String(part)))) return 'what is given';
  return showValue(input);
}

/** Shows a value of JSON in a message, a text in quotes. */
export function showValue(value: unknown): string {
  return typeof value === 'string' ? quote(value) : quote(JSON.stringify(value) ?? 'nothing').slice(1, -1);
}

/** The message of each fault of a setting. */
export function expects(expected: string) {
  const error = (issue: Issue) =>
    issue.input === undefined ? `must be given: ${expected}` : `must be ${expected}, not ${show(issue)}`;
  return { error };
}

/** Reports a fault that several settings have together. */
export function refuse(ctx: z.RefinementCtx, setting: string, problem: string): void {
  ctx.addIssue({ code: 'custom', path: [setting], message: problem });
}

/** An object of these settings and no others. */
export function settingsOf<Shape extends z.ZodRawShape>(shape: Shape) {
  const names = Object.keys(shape);
  const error = (issue: Issue) =>
    issue.code === 'unrecognized_keys'
      ? `is no setting of this kind; the settings are ${names.join(', ')}`
      : `must be an object, not ${show(issue)}`;
  const isBlank = ([name, value]: [string, unknown]) => names.includes(name) && (value === '' || value === null);
  const withoutBlank = (given: unknown) => {
    if (typeof given !== 'object' || given === null || Array.isArray(given)) return given;
    return Object.fromEntries(Object.entries(given).filter((entry) => !isBlank(entry)));
  };
  return z.preprocess(withoutBlank, z.strictObject(shape, { error }));
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f]/;

/** @param form of all of it */
export function text(expected = 'a text of one line', form = /^/) {
  const isRight = (value: string) => !CONTROL.test(value) && value.isWellFormed() && form.test(value);
  const rule = expects(expected);
  return z.preprocess(
    (value) => (typeof value === 'number' ? String(value) : value),
    z.string(rule).refine(isRight, rule),
  );
}

/** Absolute, since hosts start in different directories. */
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

/** @param most a day unless given */
export const seconds = (most = 86_400) => integer(1, most);

export const flag = () =>
  z.preprocess(
    (value) => (value === 'true' ? true : value === 'false' ? false : value),
    z.boolean(expects('true or false')),
  );

const LIST = 'a list of texts';

/** Contains at least one item. */
export const listOf = <Item extends z.ZodType>(item: Item) => z.array(item, expects(LIST)).min(1, expects(LIST));

export const texts = () => listOf(text(LIST));

/** A URL without a password, which would be stored. The message does not show the value, which may contain one. */
export const webUrl = () =>
  text().transform((value, ctx) => {
    const url = URL.canParse(value) ? new URL(value) : undefined;
    const isWeb = url && ['http:', 'https:'].includes(url.protocol);
    if (isWeb && [url.username, url.password, url.search, url.hash].every((part) => part === '')) return url;
    ctx.addIssue('must be an http or https URL without credentials and query, not what is given');
    return z.NEVER;
  });

/** Seconds. */
export interface Wait {
  least: number;
  most: number;
}

const MOST_MINUTES = 30 * 24 * 60;

/** How long files take to arrive on disk: for estimates, until measurements exist. */
export const waitSettings = {
  waitMinutes: integer(0, MOST_MINUTES)
    .optional()
    .describe('minutes until a file is on disk, for estimates: the least'),
  waitMinutesMost: integer(0, MOST_MINUTES).optional().describe('the most'),
};

/** @param usual unless a setting says otherwise @returns undefined if nothing is known */
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

type Named = readonly [setting: string, value: number | undefined];

/** Reports the first setting if it is less than the second. */
export function refuseLess(ctx: z.RefinementCtx, [name, value]: Named, [leastName, least]: Named): void {
  if (value === undefined || least === undefined || value >= least) return;
  refuse(ctx, name, `must be ${leastName} (${least}) at least, not ${value}`);
}

/** The settings of an S3 library: read, checked, and completed. No secret is among them: they name where it is. */
import { quote, SettingsError } from '../../errors.js';
import { readSettings, type SettingsReader } from '../kind.js';
import { readWait, type Wait, waitNames } from '../wait.js';

/** From the fastest and dearest to the slowest and cheapest. */
export const TIERS = ['Expedited', 'Standard', 'Bulk'] as const;
export type Tier = (typeof TIERS)[number];

/** A beginning of paths, and the beginning of keys that stands for it. */
export interface Prefix {
  path: string;
  key: string;
}

/** Where the credentials are: the environment and files are read anew while the library is used. */
export type CredentialsPlace =
  | { from: 'chain' }
  | { from: 'environment'; accessKeyId: string; secretAccessKey: string; sessionToken: string | undefined }
  | { from: 'file'; file: string; profile: string };

/** What the provider charges, in billionths of one currency. A GB is 2^30 bytes, as providers count. */
export interface Charges {
  currency: string;
  /** For what is brought back. */
  nanosPerGb: bigint;
  nanosPerThousandRequests: bigint;
  /** For the copy, as long as it stays. */
  nanosPerGbMonth: bigint;
}

export interface S3Settings {
  bucket: string;
  region: string;
  /** Undefined: that of AWS for the region. */
  endpoint: string | undefined;
  forcePathStyle: boolean;
  /** The longest path first. */
  prefixes: readonly Prefix[];
  tier: Tier;
  /** Tried in this order where the tier cannot be had. */
  fallbackTiers: readonly Tier[];
  /** How long a restored copy stays. */
  days: number;
  /** Whether lists tell of restores; `head` asks for each key by itself. */
  stateBy: 'list' | 'head';
  credentials: CredentialsPlace;
  pollSeconds: { least: number; most: number };
  /** Requests at once within one call. */
  concurrency: number;
  /** Of a file that is read: parts at once, and their size. Their product is what a reader takes of memory. */
  readParts: number;
  partBytes: number;
  /** Those that S3 has, beside the catalogue's. */
  compareChecksums: boolean;
  /** For an answer to come, and between two pieces of a long one. */
  timeoutSeconds: number;
  /** Undefined: nobody charges for it. */
  charges: Charges | undefined;
  /** Until a copy is there. */
  waitSeconds: Wait | undefined;
}

const NAMES = [
  ...['bucket', 'region', 'endpoint', 'forcePathStyle', 'prefixes'],
  ...['tier', 'fallbackTiers', 'days', 'stateBy'],
  ...['accessKeyIdEnv', 'secretAccessKeyEnv', 'sessionTokenEnv', 'credentialsFile', 'profile'],
  ...[
    'pollSeconds',
    'pollSecondsMost',
    'concurrency',
    'readParts',
    'partMegabytes',
    'compareChecksums',
    'timeoutSeconds',
  ],
  ...['currency', 'pricePerGb', 'pricePerThousandRequests', 'pricePerGbMonth', ...waitNames],
];

const MB = 1024 * 1024;

/** What each tier takes at its best says how often it is worth asking. */
const POLL_SECONDS: Record<Tier, { least: number; most: number }> = {
  Expedited: { least: 30, most: 120 },
  Standard: { least: 300, most: 1200 },
  Bulk: { least: 600, most: 1800 },
};

const HOUR = 3600;

/** Of S3 Glacier Flexible Retrieval, as Amazon's documentation has them; others have settings of their own. */
const WAIT_SECONDS: Record<Tier, Wait> = {
  Expedited: { least: 60, most: 300 },
  Standard: { least: 3 * HOUR, most: 5 * HOUR },
  Bulk: { least: 5 * HOUR, most: 12 * HOUR },
};

/** @throws SettingsError that names the setting and the value given */
export function parseS3Settings(given: unknown): S3Settings {
  const settings = readSettings(given, NAMES);
  const tier = settings.oneOf('tier', TIERS, 'Standard');
  return {
    bucket: readForm(settings, 'bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'the name of a bucket'),
    region: readForm(settings, 'region', /^[A-Za-z0-9-]{1,64}$/, 'the name of a region'),
    endpoint: parseEndpoint(settings),
    forcePathStyle: settings.flag('forcePathStyle', false),
    prefixes: parsePrefixes(settings),
    tier,
    fallbackTiers: parseTiers(settings).filter((each) => each !== tier),
    days: settings.integer('days', { least: 1, most: 3650, fallback: 3 }),
    stateBy: settings.oneOf('stateBy', ['list', 'head'], 'list'),
    credentials: parseCredentials(settings),
    pollSeconds: parsePollSeconds(settings, tier),
    concurrency: settings.integer('concurrency', { least: 1, most: 256, fallback: 16 }),
    readParts: settings.integer('readParts', { least: 1, most: 32, fallback: 4 }),
    partBytes: settings.integer('partMegabytes', { least: 1, most: 256, fallback: 4 }) * MB,
    compareChecksums: settings.flag('compareChecksums', true),
    timeoutSeconds: settings.integer('timeoutSeconds', { least: 1, most: 600, fallback: 60 }),
    charges: parseCharges(settings),
    waitSeconds: readWait(settings, WAIT_SECONDS[tier]),
  };
}

function readForm(settings: SettingsReader, name: string, form: RegExp, expected: string): string {
  const value = settings.text(name);
  if (!form.test(value)) throw new SettingsError(name, `must be ${expected}, not ${quote(value)}`);
  return value;
}

function parseEndpoint(settings: SettingsReader): string | undefined {
  const value = settings.text('endpoint', undefined);
  if (value === undefined) return undefined;
  const url = URL.canParse(value) ? new URL(value) : undefined;
  const isPlain = url && ['http:', 'https:'].includes(url.protocol) && url.username === '' && url.password === '';
  // what is none may hold a password: it is not told
  if (!isPlain || url.search !== '' || url.hash !== '')
    throw new SettingsError(
      'endpoint',
      'must be an http or https URL without credentials and query, not what is given',
    );
  return url.href;
}

/** Without any, the key of a file is its path without the slash that it begins with. */
function parsePrefixes(settings: SettingsReader): Prefix[] {
  const prefixes = settings.list('prefixes', ['/=']).map((given): Prefix => {
    const [, path, key] = /^(\/[^=]*)=(.*)$/s.exec(given) ?? [];
    if (path === undefined || key === undefined)
      throw new SettingsError(
        'prefixes',
        `must each be a beginning of paths, "=", and that of keys, not ${quote(given)}`,
      );
    return { path, key };
  });
  return prefixes.sort((a, b) => b.path.length - a.path.length);
}

function parseTiers(settings: SettingsReader): Tier[] {
  return settings.list('fallbackTiers', []).map((given) => {
    const tier = TIERS.find((each) => each === given);
    if (!tier) throw new SettingsError('fallbackTiers', `must be of ${TIERS.join(', ')}, not ${quote(given)}`);
    return tier;
  });
}

function parseCredentials(settings: SettingsReader): CredentialsPlace {
  const accessKeyId = readVariable(settings, 'accessKeyIdEnv');
  const secretAccessKey = readVariable(settings, 'secretAccessKeyEnv');
  const sessionToken = readVariable(settings, 'sessionTokenEnv');
  const file = settings.file('credentialsFile', undefined);
  const profile = settings.text('profile', undefined);
  const variable = accessKeyId ?? secretAccessKey ?? sessionToken;
  if (file !== undefined && variable !== undefined)
    throw new SettingsError(
      'credentialsFile',
      `cannot be ${quote(file)} where the variable ${quote(variable)} is named`,
    );
  if (profile !== undefined && file === undefined)
    throw new SettingsError('profile', `${quote(profile)} is a section of credentialsFile, which is not given`);
  if (file !== undefined) return { from: 'file', file, profile: profile ?? 'default' };
  if (accessKeyId !== undefined && secretAccessKey !== undefined)
    return { from: 'environment', accessKeyId, secretAccessKey, sessionToken };
  if (variable !== undefined)
    throw new SettingsError(
      'accessKeyIdEnv',
      `and secretAccessKeyEnv must be given both, not ${quote(variable)} alone`,
    );
  return { from: 'chain' };
}

/** An id of an access key, and a secret one, which may look like a name as well. */
const KEY = /^(?:A[A-Z]IA[A-Z0-9]{16}|[A-Za-z0-9]{40})$/;

/** What should be the name of a variable, and may be what should be in it: that would stand in the database, so that it is neither taken nor told. */
function readVariable(settings: SettingsReader, name: string): string | undefined {
  const variable = settings.text(name, undefined);
  if (variable === undefined || (/^[A-Za-z_]\w*$/.test(variable) && !KEY.test(variable))) return variable;
  throw new SettingsError(name, 'must be the name of a variable that has it, not what is given');
}

function parsePollSeconds(settings: SettingsReader, tier: Tier): { least: number; most: number } {
  const usual = POLL_SECONDS[tier];
  const least = settings.integer('pollSeconds', { least: 1, most: 86_400, fallback: usual.least });
  const most = settings.integer('pollSecondsMost', { least, most: 86_400, fallback: Math.max(usual.most, least) });
  return { least, most };
}

const PRICES = ['pricePerGb', 'pricePerThousandRequests', 'pricePerGbMonth'] as const;

function parseCharges(settings: SettingsReader): Charges | undefined {
  const [nanosPerGb = 0n, nanosPerThousandRequests = 0n, nanosPerGbMonth = 0n] = PRICES.map((name) => {
    const value = settings.text(name, '0');
    const [, whole, fraction = ''] = /^(\d{1,9})(?:\.(\d{1,9}))?$/.exec(value) ?? [];
    if (whole === undefined) throw new SettingsError(name, `must be an amount such as 0.0025, not ${quote(value)}`);
    return BigInt(whole + fraction.padEnd(9, '0'));
  });
  const currency = settings.text('currency', undefined);
  if (currency === undefined) {
    const priced = PRICES.find((name) => settings.text(name, undefined) !== undefined);
    if (priced) throw new SettingsError('currency', `must be given, such as EUR, where there is a ${priced}`);
    return undefined;
  }
  if (!/^[A-Z]{3}$/.test(currency))
    throw new SettingsError('currency', `must have three letters, such as EUR, not ${quote(currency)}`);
  return { currency, nanosPerGb, nanosPerThousandRequests, nanosPerGbMonth };
}

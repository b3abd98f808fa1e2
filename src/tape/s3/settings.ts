/** Settings and prices for the library type `s3`, for archive classes in S3 or in a compatible system. */
import { z } from 'zod';
import { quote } from '../../core/errors.js';
import { secretName } from '../host-files.js';
import {
  choice,
  expects,
  flag,
  integer,
  listOf,
  readWait,
  refuse,
  refuseLess,
  seconds,
  settingsOf,
  text,
  type Wait,
  waitSettings,
  webUrl,
} from '../kind.js';
import type { Charge, Price } from '../staging.js';

const TIERS = ['Expedited', 'Standard', 'Bulk'] as const;
export type Tier = (typeof TIERS)[number];

/** Maps a catalogue path that begins with `path` to an object key that begins with `key`. */
export interface Prefix {
  path: string;
  key: string;
}

/** A section of a credentials file. The library rereads the credentials file about every minute. */
interface CredentialsPlace {
  file: string;
  profile: string;
}

/** Prices in billionths of a currency unit. One GB is 2^30 bytes, as in providers' price lists. */
interface Charges {
  currency: string;
  nanosPerGb: bigint;
  nanosPerThousandRequests: bigint;
  nanosPerGbMonth: bigint;
}

const MB = 1024 * 1024;

/** Shortest and longest poll interval for each retrieval tier, based on the tier's shortest retrieval time. */
const POLL_SECONDS: Record<Tier, Wait> = {
  Expedited: { least: 30, most: 120 },
  Standard: { least: 300, most: 1200 },
  Bulk: { least: 600, most: 1800 },
};

const HOUR = 3600;

/** Retrieval times of each tier in S3 Glacier Flexible Retrieval, from Amazon's documentation. */
const WAIT_SECONDS: Record<Tier, Wait> = {
  Expedited: { least: 60, most: 300 },
  Standard: { least: 3 * HOUR, most: 5 * HOUR },
  Bulk: { least: 5 * HOUR, most: 12 * HOUR },
};

/** Schema of a setting that maps a path prefix to a key prefix. */
const prefix = text().transform((given, ctx): Prefix => {
  const [, path, key] = /^(\/[^=]*)=(.*)$/s.exec(given) ?? [];
  if (path !== undefined && key !== undefined) return { path, key };
  ctx.addIssue(`must contain entries <path prefix>=<key prefix>, such as /data/=archive/, not ${quote(given)}`);
  return z.NEVER;
});

/** Schema of a decimal amount of money. Converts the amount to billionths. */
const amount = () =>
  text('an amount such as 0.0025', /^\d{1,9}(\.\d{1,9})?$/)
    .transform((value) => {
      const [whole = '', fraction = ''] = value.split('.');
      return BigInt(whole + fraction.padEnd(9, '0'));
    })
    .optional();

const given = settingsOf({
  bucket: text('the name of a bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/).describe(
    'bucket that contains the objects',
  ),
  region: text('the name of a region', /^[A-Za-z0-9-]{1,64}$/).describe('region of the bucket'),
  endpoint: webUrl().optional().describe('endpoint URL of a provider other than AWS'),
  forcePathStyle: flag()
    .default(false)
    .describe('whether URLs contain the bucket in the path instead of the host name'),
  prefixes: listOf(prefix)
    .default([{ path: '/', key: '' }])
    .describe('path prefixes, each with a prefix for object keys; the longest matching path prefix applies'),
  tier: choice(TIERS).default('Standard').describe('retrieval tier, which determines speed and price'),
  fallbackTiers: listOf(z.enum(TIERS, expects(`of ${TIERS.join(', ')}`)))
    .default([])
    .describe('tiers to use, in order of preference, if `tier` is not available'),
  days: integer(1, 3650).default(3).describe('number of days for which restored copies are kept'),
  credentialsFile: secretName().optional().describe('AWS credentials file, readable only by its owner'),
  profile: text().optional().describe('section of `credentialsFile`; default: the section `default`'),
  archiveClasses: listOf(text('the name of a storage class', /^[A-Za-z0-9_.-]{1,64}$/))
    .default(['GLACIER', 'DEEP_ARCHIVE'])
    .describe(
      'storage classes whose objects must be restored before a read; for an object of any other class, Tapegate reads one byte to check whether the object can be read',
    ),
  pollSeconds: seconds().optional().describe('minimum time between polls; the default depends on the tier'),
  pollSecondsMost: seconds().optional().describe('maximum time between polls'),
  concurrency: integer(1, 256).default(16).describe('maximum number of concurrent S3 requests for a batch of files'),
  readParts: integer(1, 32).default(4).describe('number of parts of a file to read concurrently'),
  partMegabytes: integer(1, 256)
    .default(4)
    .describe('size of a part; each file read uses readParts times this much memory'),
  timeoutSeconds: seconds(600).default(60).describe('timeout for a response, and for each read from its body'),
  currency: text('three letters, such as EUR', /^[A-Z]{3}$/)
    .optional()
    .describe('currency of the prices'),
  pricePerGb: amount().describe('price to retrieve a GB'),
  pricePerThousandRequests: amount().describe('price for 1000 restore requests'),
  pricePerGbMonth: amount().describe('price to store a GB of copies for a month'),
  ...waitSettings,
});

type Given = z.output<typeof given>;

export const s3Settings = given.transform((settings, ctx) => {
  const { tier, endpoint } = settings;
  const poll = POLL_SECONDS[tier];
  const { pollSeconds: least = poll.least, pollSecondsMost: most = Math.max(poll.most, least) } = settings;
  refuseLess(ctx, ['pollSecondsMost', most], ['pollSeconds', least]);
  return {
    ...settings,
    endpoint: endpoint?.href,
    prefixes: settings.prefixes.sort((a, b) => b.path.length - a.path.length),
    fallbackTiers: settings.fallbackTiers.filter((each) => each !== tier),
    credentials: findCredentials(ctx, settings),
    pollSeconds: { least, most },
    partBytes: settings.partMegabytes * MB,
    charges: findCharges(ctx, settings),
    waitSeconds: readWait(ctx, settings, WAIT_SECONDS[tier]),
  };
});

export type S3Settings = z.output<typeof s3Settings>;

/**
 * Returns the credentials file and its section from the settings. Returns undefined if the library uses the host's own
 * credentials; these are sent only to AWS.
 */
function findCredentials(ctx: z.RefinementCtx, settings: Given): CredentialsPlace | undefined {
  const { credentialsFile: file, profile, endpoint } = settings;
  if (file !== undefined) return { file, profile: profile ?? 'default' };
  if (profile !== undefined)
    refuse(ctx, 'profile', `${quote(profile)} is a section of credentialsFile, which is not set`);
  if (endpoint !== undefined)
    refuse(ctx, 'credentialsFile', "is required with endpoint: the host's own credentials are sent only to AWS");
  return undefined;
}

/** Returns the prices in the settings; undefined if the settings do not contain a currency. */
function findCharges(ctx: z.RefinementCtx, settings: Given): Charges | undefined {
  const { currency, pricePerGb, pricePerThousandRequests, pricePerGbMonth } = settings;
  if (currency === undefined) {
    const prices = { pricePerGb, pricePerThousandRequests, pricePerGbMonth };
    const [priced] = Object.entries(prices).find(([, price]) => price !== undefined) ?? [];
    if (priced !== undefined) refuse(ctx, 'currency', `is required with ${priced}, for example EUR`);
    return undefined;
  }
  return {
    currency,
    nanosPerGb: pricePerGb ?? 0n,
    nanosPerThousandRequests: pricePerThousandRequests ?? 0n,
    nanosPerGbMonth: pricePerGbMonth ?? 0n,
  };
}

const GB = 2n ** 30n;
const DAYS_OF_A_MONTH = 30n;
const NANOS_A_MICRO = 1000n;

export function priceOf(
  charges: Charges,
  { tier, days }: { tier: Tier; days: number },
  { count, bytes }: { count: number; bytes: bigint },
): Price {
  const retrieved = bytes * charges.nanosPerGb;
  const storage = bytes * charges.nanosPerGbMonth * BigInt(days);
  const parts: Charge[] = [];
  const add = (rate: bigint, micros: bigint, what: string) => {
    if (rate > 0n) parts.push({ micros, what });
  };
  add(charges.nanosPerGb, toMicros(retrieved, GB), `to retrieve ${formatGb(bytes)} (${tier})`);
  const asked = BigInt(count) * charges.nanosPerThousandRequests;
  add(charges.nanosPerThousandRequests, toMicros(asked, 1000n), `for ${count} restore requests`);
  add(
    charges.nanosPerGbMonth,
    toMicros(storage, GB * DAYS_OF_A_MONTH),
    `to keep the copies for ${days} ${days === 1 ? 'day' : 'days'}`,
  );
  return { currency: charges.currency, parts };
}

/** Divides an amount, in billionths of the currency, by `of`. Returns the quotient in millionths, rounded up. */
function toMicros(nanos: bigint, of: bigint): bigint {
  const whole = of * NANOS_A_MICRO;
  return (nanos + whole - 1n) / whole;
}

function formatGb(bytes: bigint): string {
  const gb = Number(bytes) / Number(GB);
  return bytes > 0n && gb < 0.1 ? 'less than 0.1 GB' : `${gb.toFixed(1)} GB`;
}

/** The settings of a WLCG library: read, checked and completed. No secret is among them: they name where it is. */
import { quote, SettingsError } from '../../errors.js';
import type { TimeLimits } from '../http/exchange.js';
import type { IdentityFiles } from '../http/identity.js';
import { isLoopback } from '../http/loopback.js';
import type { TokenPlace } from '../http/token.js';
import { readSettings, type SettingsReader } from '../kind.js';
import { readWait, type Wait, waitNames } from '../wait.js';
import { type PathPrefixes, readPrefix } from './paths.js';

export interface WlcgSettings {
  /** Of the door for the bytes; what stands behind the host comes before each path. */
  url: URL;
  prefixes: PathPrefixes;
  discoveryUrl: URL;
  token: TokenPlace | undefined;
  /** Origins that get the token and the client's certificate. */
  trusted: ReadonlySet<string>;
  identity: IdentityFiles;
  /** As ISO 8601 has it; undefined: the system's own. */
  diskLifetime: string | undefined;
  /** By the names of sites. */
  targetedMetadata: Record<string, unknown> | undefined;
  /** Whether the system lets go of what is released. */
  releases: boolean;
  /** Files in one call at most. */
  chunks: { stage: number; info: number; release: number };
  pollSeconds: { least: number; most: number };
  limits: TimeLimits;
  /** Connections for bytes at once. */
  sockets: number;
  /** Until a file is on disk there; undefined: the settings do not tell. */
  waitSeconds: Wait | undefined;
}

const NAMES = [
  ...['url', 'pathPrefix', 'remotePathPrefix', 'discoveryUrl', 'tokenFile', 'tokenEnv', 'tokenOrigins'],
  ...['caFile', 'certFile', 'keyFile', 'diskLifetime', 'targetedMetadata', 'releases'],
  ...['stageFiles', 'infoFiles', 'releaseFiles', 'pollLeastSeconds', 'pollMostSeconds'],
  ...['connectSeconds', 'answerSeconds', 'silenceSeconds', 'sockets', ...waitNames],
];

const WELL_KNOWN = '/.well-known/wlcg-tape-rest-api';

/** @throws SettingsError that names the setting and the value given */
export function parseWlcgSettings(settings: unknown): WlcgSettings {
  const reader = readSettings(settings, NAMES);
  const url = readUrl(reader.text('url'), 'url');
  const discovery = reader.text('discoveryUrl', undefined);
  const discoveryUrl = discovery === undefined ? new URL(WELL_KNOWN, url) : readUrl(discovery, 'discoveryUrl');
  const files = (name: string, fallback: number) => reader.integer(name, { least: 1, most: 10_000, fallback });
  const seconds = (name: string, fallback: number) => reader.integer(name, { least: 1, most: 86_400, fallback });
  const least = seconds('pollLeastSeconds', 60);
  const most = seconds('pollMostSeconds', Math.max(600, least));
  if (most < least)
    throw new SettingsError('pollMostSeconds', `must be pollLeastSeconds (${least}) at least, not ${most}`);
  return {
    url,
    prefixes: {
      own: readPrefix(reader.file('pathPrefix', '/')),
      remote: readPrefix(reader.file('remotePathPrefix', reader.file('pathPrefix', '/'))),
    },
    discoveryUrl,
    token: readTokenPlace(reader),
    trusted: new Set([url.origin, discoveryUrl.origin, ...readOrigins(reader)]),
    identity: readIdentity(reader),
    diskLifetime: readLifetime(reader),
    targetedMetadata: readMetadata((settings as Record<string, unknown>).targetedMetadata ?? undefined),
    releases: reader.flag('releases', true),
    chunks: { stage: files('stageFiles', 500), info: files('infoFiles', 500), release: files('releaseFiles', 500) },
    pollSeconds: { least, most },
    limits: {
      connectMs: seconds('connectSeconds', 30) * 1000,
      answerMs: seconds('answerSeconds', 120) * 1000,
      silenceMs: seconds('silenceSeconds', 120) * 1000,
    },
    sockets: reader.integer('sockets', { least: 1, most: 1024, fallback: 64 }),
    waitSeconds: readWait(reader),
  };
}

function readUrl(text: string, name: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url && url.username === '' && url.password === '' && url.search === '' && url.hash === '';
  if (!isPlain) {
    // a password may be anywhere in what is no such URL
    throw new SettingsError(
      name,
      `must be a URL without a login and without a query, not one of ${text.length} characters`,
    );
  }
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url))) return url;
  throw new SettingsError(name, `must begin with https:// (http:// on this host alone), not ${quote(url.href)}`);
}

function readTokenPlace(reader: SettingsReader): TokenPlace | undefined {
  const file = reader.file('tokenFile', undefined);
  const variable = reader.text('tokenEnv', undefined);
  if (variable === undefined) return file === undefined ? undefined : { file };
  if (file !== undefined)
    throw new SettingsError('tokenEnv', `cannot be given beside tokenFile, which is ${quote(file)}`);
  if (/^[A-Za-z_]\w*$/.test(variable)) return { variable };
  throw new SettingsError('tokenEnv', 'must be the name of a variable'); // it may be the token itself
}

function readOrigins(reader: SettingsReader): string[] {
  return reader.list('tokenOrigins', []).map((text) => {
    const url = readUrl(text, 'tokenOrigins');
    if (url.pathname === '/') return url.origin;
    throw new SettingsError('tokenOrigins', `must be like https://host:port, not ${quote(text)}`);
  });
}

function readIdentity(reader: SettingsReader): IdentityFiles {
  const [ca, cert, key] = ['caFile', 'certFile', 'keyFile'].map((name) => reader.file(name, undefined));
  if (key !== undefined && cert === undefined)
    throw new SettingsError('certFile', `must be given beside keyFile, which is ${quote(key)}`);
  // the certificate of a proxy has its key in the same file
  const own = cert === undefined ? {} : { cert, key: key ?? cert };
  return ca === undefined ? own : { ca, ...own };
}

/** Without years, months and weeks: they are no fixed time, or not known to all servers. */
const LIFETIME = /^P(?=\d|T\d)(?:(\d{1,5})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$/;

function readLifetime(reader: SettingsReader): string | undefined {
  const text = reader.text('diskLifetime', undefined);
  if (text === undefined || lifetimeMs(text) > 0) return text;
  throw new SettingsError('diskLifetime', `must be a duration like P2D or PT36H, not ${quote(text)}`);
}

/** @returns 0 for what is no duration */
export function lifetimeMs(text: string): number {
  const parts =
    LIFETIME.exec(text)
      ?.slice(1)
      .map((part) => Number(part ?? 0)) ?? [];
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = parts;
  return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000;
}

const MAX_METADATA = 4096;

function readMetadata(value: unknown): Record<string, unknown> | undefined {
  if (value === undefined || value === '') return undefined;
  const metadata = typeof value === 'string' ? parseJson(value) : value;
  const isObject = (each: unknown) => typeof each === 'object' && each !== null && !Array.isArray(each);
  const text = JSON.stringify(metadata);
  if (!isObject(metadata) || !Object.values(metadata as object).every(isObject)) {
    throw new SettingsError(
      'targetedMetadata',
      `must be an object with an object for each site, not ${quote(typeof value === 'string' ? value : (text ?? ''))}`,
    );
  }
  if (text.length <= MAX_METADATA) return metadata as Record<string, unknown>;
  throw new SettingsError('targetedMetadata', `must have ${MAX_METADATA} characters at most, not ${text.length}`); // each file has it
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

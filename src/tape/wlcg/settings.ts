/** Settings for the library type `wlcg`. */
import { z } from 'zod';
import { quote, TapeError } from '../../core/errors.js';
import { isLoopback } from '../../core/net/address-ranges.js';
import { bareHost } from '../../core/net/issuer-urls.js';
import { secretName } from '../host-files.js';
import type { IdentityFiles } from '../http/site-client.js';
import {
  expects,
  file,
  flag,
  integer,
  listOf,
  readWait,
  refuse,
  refuseLess,
  seconds,
  settingsOf,
  text,
  waitSettings,
  webUrl,
} from '../kind.js';

const WELL_KNOWN = '/.well-known/wlcg-tape-rest-api';

/**
 * Schema of an https URL. Also accepts an http URL for this host, because traffic within one host does not need TLS.
 */
const safeUrl = () =>
  webUrl().refine((url) => url.protocol === 'https:' || isLoopback(bareHost(url.hostname)), {
    error: ({ input }) => `must begin with https:// (or http:// for this host), not ${quote(String(input))}`,
  });

const origin = safeUrl()
  .refine((url) => url.pathname === '/', {
    error: ({ input }) => `must be like https://host:port, not ${quote(String(input))}`,
  })
  .transform((url) => url.origin);

/**
 * Pattern for an ISO 8601 duration in days, hours, minutes and seconds. Rejects years and months, because their lengths
 * vary, and weeks, because some servers reject them.
 */
const LIFETIME = /^P(?=\d|T\d)(?:(\d{1,5})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$/;

/** Converts an ISO 8601 duration to milliseconds. Returns 0 if `duration` is invalid. */
export function lifetimeMs(duration: string): number {
  const parts = LIFETIME.exec(duration)?.slice(1) ?? [];
  const [days = 0, hours = 0, minutes = 0, rest = 0] = parts.map((part) => Number(part ?? 0));
  return (((days * 24 + hours) * 60 + minutes) * 60 + rest) * 1000;
}

const DURATION = expects('a duration like P2D or PT36H');

/**
 * Maximum length of `targetedMetadata` as JSON, in characters. The length is limited because a stage request repeats
 * the metadata for each file.
 */
const MAX_METADATA = 4096;

/** Schema of `targetedMetadata`, which can be an object, or a string that contains the object as JSON. */
const metadata = z.unknown().transform((given, ctx) => {
  const read = z.record(z.string(), z.record(z.string(), z.unknown())).safeParse(parseJson(given));
  const shown = typeof given === 'string' ? given : JSON.stringify(given);
  const length = JSON.stringify(read.data)?.length ?? 0;
  if (read.success && length <= MAX_METADATA) return read.data;
  ctx.addIssue(
    read.success
      ? `must have at most ${MAX_METADATA} characters, not ${length}`
      : `must be an object that maps each site name to an object, not ${quote(shown)}`,
  );
  return z.NEVER;
});

function parseJson(given: unknown): unknown {
  try {
    return typeof given === 'string' ? JSON.parse(given) : given;
  } catch {
    return undefined;
  }
}

const filesOfCall = () => integer(1, 10_000).default(500);

const given = settingsOf({
  url: safeUrl().describe('URL for file data; Tapegate appends each file path to it'),
  pathPrefix: file().default('/').describe("prefix of this library's paths in the catalogue"),
  remotePathPrefix: file()
    .optional()
    .describe('prefix of the same paths at the endpoint; default: the value of `pathPrefix`'),
  discoveryUrl: safeUrl()
    .optional()
    .describe('URL of the discovery document of the tape API; default: on the host of `url`'),
  tokenFile: secretName().optional().describe('file that contains a bearer token, read for each call'),
  tokenOrigins: listOf(origin)
    .default([])
    .describe('other servers to which Tapegate sends the token and the certificate'),
  caFile: secretName().optional().describe('trusted certificate authorities in PEM; default: those of the system'),
  certFile: secretName().optional().describe('client certificate in PEM'),
  keyFile: secretName().optional().describe('private key of the certificate; default: the key in `certFile`'),
  diskLifetime: text()
    .refine((duration) => lifetimeMs(duration) > 0, DURATION)
    .optional()
    .describe("how long staged files stay on the server's disk; default: set by the server"),
  targetedMetadata: metadata.optional().describe('metadata to send with each file, by site name'),
  releases: flag().default(true).describe('whether Tapegate releases staged files'),
  stageFiles: filesOfCall().describe('files per stage request'),
  infoFiles: filesOfCall().describe('files per locality query'),
  releaseFiles: filesOfCall().describe('files per release request'),
  pollLeastSeconds: seconds().default(60).describe('minimum time between polls'),
  pollMostSeconds: seconds().optional().describe('maximum time between polls'),
  connectSeconds: seconds().default(30).describe('timeout for opening a connection'),
  answerSeconds: seconds().default(120).describe('timeout for the response header'),
  silenceSeconds: seconds().default(120).describe('timeout for each read from a response body'),
  sockets: integer(1, 1024).default(64).describe('concurrent connections for file data'),
  ...waitSettings,
});

type Given = z.output<typeof given>;

export const wlcgSettings = given.transform((settings, ctx) => {
  const { url, pathPrefix, pollLeastSeconds: least } = settings;
  const { discoveryUrl = new URL(WELL_KNOWN, url), remotePathPrefix = pathPrefix } = settings;
  const { pollMostSeconds: most = Math.max(600, least) } = settings;
  refuseLess(ctx, ['pollMostSeconds', most], ['pollLeastSeconds', least]);
  return {
    ...settings,
    discoveryUrl,
    /** Path prefixes without a trailing slash. */
    prefixes: { own: readPrefix(pathPrefix), remote: readPrefix(remotePathPrefix) },
    token: settings.tokenFile,
    /** Origins that receive the token and the client certificate. */
    trusted: new Set([url.origin, discoveryUrl.origin, ...settings.tokenOrigins]) as ReadonlySet<string>,
    identity: findIdentity(ctx, settings),
    pollSeconds: { least, most },
    limits: {
      connectMs: settings.connectSeconds * 1000,
      answerMs: settings.answerSeconds * 1000,
      silenceMs: settings.silenceSeconds * 1000,
    },
    waitSeconds: readWait(ctx, settings),
  };
});

export type WlcgSettings = z.output<typeof wlcgSettings>;

function findIdentity(ctx: z.RefinementCtx, { caFile: ca, certFile: cert, keyFile: key }: Given): IdentityFiles {
  if (key !== undefined && cert === undefined)
    refuse(ctx, 'certFile', `is required with keyFile, which is ${quote(key)}`);
  // by default, read the key from the certificate file, because the file of a proxy certificate also contains the key
  return { ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert, key: key ?? cert }) };
}

/**
 * A mapping of paths: each catalogue path below `own` corresponds to a remote path below `remote`. Neither prefix has a
 * trailing slash.
 */
interface PathPrefixes {
  own: string;
  remote: string;
}

function readPrefix(text: string): string {
  return normalisePath(text).replace(/^\/$/, '');
}

/** Merges repeated slashes in a path and removes a trailing slash, because some servers also do so. */
export function normalisePath(path: string): string {
  return path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
}

/**
 * Converts a catalogue path to a remote path.
 * @throws TapeError PERMANENT if the catalogue path does not have a valid remote path
 */
export function toRemotePath({ own, remote }: PathPrefixes, path: string): string {
  const normal = normalisePath(path);
  if (!normal.startsWith(`${own}/`)) {
    throw new TapeError(
      'PERMANENT',
      `${quote(path)} is not below the pathPrefix of the library, ${quote(own === '' ? '/' : own)}`,
    );
  }
  // reject dot segments, because a server might resolve them to another file's path
  if (/\/\.{1,2}(\/|$)/.test(normal))
    throw new TapeError(
      'PERMANENT',
      `${quote(path)} has a component "." or "..", which is not allowed in this library`,
    );
  if (!normal.isWellFormed()) throw new TapeError('PERMANENT', `${quote(path)} is not valid Unicode`);
  return remote + normal.slice(own.length);
}

export function toUrl(endpoint: URL, remotePath: string): URL {
  const url = new URL(endpoint);
  url.pathname = `${endpoint.pathname.replace(/\/$/, '')}${remotePath.split('/').map(encodeURIComponent).join('/')}`;
  return url;
}

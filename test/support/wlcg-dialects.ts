/** Differences between servers of the WLCG Tape REST API: input that each server rejects, and the form of answers. */
import { adler32, hashOf, type StageRequest, type Target } from './wlcg-storage.js';

export type DialectName = 'dcache' | 'eos' | 'storm';

export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
}

export interface Dialect {
  /** Path prefix of the API. */
  base: string;
  /** Whether a released file leaves the disk. */
  releases: boolean;
  /** Whether a cancelled recall continues. */
  recallsGoOn: boolean;
  maxFiles: number;
  /** Whether unknown fields are rejected. */
  isStrict: boolean;
  /** Whether a release of files outside the demand is rejected. */
  checksReleases: boolean;
  /** Whether the server redirects reads to another server. */
  hasPool: boolean;
  /** Status of a GET of a file that is only on tape. */
  notOnDisk: number;
  /** Status of a call that a busy server rejects. */
  busy: number;
  problem(status: number, title: string, detail: string): Answer;
  poll(request: StageRequest): unknown;
  /** Whether localities contain paths in the form that the client sent. */
  echoes: boolean;
  localityOf(locality: string): string;
  digest(bytes: Buffer): Record<string, string>;
}

const seconds = (ms: number) => Math.floor(ms / 1000);

const asJson = (type: string) => (status: number, title: string, detail: string) => ({
  status,
  headers: { 'content-type': type },
  body: { status, title, detail },
});

export const dialects: Record<DialectName, Dialect> = {
  /** dCache: times in milliseconds, a state and times for each file, no nulls, and error texts in headers. */
  dcache: {
    base: '/api/v1/tape',
    releases: true,
    recallsGoOn: false,
    maxFiles: 500,
    isStrict: true,
    checksReleases: false,
    hasPool: true,
    notOnDisk: 403,
    busy: 429,
    problem: (status, title, detail) => ({ status, headers: { title, detail } }),
    poll: ({ id, createdAt, files }) => ({
      id,
      createdAt,
      startedAt: createdAt,
      ...(isEnded(files) ? { completedAt: Date.now() } : {}),
      files: [...files].map(([path, { state, error, finishedAt }]) => ({
        path,
        state: state === 'SUBMITTED' ? 'STARTED' : state,
        startedAt: createdAt,
        finishedAt,
        error,
      })),
    }),
    echoes: false,
    localityOf: (locality) => locality,
    digest: (bytes) => ({ digest: `adler32=${adler32(bytes).toString('hex')}` }),
  },
  /** EOS with CTA: times in seconds, `onDisk` or an error for each file, and paths in the form that the client sent. */
  eos: {
    base: '/api/v1',
    releases: true,
    recallsGoOn: false,
    maxFiles: Number.POSITIVE_INFINITY,
    isStrict: false,
    checksReleases: false,
    hasPool: false,
    notOnDisk: 409,
    busy: 503,
    problem: asJson('application/json'),
    poll: ({ id, createdAt, files }) => ({
      id,
      createdAt: seconds(createdAt),
      startedAt: seconds(createdAt),
      files: [...files.values()].map(({ given, state, error }) =>
        error === undefined ? { path: given, onDisk: state === 'COMPLETED' } : { path: given, error, onDisk: null },
      ),
    }),
    echoes: true,
    localityOf: (locality) => locality,
    digest: (bytes) => ({ 'repr-digest': `adler=:${adler32(bytes).toString('base64')}:` }),
  },
  /**
   * StoRM: times in seconds with zeros for unknown times, and states without an error text. Releases change nothing.
   */
  storm: {
    base: '/tape/v1/',
    releases: false,
    recallsGoOn: true,
    maxFiles: Number.POSITIVE_INFINITY,
    isStrict: false,
    checksReleases: true,
    hasPool: false,
    notOnDisk: 423,
    busy: 429,
    problem: asJson('application/problem+json'),
    poll: ({ id, createdAt, files }) => ({
      id,
      createdAt: seconds(createdAt),
      startedAt: 0,
      completedAt: 0,
      files: [...files].map(([path, { state }]) => ({ path, state, position: null })).reverse(),
    }),
    echoes: false,
    localityOf: (locality) => (locality === 'LOST' ? 'UNAVAILABLE' : locality),
    digest: (bytes) => ({ digest: `sha-256=${hashOf('sha256', bytes)},MD5=${hashOf('md5', bytes)}` }),
  },
};

function isEnded(files: ReadonlyMap<string, Target>): boolean {
  return [...files.values()].every(({ state }) => state !== 'SUBMITTED');
}

const DURATION = /^P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?$/;

/** @returns the paths in a body, or the reason why the body is rejected */
export function readBodyOf(dialect: Dialect, kind: 'files' | 'paths', text: string): string[] | string {
  let body: Record<string, unknown>;
  try {
    body = JSON.parse(text);
  } catch {
    return 'this is no JSON';
  }
  const unknown = Object.keys(body ?? {}).find((name) => name !== kind);
  if (dialect.isStrict && unknown !== undefined) return `Unrecognized field "${unknown}"`;
  const list = body?.[kind];
  if (!Array.isArray(list) || list.length === 0) return `${kind} must be a list with an element at least`;
  const paths: unknown[] = kind === 'paths' ? list : list.map((file) => file?.path);
  if (!paths.every((path) => typeof path === 'string' && path.startsWith('/'))) return 'a path must begin with a slash';
  const lifetime = list.map((file) => file?.diskLifetime).find((each) => each !== undefined && !DURATION.test(each));
  if (dialect.isStrict && lifetime !== undefined) return `${lifetime} is no duration`;
  return paths as string[];
}

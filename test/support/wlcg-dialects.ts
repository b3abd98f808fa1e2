/** How servers of the WLCG Tape REST API differ: what each refuses, and in which form each answers. */
import { adler32, hashOf, type StageRequest, type Target } from './wlcg-storage.js';

export type DialectName = 'dcache' | 'eos' | 'storm';

export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
}

export interface Dialect {
  /** Behind the host. */
  base: string;
  /** What is released leaves the disk. */
  releases: boolean;
  /** A recall that is cancelled comes all the same. */
  recallsGoOn: boolean;
  maxFiles: number;
  /** Refuses fields that it does not know. */
  isStrict: boolean;
  /** A release of what the demand does not have is refused. */
  checksReleases: boolean;
  /** Bytes come from another server, which is redirected to. */
  hasPool: boolean;
  /** To GET of a file that is on tape alone. */
  notOnDisk: number;
  /** To a call that comes too soon. */
  busy: number;
  problem(status: number, title: string, detail: string): Answer;
  poll(request: StageRequest): unknown;
  /** Localities have paths in the form that was given. */
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
  /** Milliseconds, states with times, no nulls, and the words of a refusal in headers. */
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
  /** Seconds, `onDisk` or an error, and paths in the form that was given. */
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
  /** Seconds with noughts, states without a reason, and a release that changes nothing. */
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

/** @returns the paths of a body; a text says why it is refused */
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

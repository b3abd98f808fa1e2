/** A client of one site: bounded connections that are kept open, its token for its own servers alone, and redirections within bounds. */
import { constants } from 'node:fs';
import { open, readFile, stat } from 'node:fs/promises';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { messageOf, quote } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { Site } from '../kind.js';
import { type Answer, discard, type ResponseHead } from './body.js';
import { type Exchange, exchange, nameOf, Pools, type TimeLimits } from './exchange.js';

export interface ClientOptions {
  /** Origins that are given the token and the client's certificate. */
  trusted: ReadonlySet<string>;
  token?: TokenPlace;
  env: Site['env'];
  identity: IdentityFiles;
  limits: TimeLimits;
  /** Connections at once, to each server. */
  sockets: number;
}

export interface Call {
  method?: Exchange['method'];
  url: URL;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

export interface Reply extends Answer {
  /** The answers that redirected to it, in order. */
  ways: readonly ResponseHead[];
  /** The token that it answers; undefined where it was given none. */
  token?: string;
}

const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

interface SecurePools {
  options: object;
  trusted: Pools;
  others: Pools;
}

export class SiteClient {
  private readonly options: ClientOptions;
  private readonly identity: Identity;
  private readonly plain: Pools;
  private secure: SecurePools | undefined;

  constructor(options: ClientOptions) {
    this.options = options;
    this.identity = new Identity(options.identity);
    this.plain = new Pools(options);
  }

  /**
   * Sends one call, and follows where a GET is redirected to.
   * @returns whatever the server answered in the end: statuses are the caller's
   * @throws LibraryError when no answer came, or it leads where none is taken from; the signal's reason
   */
  async send({ method = 'GET', url, headers = {}, body, signal }: Call): Promise<Reply> {
    const { trusted, token: place, env, limits } = this.options;
    const ways: ResponseHead[] = [];
    for (let at = url; ; ) {
      const isTrusted = trusted.has(at.origin);
      const sent: Record<string, string> = { ...headers, 'user-agent': 'tapegate', 'accept-encoding': 'identity' };
      const token = isTrusted && place ? await readToken(place, env) : undefined;
      if (token !== undefined) sent.authorization = `Bearer ${token}`;
      const pools = await this.findPools(at, isTrusted);
      const isRepeatable = method === 'GET';
      const request = { method, url: at, headers: sent, pools, limits, signal, isRepeatable };
      const answer = await exchange(body === undefined ? request : { ...request, body });
      if (!REDIRECTS.includes(answer.response.statusCode)) return { ...answer, ways, ...(token && { token }) };
      const next = follow(at, answer.response.headers.location, { method, count: ways.push(answer.response) });
      await discard(answer, signal);
      at = next;
    }
  }

  /** Connections with former certificates end when they are idle. */
  private async findPools({ protocol }: URL, isTrusted: boolean): Promise<Pools> {
    if (protocol === 'http:') return this.plain;
    const secure = await this.identity.read();
    if (this.secure?.options !== secure) {
      const { limits, sockets } = this.options;
      const trusted = new Pools({ limits, sockets, secure });
      const others = new Pools({ limits, sockets, secure: secure.ca ? { ca: secure.ca } : {} });
      this.secure = { options: secure, trusted, others };
    }
    return this.secure[isTrusted ? 'trusted' : 'others'];
  }
}

function follow(from: URL, location: string | undefined, { method, count }: { method: string; count: number }): URL {
  const refuse = (why: string) => new LibraryError('TRANSIENT', `${nameOf(from)} redirects ${why}`);
  if (location === undefined || !URL.canParse(location, from))
    throw refuse(`to ${quote(location ?? '')}, which is no URL`);
  const to = new URL(location, from);
  if (method !== 'GET') throw refuse(`${method} to ${nameOf(to)}, which is followed for GET alone`);
  if (count > MAX_REDIRECTS) throw refuse(`for the ${count}th time, to ${nameOf(to)}`);
  if (to.protocol !== from.protocol && to.protocol !== 'https:') {
    throw refuse(`from ${from.protocol.slice(0, -1)} to ${nameOf(to)}, which is not followed`);
  }
  return to;
}

/** Paths of PEM files; without `ca` the system's authorities are trusted. */
export interface IdentityFiles {
  ca?: string;
  cert?: string;
  key?: string;
}

/** Certificates that a client trusts and shows: read anew when their files have changed, as those of a grid do every few hours. */
class Identity {
  private readonly files: [keyof IdentityFiles, string][];
  private known: { version: string; options: SecureContextOptions } = { version: '', options: {} };

  constructor(files: IdentityFiles) {
    this.files = Object.entries(files) as [keyof IdentityFiles, string][];
  }

  /**
   * @returns the same object until a file has changed
   * @throws LibraryError POLICY when one cannot be read, others may read the key, or they are no certificates
   */
  async read(): Promise<SecureContextOptions> {
    try {
      const stats = await Promise.all(this.files.map(([, file]) => stat(file)));
      const version = stats.map(({ ino, mtimeMs, size }) => `${ino} ${mtimeMs} ${size}`).join();
      if (version === this.known.version) return this.known.options;
      for (const [index, [part, file]] of this.files.entries()) {
        const mode = stats[index]?.mode ?? 0;
        if (part === 'key' && (mode & 0o007) !== 0)
          throw new Error(`everybody on this host may read ${file}: chmod o= is needed`);
      }
      const parts = await Promise.all(this.files.map(async ([part, file]) => [part, await readFile(file)] as const));
      const options: SecureContextOptions = Object.fromEntries(parts);
      createSecureContext(options); // what it refuses is told by its files' names, not by each connection
      this.known = { version, options };
      return options;
    } catch (error) {
      const names = this.files.map(([, file]) => file).join(', ');
      throw new LibraryError('POLICY', `the certificates (${names}) cannot be used: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}

/** Where a token is; no setting ever holds one. */
export type TokenPlace = { file: string } | { variable: string };

const MAX_TOKEN_BYTES = 64 * 1024;

/**
 * Reads a bearer token, anew for each use: they are short-lived.
 * @throws LibraryError POLICY when there is none, when others may read its file, or when it is no token; its text is told to nobody
 */
async function readToken(place: TokenPlace, env: Site['env']): Promise<string> {
  const token = 'file' in place ? await readTokenFile(place.file) : readVariable(place.variable, env);
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  const where = 'file' in place ? `the file ${place.file}` : `the variable ${place.variable}`;
  throw new LibraryError(
    'POLICY',
    `${where} has ${token === '' ? 'nothing in it' : 'more than one word in it'}, where a token should be`,
  );
}

function readVariable(name: string, env: Site['env']): string {
  const value = env[name];
  if (value !== undefined) return value.trim();
  throw new LibraryError('POLICY', `the variable ${name}, which should hold the token, is not set`);
}

async function readTokenFile(file: string): Promise<string> {
  try {
    // without blocking, since a pipe in its place would be waited for
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { mode } = await handle.stat();
      if ((mode & 0o007) !== 0) {
        const bits = (mode & 0o7777).toString(8).padStart(4, '0');
        throw new Error(`everybody on this host may read or change it (mode ${bits}): chmod o= is needed`);
      }
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(MAX_TOKEN_BYTES), 0, MAX_TOKEN_BYTES, 0);
      return buffer.toString('utf8', 0, bytesRead).trim();
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw new LibraryError('POLICY', `the token's file ${file} cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

/** HTTP client for one site, which limits connections and sends the token only to trusted origins. */
import { constants } from 'node:fs';
import { open, readFile, stat } from 'node:fs/promises';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { messageOf, quote } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { checkHost } from '../host-files.js';
import {
  type Answer,
  discard,
  type Exchange,
  exchange,
  nameOf,
  Pools,
  type ResponseHead,
  type TimeLimits,
} from './exchange.js';

interface ClientOptions {
  /** Origins that receive the token and the client certificate. */
  trusted: ReadonlySet<string>;
  token?: string;
  identity: IdentityFiles;
  limits: TimeLimits;
  sockets: number;
}

interface Call {
  method?: Exchange['method'];
  url: URL;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

export interface Reply extends Answer {
  ways: readonly ResponseHead[];
  /** The bearer token in the request; absent if the request did not contain a token. */
  token?: string;
}

const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

export class SiteClient {
  private readonly options: ClientOptions;
  private readonly trusted: Pools;
  private readonly others: Pools;

  constructor(options: ClientOptions) {
    const { limits, sockets, identity } = options;
    this.options = options;
    this.trusted = new Pools({ limits, sockets, secure: () => readIdentity(identity) });
    this.others = new Pools({ limits, sockets, secure: () => readIdentity(identity.ca ? { ca: identity.ca } : {}) });
  }

  /**
   * Sends a request, and follows redirects of GET requests.
   * @returns the last response, whose status the caller must check
   * @throws LibraryError if no response arrives, or if a redirect is not allowed
   */
  async send({ method = 'GET', url, headers = {}, body, signal }: Call): Promise<Reply> {
    const { trusted, token: file, identity } = this.options;
    const ways: ResponseHead[] = [];
    for (let at = url; ; ) {
      const isTrusted = trusted.has(at.origin);
      const sent: Record<string, string> = { ...headers, 'user-agent': 'tapegate', 'accept-encoding': 'identity' };
      const secrets = isTrusted ? [file, identity.cert].filter((each) => each !== undefined) : [];
      for (const each of secrets) await checkHost(each, at);
      const token = isTrusted && file !== undefined ? await readToken(file) : undefined;
      if (token !== undefined) sent.authorization = `Bearer ${token}`;
      const pools = isTrusted ? this.trusted : this.others;
      const request = { method, url: at, headers: sent, pools, signal };
      const answer = await exchange(body === undefined ? request : { ...request, body });
      if (!REDIRECTS.includes(answer.response.statusCode)) return { ...answer, ways, ...(token && { token }) };
      const next = follow(at, answer.response.headers.location, { method, count: ways.push(answer.response) });
      await discard(answer, signal);
      at = next;
    }
  }
}

function follow(from: URL, location: string | undefined, { method, count }: { method: string; count: number }): URL {
  const refuse = (why: string) => new LibraryError('TRANSIENT', `${nameOf(from)} redirects ${why}`);
  if (location === undefined || !URL.canParse(location, from))
    throw refuse(`to ${quote(location ?? '')}, which is not a URL`);
  const to = new URL(location, from);
  if (method !== 'GET') throw refuse(`${method} to ${nameOf(to)}, but Tapegate follows redirects of GET requests only`);
  if (count > MAX_REDIRECTS) throw refuse(`${count} times, the last time to ${nameOf(to)}`);
  if (to.protocol !== from.protocol && to.protocol !== 'https:') {
    throw refuse(
      `to ${nameOf(to)}, but Tapegate does not follow redirects from ${from.protocol.slice(0, -1)} to ${to.protocol.slice(0, -1)}`,
    );
  }
  return to;
}

/**
 * Paths of the client's certificate files, in PEM format. If `ca` is absent, the client trusts the system's certificate
 * authorities.
 */
export interface IdentityFiles {
  ca?: string;
  cert?: string;
  key?: string;
}

/**
 * Reads the certificate files. Called for each new connection, because grid certificates are replaced every few hours.
 * @throws LibraryError POLICY if a file is unreadable or invalid, or if all users on the host can read or write the key
 */
async function readIdentity(files: IdentityFiles): Promise<SecureContextOptions> {
  try {
    const { mode } = files.key ? await stat(files.key) : { mode: 0 };
    if ((mode & 0o007) !== 0)
      throw new Error(`every user of this host can read ${files.key}: run chmod o= on the key file`);
    const parts = Object.entries(files).map(async ([part, file]) => [part, await readFile(file)] as const);
    const options: SecureContextOptions = Object.fromEntries(await Promise.all(parts));
    createSecureContext(options);
    return options;
  } catch (error) {
    const names = Object.values(files).join(', ');
    throw new LibraryError('POLICY', `the certificates (${names}) cannot be used: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

const MAX_TOKEN_BYTES = 64 * 1024;

/**
 * Reads the bearer token from its file. Called for each request, because tokens are short-lived. Error messages never
 * contain the token.
 * @throws LibraryError POLICY if the token is missing or malformed, or if all users on the host can read or write the
 * token file
 */
async function readToken(file: string): Promise<string> {
  const token = await readTokenFile(file);
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  const problem = token === '' ? 'is empty' : 'contains spaces or invalid characters';
  throw new LibraryError('POLICY', `the token file ${file} ${problem}; it must contain one token`);
}

async function readTokenFile(file: string): Promise<string> {
  try {
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { mode } = await handle.stat();
      if ((mode & 0o007) !== 0) {
        const bits = (mode & 0o7777).toString(8).padStart(4, '0');
        throw new Error(`every user of this host can read or change the file (mode ${bits}): run chmod o= on the file`);
      }
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(MAX_TOKEN_BYTES), 0, MAX_TOKEN_BYTES, 0);
      return buffer.toString('utf8', 0, bytesRead).trim();
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw new LibraryError('POLICY', `the token file ${file} cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

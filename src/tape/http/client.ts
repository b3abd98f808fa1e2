/** A client of one site: bounded connections that are kept open, its token for its own servers alone, and redirections within bounds. */
import { quote } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { type Answer, discard, type ResponseHead } from './body.js';
import { type Exchange, exchange, nameOf, Pools, type TimeLimits } from './exchange.js';
import { Identity, type IdentityFiles } from './identity.js';
import { type Environment, readToken, type TokenPlace } from './token.js';

export interface ClientOptions {
  /** Origins that are given the token and the client's certificate. */
  trusted: ReadonlySet<string>;
  token?: TokenPlace;
  env: Environment;
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

/** By whether a server is given the client's certificate. */
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

/** Where an answer sends to. */
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

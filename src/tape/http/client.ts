/** A client of one site: bounded connections that are kept open, its token for its own servers alone, and redirections within bounds. */
import http from 'node:http';
import https from 'node:https';
import { quote } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { type Answer, discard } from './body.js';
import { type Exchange, exchange, nameOf, type TimeLimits } from './exchange.js';
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
  ways: readonly http.IncomingMessage[];
}

const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

/** Shorter than servers keep a connection that rests: one that they have closed is not used. */
const REST_MS = 4000;

/** What arrives while a reader is busy: large enough to join pieces, small enough for the caches of a processor. */
const BUFFER_BYTES = 256 * 1024;

interface Agents {
  options: object;
  trusted: http.Agent;
  others: http.Agent;
}

export class SiteClient {
  readonly limits: TimeLimits;
  private readonly options: ClientOptions;
  private readonly identity: Identity;
  private readonly plain: http.Agent;
  private agents: Agents | undefined;

  constructor(options: ClientOptions) {
    this.options = options;
    this.limits = options.limits;
    this.identity = new Identity(options.identity);
    this.plain = new http.Agent(this.agentOptions());
  }

  /**
   * Sends one call, and follows where a GET is redirected to.
   * @returns whatever the server answered in the end: statuses are the caller's
   * @throws LibraryError when no answer came, or it leads where none is taken from; the signal's reason
   */
  async send({ method = 'GET', url, headers = {}, body, signal }: Call): Promise<Reply> {
    const ways: http.IncomingMessage[] = [];
    for (let at = url; ; ) {
      const isTrusted = this.options.trusted.has(at.origin);
      const agent = await this.findAgent(at, isTrusted);
      const sent: Record<string, string> = { ...headers, 'user-agent': 'tapegate', 'accept-encoding': 'identity' };
      if (isTrusted && this.options.token)
        sent.authorization = `Bearer ${await readToken(this.options.token, this.options.env)}`;
      const { limits } = this;
      const rest = { method, headers: sent, agent, limits, signal };
      const response = await exchange(body === undefined ? { ...rest, url: at } : { ...rest, url: at, body });
      const reply: Reply = { response, name: nameOf(at), silenceMs: limits.silenceMs, ways };
      if (!REDIRECTS.includes(response.statusCode ?? 0)) return reply;
      const next = follow(at, response.headers.location, { method, count: ways.push(response) });
      await discard(reply, signal);
      at = next;
    }
  }

  private async findAgent({ protocol }: URL, isTrusted: boolean): Promise<http.Agent> {
    if (protocol === 'http:') return this.plain;
    const options = await this.identity.read();
    if (this.agents?.options !== options) {
      const { ca } = options;
      // connections of the former certificates end by their rest
      this.agents = {
        options,
        trusted: new https.Agent({ ...this.agentOptions(), ...options }),
        others: new https.Agent({ ...this.agentOptions(), ...(ca ? { ca } : {}) }),
      };
    }
    return isTrusted ? this.agents.trusted : this.agents.others;
  }

  private agentOptions(): https.AgentOptions {
    const kept = { keepAlive: true, timeout: REST_MS, scheduling: 'lifo' as const };
    const streams: { highWaterMark: number } = { highWaterMark: BUFFER_BYTES };
    return { ...kept, ...streams, maxSockets: this.options.sockets, maxFreeSockets: this.options.sockets };
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

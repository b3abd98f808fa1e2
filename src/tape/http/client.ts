/** A client of one site: bounded connections that are kept open, its token for its own servers alone, and redirections within bounds. */
import http from 'node:http';
import https from 'node:https';
import type { SecureContextOptions } from 'node:tls';
import { quote } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { BlockCalls } from './blocks.js';
import { type Answer, discard, type ResponseHead, readBody } from './body.js';
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
  ways: readonly ResponseHead[];
  /** The token that it answers; undefined where it was given none. */
  token?: string;
}

const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

/** Shorter than servers keep a connection that rests: one that they have closed is not used. */
const REST_MS = 4000;

/** What arrives while a reader is busy: large enough to join pieces, small enough for the caches of a processor. */
const BUFFER_BYTES = 256 * 1024;

/** By whether a server is given the client's certificate. */
interface Agents {
  options: object;
  trusted: { options: SecureContextOptions; agent: http.Agent };
  others: { options: SecureContextOptions; agent: http.Agent };
}

/** A call on its way to one server. */
interface Sent extends Call {
  method: Exchange['method'];
  headers: Readonly<Record<string, string>>;
  isTrusted: boolean;
}

/** Without TLS there are no certificates. */
const NOTHING = {};

export class SiteClient {
  readonly limits: TimeLimits;
  private readonly options: ClientOptions;
  private readonly identity: Identity;
  private readonly plain: http.Agent;
  private readonly blocks: BlockCalls;
  private agents: Agents | undefined;

  constructor(options: ClientOptions) {
    this.options = options;
    this.limits = options.limits;
    this.identity = new Identity(options.identity);
    this.plain = new http.Agent(this.agentOptions());
    this.blocks = new BlockCalls({ limits: options.limits, sockets: options.sockets, restMs: REST_MS });
  }

  /**
   * Sends one call, and follows where a GET is redirected to.
   * @returns whatever the server answered in the end: statuses are the caller's
   * @throws LibraryError when no answer came, or it leads where none is taken from; the signal's reason
   */
  async send(call: Call): Promise<Reply> {
    return await this.follow(call, (sent) => this.ask(sent));
  }

  /** As `send`, for a GET of a file's bytes: they come in blocks (src/blocks.ts) where the server tells their number. */
  async open(call: Pick<Call, 'url' | 'headers' | 'signal'>): Promise<Reply> {
    return await this.follow(call, async (sent) => (await this.askForBlocks(sent)) ?? (await this.ask(sent)));
  }

  private async follow(call: Call, ask: (sent: Sent) => Promise<Answer>): Promise<Reply> {
    const { method = 'GET', url, headers = {}, signal } = call;
    const ways: ResponseHead[] = [];
    for (let at = url; ; ) {
      const isTrusted = this.options.trusted.has(at.origin);
      const sent: Record<string, string> = { ...headers, 'user-agent': 'tapegate', 'accept-encoding': 'identity' };
      const place = isTrusted ? this.options.token : undefined;
      const token = place && (await readToken(place, this.options.env));
      if (token !== undefined) sent.authorization = `Bearer ${token}`;
      const answer = await ask({ ...call, method, url: at, headers: sent, isTrusted });
      if (!REDIRECTS.includes(answer.response.statusCode ?? 0)) return { ...answer, ways, ...(token && { token }) };
      const next = follow(at, answer.response.headers.location, { method, count: ways.push(answer.response) });
      await discard(answer, signal);
      at = next;
    }
  }

  private async ask({ url, method, headers, body, isTrusted, signal }: Sent): Promise<Answer> {
    const { limits } = this;
    const rest = { url, method, headers, agent: await this.findAgent(url, isTrusted), limits, signal };
    const response = await exchange(body === undefined ? rest : { ...rest, body });
    const [name, { silenceMs }] = [nameOf(url), limits];
    return { response, name, read: (each) => readBody({ response, name, silenceMs }, each) };
  }

  private async askForBlocks({ url, headers, isTrusted, signal }: Sent): Promise<Answer | undefined> {
    const isPlain = url.protocol === 'http:';
    const secure = isPlain ? NOTHING : (await this.findAgents())[isTrusted ? 'trusted' : 'others'].options;
    return await this.blocks.get({ url, headers, secure, signal });
  }

  private async findAgent({ protocol }: URL, isTrusted: boolean): Promise<http.Agent> {
    if (protocol === 'http:') return this.plain;
    return (await this.findAgents())[isTrusted ? 'trusted' : 'others'].agent;
  }

  private async findAgents(): Promise<Agents> {
    const options = await this.identity.read();
    if (this.agents?.options !== options) {
      const { ca } = options;
      // connections of the former certificates end by their rest
      const agentOf = (secure: SecureContextOptions) => ({
        options: secure,
        agent: new https.Agent({ ...this.agentOptions(), ...secure }),
      });
      this.agents = { options, trusted: agentOf(options), others: agentOf(ca ? { ca } : {}) };
    }
    return this.agents;
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

/** Limits each caller's requests, request bodies and event streams. */
import { readFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { RequestHandler } from 'express';
import { MemoryStore, rateLimit } from 'express-rate-limit';
import type { Config } from '../../config/config.js';
import { type Caller, ownerOf } from '../../core/caller.js';
import { createRangeTest, normalAddress } from '../../core/net/address-ranges.js';
import { callerOf } from '../auth/identify.js';
import { addressKey, addressOf } from '../http/address.js';
import { type BodyRoom, HttpError, limitBody } from '../http/http-body.js';

export interface CallerLimits {
  /** Handlers that apply the limits. Must run after authentication and before the protocols' handlers. */
  before: RequestHandler[];
  watch(server: Server): void;
  close(): void;
}

const WINDOW_MS = 60_000;
const MB = 1024 * 1024;

/** Maximum memory for one caller's request bodies, as a fraction of the memory for all request bodies. */
const SHARE_OF_BODIES = 3 / 8;

export function limitCallers(config: Config): CallerLimits {
  const { limits } = config;
  const bytes = limits.bodiesMb * MB;
  const bodies = new Shares('bytes of request bodies', { all: bytes, one: Math.floor(bytes * SHARE_OF_BODIES) });
  const requests = new Shares('concurrent requests', {
    all: Number.POSITIVE_INFINITY,
    one: limits.callerRequests,
  });
  const store = new MemoryStore();
  const rate = rateLimit({
    store,
    windowMs: WINDOW_MS,
    limit: limits.rateLimit,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    identifier: 'caller',
    validate: false,
    keyGenerator: limitKey,
    handler: (_req, res, next) => {
      const message = `more than ${limits.rateLimit} requests in a minute: try again later`;
      next(new HttpError(429, message, { 'Retry-After': String(res.getHeader('Retry-After') ?? 60) }));
    },
  });
  const enter: RequestHandler = (req, res, next) => {
    const key = limitKey(req);
    countRequest(res, requests.take(key));
    limitBody(req, () => createRoom(res, (size) => bodies.take(key, size)));
    next();
  };
  const count: RequestHandler = (req, res, next) =>
    !limits.rateLocal && isUncounted(req) ? next() : rate(req, res, next);
  return { before: [enter, count], watch: (server) => limitConnections(server, config), close: () => store.shutdown() };
}

/** Counts a request body toward the memory limit until the response is sent and all work for the request is done. */
function createRoom(res: ServerResponse, take: (bytes: number) => () => void): BodyRoom {
  const taken: (() => void)[] = [];
  const release = () => {
    for (const each of taken.splice(0)) each();
  };
  onceClosed(res, release);
  return { take: (bytes) => void taken.push(take(bytes)), release };
}

type Take = (req: IncomingMessage) => () => void;
type Keep = (req: IncomingMessage, characters: number) => () => void;

/**
 * Maximum total length of an event stream's subscriptions, in characters. A parsed subscription takes fifty times as
 * much memory as its text.
 */
const CHARACTERS = 4096;

/** Limits the number of event streams, in total and per caller, and the length of their subscriptions. */
export function limitStreams({ limits }: Config): { take: Take; keep: Keep } {
  const shares = new Shares('streams', { all: limits.streams, one: limits.callerStreams });
  const kept = new Shares('characters of subscriptions', {
    all: limits.streams * CHARACTERS,
    one: limits.callerStreams * CHARACTERS,
  });
  return {
    take: (req) => shares.take(limitKey(req)),
    keep: (req, characters) => kept.take(limitKey(req), characters),
  };
}

const LOOPBACK_6 = '::/56';

/**
 * Returns a request's rate-limit key. An authenticated caller has the same key with every address and every token. An
 * unauthenticated caller's key is the client's address.
 */
export function limitKey(req: IncomingMessage): string {
  const caller = callerOf(req);
  return isKnown(caller) ? `caller ${ownerOf(caller)}` : addressKey(addressOf(req));
}

const isKnown = ({ way }: Caller) => way !== 'open' && way !== 'legacy';

/**
 * Returns whether a request comes from an unauthenticated caller on this host. Such requests are exempt from rate
 * limits, unless a limit for them is configured.
 */
function isUncounted(req: IncomingMessage): boolean {
  if (isKnown(callerOf(req))) return false;
  const address = addressKey(addressOf(req));
  return address.startsWith('127.') || address === LOOPBACK_6;
}

/** Limits how much of a resource is used concurrently, in total and per caller. */
export class Shares {
  private readonly most: { all: number; one: number };
  private readonly what: string;
  private readonly counts = new Map<string, number>();
  private count = 0;

  constructor(what: string, most: { all: number; one: number }) {
    this.what = what;
    this.most = most;
  }

  /**
   * Reserves part of the limited resource for a caller.
   * @returns a function that releases the reserved part; a second call does nothing
   * @throws HttpError 429 if the caller's limit is reached; 503 if the total limit is reached
   */
  take(caller: string, amount = 1): () => void {
    const release = this.tryTake(caller, amount);
    if (release) return release;
    const headers = { 'Retry-After': '5' };
    if ((this.counts.get(caller) ?? 0) + amount > this.most.one) {
      throw new HttpError(
        429,
        `the limit of ${this.most.one} ${this.what} per caller is reached: try again later`,
        headers,
      );
    }
    throw new HttpError(503, `too many ${this.what}: try again later`, headers);
  }

  tryTake(caller: string, amount = 1): (() => void) | undefined {
    const own = (this.counts.get(caller) ?? 0) + amount;
    if (own > this.most.one || this.count + amount > this.most.all) return undefined;
    this.count += amount;
    this.counts.set(caller, own);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.count -= amount;
      const left = (this.counts.get(caller) ?? 0) - amount;
      if (left > 0) this.counts.set(caller, left);
      else this.counts.delete(caller);
    };
  }
}

const counted = new WeakMap<ServerResponse, () => void>();

function countRequest(res: ServerResponse, release: () => void): void {
  counted.set(res, release);
  onceClosed(res, release);
}

/**
 * Stops counting a request as a concurrent request when it becomes an event stream, because streams have a separate
 * limit.
 */
export function stopCountingRequest(res: ServerResponse): void {
  counted.get(res)?.();
}

interface HeldLimits {
  count: number;
  releases: (() => void)[];
}

const holding = new WeakMap<ServerResponse, HeldLimits>();

function onceClosed(res: ServerResponse, release: () => void): void {
  res.once('close', () => {
    const kept = holding.get(res);
    if (kept) kept.releases.push(release);
    else release();
  });
}

/**
 * Keeps a request's resources reserved while work for the request continues after the response or a disconnect.
 * @returns a function that releases the resources; a second call does nothing
 */
export function holdLimits(res: ServerResponse): () => void {
  const kept = holding.get(res) ?? { count: 0, releases: [] };
  holding.set(res, kept);
  kept.count++;
  let isKept = true;
  return () => {
    if (!isKept) return;
    isKept = false;
    if (--kept.count > 0) return;
    holding.delete(res);
    for (const release of kept.releases.splice(0)) release();
  };
}

/**
 * Number of file descriptors that client connections must not use: 24 are for database connections, and the rest are
 * for the process itself.
 */
const RESERVED_DESCRIPTORS = 100;
const RESERVED_FOR_DRIVE = 4;

const LEAST_CONNECTIONS = 16;

/**
 * Returns the maximum number of open client connections.
 * @param descriptors the process's limit on open files; undefined if unknown
 */
export function countConnections({ limits, drives }: Pick<Config, 'limits' | 'drives'>, descriptors?: number): number {
  const kept = RESERVED_DESCRIPTORS + limits.longLists + RESERVED_FOR_DRIVE * drives;
  const free = (descriptors ?? Number.POSITIVE_INFINITY) - kept;
  return Math.max(LEAST_CONNECTIONS, Math.min(limits.connections, free));
}

/**
 * Limits the number of connections, in total and per address. One address can use at most half of all connections, so
 * that a client cannot lock out other clients.
 */
function limitConnections(server: Server, config: Config): void {
  const { limits, access } = config;
  const most = countConnections(config, readDescriptorLimit());
  server.maxConnections = most;
  server.headersTimeout = limits.headerSeconds * 1000;
  server.requestTimeout = limits.requestSeconds * 1000;
  server.keepAliveTimeout = limits.idleSeconds * 1000;
  const shares = new Shares('connections', { all: most, one: Math.floor(most / 2) });
  const isProxy = createRangeTest(access.proxies.ranges);
  const isOfProxies = typeof server.address() === 'string';
  server.on('connection', (socket: Socket) => {
    // do not limit a trusted proxy, because its connections carry many clients' requests
    if (isOfProxies || isProxy(normalAddress(socket.remoteAddress ?? ''))) return;
    const release = shares.tryTake(addressKey(socket.remoteAddress));
    if (release) socket.once('close', release);
    else socket.destroy();
  });
}

function readDescriptorLimit(): number | undefined {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}

/**
 * Maximum number of pipelined requests that wait on one connection. Before the gateway can pause the connection,
 * Node.js might already have parsed several thousand requests from a single read.
 */
const MAX_WAITING = 100;

interface Pipeline {
  current: ServerResponse;
  waiting: { req: IncomingMessage; res: ServerResponse }[];
}

const pipelines = new WeakMap<Socket, Pipeline>();

/** Returns whether a response on a connection has begun but not ended. */
export function isAnswering(socket: Socket): boolean {
  return pipelines.get(socket)?.current.headersSent === true;
}

/**
 * Handles a connection's requests one after another (RFC 9112, 9.3.2), although Node.js starts all pipelined requests
 * concurrently. If requests were handled concurrently and one response was interrupted, later responses on the
 * connection would never release their resources. Closes a connection with more than `MAX_WAITING` waiting requests.
 */
export function answerInOrder(answer: RequestListener): RequestListener {
  const begin = (req: IncomingMessage, res: ServerResponse, { waiting }: Pick<Pipeline, 'waiting'>) => {
    const { socket } = req;
    const line = { current: res, waiting };
    pipelines.set(socket, line);
    res.once('close', () => {
      const next = isOver(socket) ? undefined : waiting.shift();
      if (next) begin(next.req, next.res, line);
      else pipelines.delete(socket);
      if (waiting.length === 0) socket.resume();
    });
    answer(req, res);
  };
  const isOver = (socket: Socket) => socket.destroyed || socket.writableEnded;

  return (req, res) => {
    const { socket } = req;
    if (isOver(socket)) return;
    const line = pipelines.get(socket);
    if (!line) return begin(req, res, { waiting: [] });
    if (line.waiting.length >= MAX_WAITING) return void socket.destroy();
    line.waiting.push({ req, res });
    socket.pause();
  };
}

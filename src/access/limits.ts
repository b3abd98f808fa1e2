/** What callers may take of the gateway, put together in one place. */

import { readFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { RequestHandler } from 'express';
import { MemoryStore, rateLimit } from 'express-rate-limit';
import { createRangeTest, normalAddress } from '../address-ranges.js';
import { type Caller, ownerOf } from '../caller.js';
import type { Config } from '../config.js';
import { type BodyRoom, HttpError, limitBody } from '../http-body.js';
import { addressKey, addressOf } from './address.js';
import { callerOf } from './identify.js';

export interface CallerLimits {
  /** To stand before all that answers. */
  before: RequestHandler[];
  watch(server: Server): void;
  close(): void;
}

const WINDOW_MS = 60_000;
const MB = 1024 * 1024;

/** What one caller may take of the memory for bodies: three of 32 MB by default. */
const SHARE_OF_BODIES = 3 / 8;

export function limitCallers(config: Config): CallerLimits {
  const { limits } = config;
  const bytes = limits.bodiesMb * MB;
  const bodies = new Shares('bytes of request bodies', { all: bytes, one: Math.floor(bytes * SHARE_OF_BODIES) });
  const turns = new Shares('requests that are being answered', {
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
    validate: false, // it would look for proxies, of which only the configuration knows
    keyGenerator: limitKey,
    handler: (_req, res, next) => {
      const message = `you have sent more than ${limits.rateLimit} requests within a minute: try again later`;
      next(new HttpError(429, message, { 'Retry-After': String(res.getHeader('Retry-After') ?? 60) }));
    },
  });
  const enter: RequestHandler = (req, res, next) => {
    const key = limitKey(req);
    beginTurn(res, turns.take(key));
    limitBody(req, () => createRoom(res, (size) => bodies.take(key, size)));
    next();
  };
  const count: RequestHandler = (req, res, next) =>
    !limits.rateLocal && isUncounted(req) ? next() : rate(req, res, next);
  return { before: [enter, count], watch: (server) => limitConnections(server, config), close: () => store.shutdown() };
}

/** What a body takes of the memory, until its request is answered or what it asks for is done. */
function createRoom(res: ServerResponse, take: (bytes: number) => () => void): BodyRoom {
  const taken: (() => void)[] = [];
  const give = () => {
    for (const each of taken.splice(0)) each();
  };
  onceOver(res, give);
  return { take: (bytes) => void taken.push(take(bytes)), give };
}

type Take = (req: IncomingMessage) => () => void;
type Keep = (req: IncomingMessage, characters: number) => () => void;

/** Of a stream that a caller may have: what its subscriptions say. Each has its document parsed, which takes fifty times as much memory. */
const CHARACTERS = 4096;

/** Event streams, all together and those of one caller; and the text of subscriptions, of which one stream may have many. */
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
 * Who is known counts alone, by its name: wherever it asks from, with whichever of its tokens, and whatever becomes of its rights.
 * Of the others, those of an address count together.
 */
export function limitKey(req: IncomingMessage): string {
  const caller = callerOf(req);
  return isKnown(caller) ? `caller ${ownerOf(caller)}` : addressKey(addressOf(req));
}

const isKnown = ({ way }: Caller) => way !== 'open' && way !== 'legacy';

/**
 * Of those who are not known and come from this host nothing tells one from the other, nor a script from all that runs here: how
 * often they ask is counted only where the configuration says so.
 */
export function isUncounted(req: IncomingMessage): boolean {
  if (isKnown(callerOf(req))) return false;
  const address = addressKey(addressOf(req));
  return address.startsWith('127.') || address === LOOPBACK_6;
}

/** Counts what callers have at once of something. */
export class Shares {
  private readonly most: { all: number; one: number };
  private readonly what: string;
  private readonly counts = new Map<string, number>();
  private count = 0;

  /** @param what for people, in the plural */
  constructor(what: string, most: { all: number; one: number }) {
    this.what = what;
    this.most = most;
  }

  /** @returns what gives it back, once. @throws HttpError 429, 503 */
  take(caller: string, amount = 1): () => void {
    const give = this.tryTake(caller, amount);
    if (give) return give;
    const headers = { 'Retry-After': '5' };
    if ((this.counts.get(caller) ?? 0) + amount > this.most.one) {
      throw new HttpError(429, `you have ${this.most.one} ${this.what} already: try again later`, headers);
    }
    throw new HttpError(503, `there are too many ${this.what}: try again later`, headers);
  }

  /** The same, and undefined if there is no room. */
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

const turns = new WeakMap<ServerResponse, () => void>();

/** A request is in hand until it is answered. */
export function beginTurn(res: ServerResponse, give: () => void): void {
  turns.set(res, give);
  onceOver(res, give);
}

/** It goes on as a stream, which counts as that. */
export function endTurn(res: ServerResponse): void {
  turns.get(res)?.();
}

interface Kept {
  count: number;
  gives: (() => void)[];
}

const keeping = new WeakMap<ServerResponse, Kept>();

/** What a request has taken is given back once it is answered, unless it is kept longer. */
export function onceOver(res: ServerResponse, give: () => void): void {
  res.once('close', () => {
    const kept = keeping.get(res);
    if (kept) kept.gives.push(give);
    else give();
  });
}

/**
 * What was asked for is still to be done once the request is answered, or its sender has gone: what it has taken is kept.
 * @returns what ends that, once
 */
export function keepTurn(res: ServerResponse): () => void {
  const kept = keeping.get(res) ?? { count: 0, gives: [] };
  keeping.set(res, kept);
  kept.count++;
  let isKept = true;
  return () => {
    if (!isKept) return;
    isKept = false;
    if (--kept.count > 0) return;
    keeping.delete(res);
    for (const give of kept.gives.splice(0)) give();
  };
}

/** Descriptors of a process beside its connections: 24 to the database, one for each long list, its own, and some for each drive. */
const KEPT_DESCRIPTORS = 100;
const KEPT_FOR_DRIVE = 4;

const LEAST_CONNECTIONS = 16;

/** Returns how many connections may be open. @param descriptors what the process may have open; undefined if that is unknown */
export function countConnections({ limits, drives }: Pick<Config, 'limits' | 'drives'>, descriptors?: number): number {
  const kept = KEPT_DESCRIPTORS + limits.longLists + KEPT_FOR_DRIVE * drives;
  const free = (descriptors ?? Number.POSITIVE_INFINITY) - kept;
  return Math.max(LEAST_CONNECTIONS, Math.min(limits.connections, free));
}

/** Node.js closes connections over the limit of all. One address may have half of them, so that a single client keeps nobody else out. */
export function limitConnections(server: Server, config: Config): void {
  const { limits, access } = config;
  const most = countConnections(config, readDescriptorLimit());
  server.maxConnections = most;
  server.headersTimeout = limits.headerSeconds * 1000;
  server.requestTimeout = limits.requestSeconds * 1000;
  server.keepAliveTimeout = limits.idleSeconds * 1000;
  const shares = new Shares('connections', { all: most, one: Math.floor(most / 2) });
  const isProxy = createRangeTest(access.proxyAddresses);
  server.on('connection', (socket: Socket) => {
    // those of a listed proxy are of all clients behind it
    if (isProxy(normalAddress(socket.remoteAddress ?? ''))) return;
    const give = shares.tryTake(addressKey(socket.remoteAddress));
    if (give) socket.once('close', give);
    else socket.destroy();
  });
}

/** Returns the limit of open files of this process; undefined if it has none, or if the system does not report it. */
function readDescriptorLimit(): number | undefined {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}

/** Requests of one connection that may wait. Node.js parses all that one read brings, some thousands at most, before it can be paused. */
const MOST_WAITING = 100;

interface Line {
  current: ServerResponse;
  waiting: { req: IncomingMessage; res: ServerResponse }[];
}

const lines = new WeakMap<Socket, Line>();

/** Whether something was written on a connection that is not answered to its end. */
export function isAnswering(socket: Socket): boolean {
  return lines.get(socket)?.current.headersSent === true;
}

/**
 * Begins the requests of one connection one after another, as they are answered (RFC 9112, 9.3.2). Node.js begins all that a client sends ahead,
 * and an answer behind one that breaks off never closes: what it has taken of its caller's limits would be lost. A connection on which more than
 * `MOST_WAITING` requests wait is closed.
 */
export function answerInTurn(answer: RequestListener): RequestListener {
  const begin = (req: IncomingMessage, res: ServerResponse, { waiting }: Pick<Line, 'waiting'>) => {
    const { socket } = req;
    const line = { current: res, waiting };
    lines.set(socket, line);
    res.once('close', () => {
      const next = isOver(socket) ? undefined : waiting.shift();
      if (next) begin(next.req, next.res, line);
      else lines.delete(socket);
      if (waiting.length === 0) socket.resume();
    });
    answer(req, res);
  };
  const isOver = (socket: Socket) => socket.destroyed || socket.writableEnded;

  return (req, res) => {
    const { socket } = req;
    if (isOver(socket)) return;
    const line = lines.get(socket);
    if (!line) return begin(req, res, { waiting: [] });
    if (line.waiting.length >= MOST_WAITING) return void socket.destroy();
    line.waiting.push({ req, res });
    socket.pause();
  };
}

/** What callers may take of the gateway, put together in one place. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import { MemoryStore, rateLimit } from 'express-rate-limit';
import type { Config } from '../../config.js';
import { type BodyRoom, HttpError, limitBody } from '../../http-body.js';
import { limitConnections } from './connections.js';
import { isUncounted, limitKey } from './key.js';
import { beginTurn, onceOver, Shares } from './turns.js';

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

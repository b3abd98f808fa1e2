/**
 * graphql-sse in both of its modes, as a handler of Express. A host adapter of our own, since the one of the package
 * never frees a stream that is reserved and not opened, lets a slow reader pile up results in memory, and breaks a
 * stream, with all the operations on it, when one of them throws.
 */
import { randomUUID } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import type { Request as StreamRequest } from 'graphql-sse';
import { Flow } from './sse-flow.js';
import { createOperations, type Exchange, type Pipeline } from './sse-operations.js';

export interface StreamHandler {
  handler: RequestHandler;
  /** Ends the streams once all that their operations said is sent. The operations are ended by the caller. */
  close(): Promise<void>;
}

const TOKEN_HEADER = 'x-graphql-event-stream-token';
const EVENT_STREAM = 'text/event-stream';
const CREATED = 201;
/** A client opens the stream that it has reserved at once. */
const RESERVATION_MS = 60_000;

export function createStreamHandler(pipeline: Pipeline, { reservationMs = RESERVATION_MS } = {}): StreamHandler {
  const streams = new EventStreams(createOperations(pipeline), reservationMs);
  return {
    handler: (req, res) => {
      streams.exchange(req, res).catch(() => res.destroy()); // a write to a client that went away
    },
    close: () => streams.close(),
  };
}

type Messages = AsyncGenerator<string, void, undefined>;

/** The streams from when they are reserved or opened until they are freed or have ended. */
class EventStreams {
  private readonly handle: ReturnType<typeof createOperations>;
  private readonly reservationMs: number;
  /** Of the streams of single connection mode, by their tokens. */
  private readonly flows = new Map<string, Flow>();
  /** What is being sent, each with what ends it. */
  private readonly open = new Map<Flow, () => void>();

  constructor(handle: ReturnType<typeof createOperations>, reservationMs: number) {
    this.handle = handle;
    this.reservationMs = reservationMs;
  }

  /** Returns when the request is answered, which for a stream is when it has ended. */
  async exchange(req: Request, res: Response): Promise<void> {
    const { token, flow } = this.find(req);
    const [body, init] = await this.handle(toStreamRequest(req, { token, flow, res }));
    res.writeHead(init.status, init.statusText, init.headers);
    if (body && typeof body !== 'string') {
      try {
        await this.send(res, body, flow);
      } finally {
        this.flows.delete(token);
      }
      return;
    }
    if (init.status === CREATED) this.reserve(token, flow);
    res.end(body ?? undefined);
  }

  async close(): Promise<void> {
    const streams = [...this.open].map(async ([flow, end]) => {
      await flow.idle();
      end(); // a stream in single connection mode would wait for more operations
    });
    await Promise.all(streams);
  }

  /** The stream that a request names, or a new one: a token is never the client's to choose. */
  private find(req: Request): { token: string; flow: Flow } {
    const given = req.get(TOKEN_HEADER) ?? new URL(req.url, 'http://localhost').searchParams.get('token') ?? '';
    const known = this.flows.get(given);
    return known ? { token: given, flow: known } : { token: randomUUID(), flow: new Flow() };
  }

  private reserve(token: string, flow: Flow): void {
    this.flows.set(token, flow);
    setTimeout(() => void this.expire(token), this.reservationMs).unref();
  }

  /** A stream that nobody has opened is freed by opening and ending it. */
  private async expire(token: string): Promise<void> {
    const flow = this.flows.get(token);
    if (!flow || this.open.has(flow)) return;
    this.flows.delete(token);
    flow.close();
    const headers: Record<string, string> = { accept: EVENT_STREAM };
    const [body] = await this.handle({ ...EMPTY, headers: { get: (name) => headers[name] }, context: { token, flow } });
    if (body && typeof body !== 'string') await body.return(undefined);
  }

  private async send(res: Response, messages: Messages, flow: Flow): Promise<void> {
    const end = () => void messages.return(undefined);
    this.open.set(flow, end);
    res.once('close', () => {
      flow.close(); // first, so that no operation begins on a stream that is being ended
      end();
    });
    try {
      for await (const message of messages) {
        if (res.destroyed) break;
        await write(res, message);
        if (message.startsWith('event: next')) flow.sent();
      }
    } finally {
      this.open.delete(flow);
      flow.close();
      res.end();
    }
  }
}

const EMPTY = { method: 'GET', url: '/', body: null, raw: undefined };

function toStreamRequest(req: Request, context: Exchange): StreamRequest<Request | undefined, Exchange> {
  const accept = req.get('accept');
  // graphql-sse knows the one type alone, and clients may name others beside it
  const named = accept?.includes(EVENT_STREAM) ? EVENT_STREAM : accept;
  return {
    method: req.method,
    url: req.url,
    headers: { get: (name) => (name === 'accept' ? named : req.get(name)) },
    body: req.body ?? null,
    raw: req,
    context,
  };
}

/** Returns when the message has left the process, so that a reader that does not read is waited for. */
function write(res: Response, message: string): Promise<void> {
  return new Promise((resolve, reject) => {
    res.write(message, (error) => (error ? reject(error) : resolve()));
  });
}

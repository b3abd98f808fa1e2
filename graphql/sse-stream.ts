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
  const handle = createOperations(pipeline);
  /** Of the streams of single connection mode, by their tokens. */
  const flows = new Map<string, Flow>();
  const open = new Map<Flow, () => void>();

  /** A stream that nobody has opened is freed by opening and ending it. */
  const expire = async (token: string) => {
    const flow = flows.get(token);
    if (!flow || open.has(flow)) return;
    flows.delete(token);
    flow.close();
    const headers: Record<string, string> = { accept: EVENT_STREAM };
    const [body] = await handle({ ...EMPTY, headers: { get: (name) => headers[name] }, context: { token, flow } });
    if (body && typeof body !== 'string') await body.return(undefined);
  };

  const exchange = async (req: Request, res: Response) => {
    const given = req.get(TOKEN_HEADER) ?? new URL(req.url, 'http://localhost').searchParams.get('token') ?? '';
    const known = flows.get(given);
    const token = known ? given : randomUUID();
    const flow = known ?? new Flow();
    const [body, init] = await handle(describe(req, { token, flow, res }));
    res.writeHead(init.status, init.statusText, init.headers);
    if (body && typeof body !== 'string') {
      try {
        await send(res, body, flow);
      } finally {
        flows.delete(token);
      }
      return;
    }
    if (init.status === CREATED) {
      flows.set(token, flow);
      setTimeout(() => void expire(token), reservationMs).unref();
    }
    res.end(body ?? undefined);
  };

  const send = async (res: Response, body: AsyncGenerator<string, void, undefined>, flow: Flow) => {
    const end = () => void body.return(undefined);
    open.set(flow, end);
    res.once('close', () => {
      flow.close(); // first, so that no operation begins on a stream that is being ended
      end();
    });
    try {
      for await (const message of body) {
        if (res.destroyed) break;
        await write(res, message);
        if (message.startsWith('event: next')) flow.sent();
      }
    } finally {
      open.delete(flow);
      flow.close();
      res.end();
    }
  };

  return {
    handler: (req, res) => {
      exchange(req, res).catch(() => res.destroy()); // a write to a client that went away
    },
    close: async () => {
      const streams = [...open].map(async ([flow, end]) => {
        await flow.idle();
        end(); // a stream in single connection mode would wait for more operations
      });
      await Promise.all(streams);
    },
  };
}

const EMPTY = { method: 'GET', url: '/', body: null, raw: undefined };

function describe(req: Request, context: Exchange): StreamRequest<Request | undefined, Exchange> {
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

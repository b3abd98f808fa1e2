/** The gateway: everything it serves over HTTP, put together in one place. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type ErrorRequestHandler, type Express, type RequestHandler, type Response } from 'express';
import { createGraphqlHandlers, type GraphqlHandlers } from '../graphql/server.js';
import { createRestErrorHandler, createRestRouter } from '../rest/router.js';
import type { Context } from './context.js';
import { HttpError } from './http-body.js';
import { checkHost, toOriginForm } from './http-target.js';

export interface Gateway {
  /** `http://host:port`, with the port it was given. */
  url: string;
  /** Lets answers in hand go out and ends all streams. */
  close(): Promise<void>;
}

const CLOSE_MS = 5000;
const REST = '/tape_control/api/v1';
const GRAPHQL = '/graphql';

function createApp(ctx: Context, graphql: GraphqlHandlers, count: RequestHandler): Express {
  const app = express();
  app.use(count);
  app.use(dropStalled(ctx.config.readerSeconds * 1000));
  app.disable('x-powered-by');
  app.disable('etag'); // an ETag of a list would have to hold all of it
  app.use((req, _res, next) => {
    checkHost(req.headers.host);
    next();
  });
  app.use(REST, createRestRouter(ctx));
  app.get('/health/live', (_req, res) => void res.json({ status: 'live' }));
  app.get('/health/ready', (_req, res) => {
    const isReady = ctx.db.pulse.isAnswering; // known without asking, which might not be answered
    res.status(isReady ? 200 : 503).json({ status: isReady ? 'ready' : 'the database does not answer' });
  });
  app.use(GRAPHQL, graphql.handler);
  app.use((req, res) => {
    res.status(404).json({ error: `there is nothing at ${req.path}` });
  });
  app.use(REST, createRestErrorHandler(ctx));
  app.use(GRAPHQL, graphql.onError);
  app.use(createErrorHandler(ctx));
  return app;
}

/** For what is neither REST nor GraphQL: express's own would show a stack, with the paths of files in it. */
function createErrorHandler(ctx: Context): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const known = error instanceof HttpError ? error : new HttpError(500, 'Internal error');
    if (known !== error) ctx.log.error({ err: error, url: req.originalUrl }, 'internal error');
    if (res.headersSent || res.destroyed) return void res.destroy();
    res.status(known.status).set(known.headers).json({ error: known.message });
  };
}

/** @throws Error when the port is taken */
export async function startGateway(ctx: Context): Promise<Gateway> {
  const graphql = createGraphqlHandlers(ctx);
  const answers = countAnswers();
  const server = await listen(createApp(ctx, graphql, answers.count), ctx.config);
  const { port, family, address } = server.address() as AddressInfo;
  return {
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      graphql.close(); // before the readers of events end, which a stream would take for the end of its operation
      ctx.events.endReaders();
      await Promise.race([answers.ended(), sleep(CLOSE_MS, undefined, { ref: false })]);
      server.closeAllConnections();
      await closed;
    },
  };
}

/**
 * Drops a reader that takes nothing of its answer, so that it keeps neither memory nor a list open. A slow one may be as
 * slow as it is, unless others wait for its place (database/long-reads.ts): Node looks at the bytes that the system has
 * taken since.
 */
function dropStalled(ms: number): RequestHandler {
  return (_req, res, next) => {
    res.setTimeout(ms, () => {
      if (res.writableLength > 0) res.destroy();
    });
    next();
  };
}

/** Knows which answers are in hand: Node counts a connection that has not sent a request yet as busy. */
function countAnswers() {
  const open = new Set<Response>();
  let onEnd = () => {};
  const count: RequestHandler = (_req, res, next) => {
    open.add(res);
    res.once('close', () => {
      open.delete(res);
      if (open.size === 0) onEnd();
    });
    next();
  };
  const ended = () =>
    new Promise<void>((resolve) => {
      if (open.size === 0) resolve();
      else onEnd = resolve;
    });
  return { count, ended };
}

async function listen(app: Express, { port, host }: { port: number; host: string }): Promise<Server> {
  return await new Promise((resolve, reject) => {
    const server = createServer((req, res) => {
      req.url = toOriginForm(req.url ?? '/');
      app(req, res);
    });
    server.once('error', reject).listen(port, host, () => {
      server.off('error', reject);
      resolve(server);
    });
    // a body of 32 MB may come over a slow line, a header may not
    server.requestTimeout = 300_000;
    server.headersTimeout = 20_000;
  });
}

/** What the routers of REST share: tables of routes, and the answer to an error of a handler. */
import express, { type ErrorRequestHandler, type Request, type Response, type Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../src/context.js';
import { classOf, logFailure } from '../src/errors.js';
import { HttpError } from '../src/http-body.js';
import { idOf } from '../src/request-ids.js';
import { count } from '../src/signals.js';
import { answerOf } from './respond.js';

export type Handler = (ctx: Context, req: Request, res: Response) => Promise<void>;

/** HEAD is answered as GET, and other methods by 405. */
export interface Route {
  path: string;
  get?: Handler;
  post?: Handler;
  put?: Handler;
  delete?: Handler;
}

/** Answers 404 for unknown paths. */
export function createRouter(
  routes: readonly Route[],
  contextOf: (req: Request) => Context,
  onError: ErrorRequestHandler,
): Router {
  const router = express.Router({ caseSensitive: true });
  for (const { path, ...handlers } of routes) {
    const allow = Object.keys(handlers).map((method) => method.toUpperCase());
    if (handlers.get) allow.push('HEAD');
    const route = router.route(path);
    for (const [method, handler] of Object.entries(handlers)) {
      route[method as keyof typeof handlers]((req, res) => handler(contextOf(req), req, res));
    }
    route.all((req) => {
      const list = allow.join(', ');
      throw new HttpError(405, `${req.method} is not allowed here, only ${list}`, { Allow: list });
    });
  }
  router.use((req) => {
    throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  });
  router.use(onError);
  return router;
}

/**
 * Must follow a router.
 * @param present sends an error
 */
export function createErrorHandler(log: Logger, present: (res: Response, error: unknown) => void): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const isGone = res.destroyed || res.closed;
    if (res.headersSent || isGone) {
      // the client must see that the list is incomplete
      if (!isGone) logFailure(log, error, 'REST: an answer broke off', { url: req.originalUrl, ...idOf(res) });
      res.destroy();
      return;
    }
    // express throws this for invalid percent-encoding
    const known = error instanceof URIError ? new HttpError(400, `the path is not valid: ${req.path}`) : error;
    count('tapegate_errors_total', { class: classOf(known) });
    if (!isExpected(known)) logFailure(log, error, 'REST: internal error', { url: req.originalUrl, ...idOf(res) });
    present(res, known);
  };
}

function isExpected(error: unknown): boolean {
  return error instanceof HttpError || answerOf(error).status < 500; // one of the protocol was meant
}

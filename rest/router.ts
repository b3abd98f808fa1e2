/** The REST contract: its routes, and what happens to whatever they throw. */
import express, { type ErrorRequestHandler, type Request, type Response, type Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../src/context.js';
import { logFailure } from '../src/errors.js';
import { HttpError } from '../src/http-body.js';
import * as files from './files.js';
import * as quotas from './quotas.js';
import * as requests from './requests.js';
import { answerOf, sendError } from './respond.js';

type Handler = (ctx: Context, req: Request, res: Response) => Promise<void>;

const routes: { path: string; get?: Handler; post?: Handler; put?: Handler }[] = [
  { path: '/requests', get: requests.getAll, post: requests.post },
  { path: '/requests/:id', get: requests.getOne, put: requests.put },
  { path: '/files', get: files.getAll },
  { path: '/quota/:user', get: quotas.getOne },
];

/**
 * To be mounted at /tape_control/api/v1.
 * @param contextOf gives the context in which a request is served
 */
export function createRestRouter(contextOf: (req: Request) => Context, log: Logger): Router {
  const router = express.Router({ caseSensitive: true });
  for (const { path, ...handlers } of routes) {
    const allow = Object.keys(handlers).map((method) => method.toUpperCase());
    if (handlers.get) allow.push('HEAD');
    const route = router.route(path);
    for (const [method, handler] of Object.entries(handlers)) {
      route[method as 'get' | 'post' | 'put']((req, res) => handler(contextOf(req), req, res));
    }
    route.all((req) => {
      const list = allow.join(', ');
      throw new HttpError(405, `${req.method} is not allowed here, only ${list}`, { Allow: list });
    });
  }
  router.use((req) => {
    throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  });
  router.use(createRestErrorHandler(log));
  return router;
}

/**
 * Of the router, and for what goes wrong on the way to it.
 * @param present how errors are told, where it is not by the contract
 */
export function createRestErrorHandler(
  log: Logger,
  present: (res: Response, error: unknown) => void = sendError,
): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const isGone = res.destroyed || res.closed;
    if (res.headersSent || isGone) {
      // half a list cannot be taken back: the reader must see that it is not whole
      if (!isGone) logFailure(log, error, 'REST: an answer broke off', { url: req.originalUrl });
      res.destroy();
      return;
    }
    // express itself throws for a path whose percent signs mean nothing
    const known = error instanceof URIError ? new HttpError(400, `the path is not valid: ${req.path}`) : error;
    if (!isExpected(known)) logFailure(log, error, 'REST: internal error', { url: req.originalUrl });
    present(res, known);
  };
}

function isExpected(error: unknown): boolean {
  return error instanceof HttpError || answerOf(error).status < 500; // one of the protocol was meant
}

/** Creates routers for the REST APIs from tables of routes. */
import express, { type Request, type Response, type Router } from 'express';
import type { Context } from '../../src/domain/context.js';
import { checkMethod, HttpError } from '../../src/gateway/http/http-body.js';

export type Handler = (ctx: Context, req: Request, res: Response) => Promise<void>;

/** A path and its handlers. HEAD requests use the GET handler. A method without a handler returns status 405. */
export interface Route {
  path: string;
  get?: Handler;
  post?: Handler;
  put?: Handler;
  delete?: Handler;
}

/**
 * Creates a router that answers unknown paths with status 404. The caller must mount an error handler after the router.
 */
export function createRouter(routes: readonly Route[], contextOf: (req: Request) => Context): Router {
  const router = express.Router({ caseSensitive: true });
  for (const { path, ...handlers } of routes) {
    const allow = Object.keys(handlers).map((method) => method.toUpperCase());
    if (handlers.get) allow.push('HEAD');
    const route = router.route(path);
    for (const [method, handler] of Object.entries(handlers)) {
      route[method as keyof typeof handlers]((req, res) => handler(contextOf(req), req, res));
    }
    route.all((req) => checkMethod(req, allow));
  }
  router.use((req) => {
    throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  });
  return router;
}

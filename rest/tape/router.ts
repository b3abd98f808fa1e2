/** The WLCG Tape REST API, version 1: its routes. README.md beside it says what is decided where its specification leaves something open. */
import express, { type Request, type Response, type Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../../src/context.js';
import { HttpError } from '../../src/http-body.js';
import { createRestErrorHandler } from '../router.js';
import * as calls from './calls.js';
import { sendProblem } from './problem.js';

type Handler = (ctx: Context, req: Request, res: Response) => Promise<void>;

const routes: { path: string; get?: Handler; post?: Handler; delete?: Handler }[] = [
  { path: '/stage', post: calls.stage },
  { path: '/stage/:id', get: calls.poll, delete: calls.remove },
  { path: '/stage/:id/cancel', post: calls.cancel },
  { path: '/release/:id', post: calls.release },
  { path: '/archiveinfo', post: calls.archiveInfo },
];

/**
 * To be mounted at `TAPE_PATH`.
 * @param contextOf gives the context in which a request is served
 */
export function createTapeRouter(contextOf: (req: Request) => Context, log: Logger): Router {
  const router = express.Router({ caseSensitive: true });
  for (const { path, ...handlers } of routes) {
    const allow = Object.keys(handlers).map((method) => method.toUpperCase());
    if (handlers.get) allow.push('HEAD');
    const route = router.route(path);
    for (const [method, handler] of Object.entries(handlers)) {
      route[method as 'get' | 'post' | 'delete']((req, res) => handler(contextOf(req), req, res));
    }
    route.all((req) => {
      const list = allow.join(', ');
      throw new HttpError(405, `${req.method} is not allowed here, only ${list}`, { Allow: list });
    });
  }
  router.use((req) => {
    throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  });
  router.use(createTapeErrorHandler(log));
  return router;
}

/** Of the router, and for what goes wrong on the way to it. */
export const createTapeErrorHandler = (log: Logger) => createRestErrorHandler(log, sendProblem);

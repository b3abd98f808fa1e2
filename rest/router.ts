/** The REST contract: its routes. */
import type { ErrorRequestHandler, Request, Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../src/context.js';
import * as files from './files.js';
import * as quotas from './quotas.js';
import * as requests from './requests.js';
import { sendError } from './respond.js';
import { createErrorHandler, createRouter, type Route } from './routes.js';

const routes: Route[] = [
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
  return createRouter(routes, contextOf, createRestErrorHandler(log));
}

/** Of the router, and for what goes wrong on the way to it. */
export const createRestErrorHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, sendError);

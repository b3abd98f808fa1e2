/** The REST contract: its routes. */
import type { ErrorRequestHandler, Request, Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../src/context.js';
import { endpoints, routesOf } from './endpoints.js';
import { sendError } from './respond.js';
import { createErrorHandler, createRouter } from './routes.js';

/**
 * To be mounted at /tape_control/api/v1.
 * @param contextOf gives the context in which a request is served
 */
export function createRestRouter(contextOf: (req: Request) => Context, log: Logger): Router {
  return createRouter(routesOf(endpoints), contextOf, createRestErrorHandler(log));
}

/** Of the router, and for what goes wrong on the way to it. */
export const createRestErrorHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, sendError);

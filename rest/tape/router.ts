/** The WLCG Tape REST API, version 1: its routes. README.md beside it says what is decided where its specification leaves something open. */
import type { Request, Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../../src/context.js';
import { createRouter, type Route } from '../routes.js';
import * as calls from './calls.js';
import { createProblemHandler } from './problem.js';

const routes: Route[] = [
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
  return createRouter(routes, contextOf, createProblemHandler(log));
}

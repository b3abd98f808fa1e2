/**
 * Routes of the WLCG Tape REST API, version 1. docs/reference/rest.md describes Tapegate's behaviour where the
 * specification permits several behaviours.
 */
import { STATUS_CODES } from 'node:http';
import type { ErrorRequestHandler, Request, Response, Router } from 'express';
import type { Logger } from 'pino';
import { UserError } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import { answerOf, createErrorHandler } from '../../src/gateway/http/http-errors.js';
import { createRouter, type Route } from '../v1/routes.js';
import * as calls from './endpoints.js';

const routes: Route[] = [
  { path: '/stage', post: calls.stage },
  { path: '/stage/:id', get: calls.poll, delete: calls.remove },
  { path: '/stage/:id/cancel', post: calls.cancel },
  { path: '/release/:id', post: calls.release },
  { path: '/archiveinfo', post: calls.archiveInfo },
];

/** Creates the router, which must be mounted at `TAPE_PATH`. */
export const createTapeRouter = (contextOf: (req: Request) => Context): Router => createRouter(routes, contextOf);

/** Creates the error handler, which sends problem details (RFC 7807). */
export const createProblemHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, 'REST', sendProblem);

/** Maps an exceeded limit to status 429 instead of 403, because clients do not retry after status 403. */
const statusOf = (error: unknown, status: number): number =>
  error instanceof UserError && error.code === 'LIMIT_REACHED' ? 429 : status;

function sendProblem(res: Response, error: unknown): void {
  const { status: known, message, headers } = answerOf(error);
  const status = statusOf(error, known);
  const body = JSON.stringify({ status, title: STATUS_CODES[status] ?? 'Error', detail: message });
  res.set(headers).status(status);
  res.setHeader('Content-Type', 'application/problem+json');
  res.end(body);
}

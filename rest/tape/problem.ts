/** Errors of the WLCG Tape REST API: problems after RFC 7807. */
import { STATUS_CODES } from 'node:http';
import type { ErrorRequestHandler, Response } from 'express';
import type { Logger } from 'pino';
import { UserError } from '../../src/errors.js';
import { answerOf } from '../respond.js';
import { createErrorHandler } from '../routes.js';

/** Of the API and of the bytes, and for what goes wrong on the way to them. */
export const createProblemHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, sendProblem);

/** What is at a limit is to come again, which 403 would say never to do. */
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

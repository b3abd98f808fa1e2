/** Errors of the WLCG Tape REST API: problems after RFC 7807. */
import { STATUS_CODES } from 'node:http';
import type { Response } from 'express';
import { UserError } from '../../src/errors.js';
import { answerOf } from '../respond.js';

/** What is at a limit is to come again, which 403 would say never to do. */
const statusOf = (error: unknown, status: number): number =>
  error instanceof UserError && error.code === 'LIMIT_REACHED' ? 429 : status;

export function sendProblem(res: Response, error: unknown): void {
  const { status: known, message, headers } = answerOf(error);
  const status = statusOf(error, known);
  const body = JSON.stringify({ status, title: STATUS_CODES[status] ?? 'Error', detail: message });
  res.set(headers).status(status);
  res.setHeader('Content-Type', 'application/problem+json');
  res.end(body);
}

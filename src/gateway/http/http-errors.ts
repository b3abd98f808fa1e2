/** Maps errors to HTTP statuses, which are the same in all protocols. */
import type { ErrorRequestHandler, Response } from 'express';
import type { Logger } from 'pino';
import {
  classOf,
  logFailure,
  OverShareError,
  UnavailableError,
  UnconfirmedError,
  UserError,
  type UserErrorCode,
} from '../../core/errors.js';
import { count } from '../../core/signals.js';
import { HttpError } from './http-body.js';
import { idOf } from './request-ids.js';

const statusOf: Record<UserErrorCode, number> = {
  INVALID_INPUT: 400,
  UNKNOWN_USER: 403,
  QUOTA_EXCEEDED: 403,
  LIMIT_REACHED: 403,
  WRONG_QUOTA: 403,
  NOT_FOUND: 404,
  FORBIDDEN: 403,
  IN_USE: 409,
  EVENTS_GONE: 410,
};

/**
 * Returns the HTTP status and the message for any error. The message for an internal error is only `Internal error`.
 */
export function answerOf(error: unknown): { status: number; message: string; headers: Record<string, string> } {
  if (error instanceof HttpError) return error;
  if (error instanceof UserError) return { status: statusOf[error.code], message: error.message, headers: {} };
  // return 500 if it is unknown whether a change was made, because clients would repeat the change after a 503
  if (error instanceof UnconfirmedError) return { status: 500, message: error.message, headers: {} };
  if (error instanceof UnavailableError) {
    const status = error instanceof OverShareError ? 429 : 503;
    return { status, message: error.message, headers: { 'Retry-After': String(error.retryAfterSeconds) } };
  }
  return { status: 500, message: 'Internal error', headers: {} };
}

/**
 * Creates a protocol's error handler, which must be registered after the protocol's other handlers.
 * @param protocol the protocol's name in the log
 * @param present sends the error response
 */
export function createErrorHandler(
  log: Logger,
  protocol: string,
  present: (res: Response, error: unknown) => void,
): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const fields = { url: req.originalUrl, ...idOf(res) };
    const isDisconnected = res.destroyed || res.closed;
    if (res.headersSent || isDisconnected) {
      // close the connection, so that the client notices that the response is incomplete
      if (!isDisconnected) logFailure(log, error, `${protocol}: a response was interrupted`, fields);
      res.destroy();
      return;
    }
    // express throws a URIError for invalid percent-encoding
    const known = error instanceof URIError ? new HttpError(400, `the path is not valid: ${req.path}`) : error;
    count('tapegate_errors_total', { class: classOf(known) });
    // do not log an HttpError with a 5xx status, because it is not an unexpected error
    if (!(known instanceof HttpError) && answerOf(known).status >= 500) {
      logFailure(log, error, `${protocol}: internal error`, fields);
    }
    present(res, known);
  };
}

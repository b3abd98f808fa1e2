/** Reads and checks the parameters of GraphQL requests over HTTP. */
import type { ErrorRequestHandler, Request, Response } from 'express';
import type { Logger } from 'pino';
import { messageOf, quote, UnavailableError, UnconfirmedError } from '../../src/core/errors.js';
import { isObject } from '../../src/core/text/json.js';
import { HttpError, parseBounded, readJsonBody } from '../../src/gateway/http/http-body.js';
import { answerOf, createErrorHandler as createHandler } from '../../src/gateway/http/http-errors.js';

export interface Params {
  query: string;
  operationName?: string | null;
  variables?: Record<string, unknown> | null;
  extensions?: Record<string, unknown> | null;
}

/** An HTTP error with a code that GraphQL clients recognise. */
export class CodedHttpError extends HttpError {
  readonly code: string;

  /** @param status the HTTP status of the response; 200 for some errors in Apollo's protocol */
  constructor(status: number, code: string, message: string) {
    super(status, message);
    this.code = code;
  }
}

/**
 * Returns the media type that the client prefers. Returns undefined if the client accepts none of the types, or does
 * not accept UTF-8.
 */
export function acceptedOf(req: Request, types: readonly string[]): string | undefined {
  const accepted = req.accepts(types.map((type) => `${type};charset=utf-8`));
  return accepted ? accepted.split(';')[0] : undefined;
}

export function notAcceptable(...types: string[]): HttpError {
  return new HttpError(406, `the Accept header must allow ${types.join(' or ')}`);
}

/** @param otherwise what the client can do instead of accepting an event stream */
export function streamRequired(what: string, otherwise: string): CodedHttpError {
  const message = `${what} returns an event stream: send "Accept: text/event-stream", or ${otherwise}`;
  return new CodedHttpError(406, 'EVENT_STREAM_REQUIRED', message);
}

/**
 * Returns a persisted document's text (persisted.ts). Returns undefined if the request contains no document id.
 * @throws HttpError
 */
type FindText = (given: object) => string | undefined;

function named(value: unknown, findText: FindText): unknown {
  if (!isObject(value)) return value;
  const query = findText(isObject(value.extensions) ? value : { ...value, extensions: null });
  if (query === undefined) return value;
  const { documentId: _, ...others } = value;
  return { ...others, query };
}

/**
 * Reads the parameters from the body of a POST or the query string of a GET.
 * @throws HttpError 400, 413, 415
 */
export async function readParams(req: Request, findText: FindText = () => undefined): Promise<Params> {
  if (req.method === 'GET') return checkParams(named(readQueryString(req), findText));
  if (!req.is('json')) {
    const given = req.get('content-type');
    const problem = given === undefined ? 'and is missing' : `not ${quote(given)}`;
    throw new HttpError(415, `Content-Type must be application/json, ${problem}`, {
      'Accept-Post': 'application/json',
    });
  }
  try {
    return checkParams(named(await readJsonBody(req), findText));
  } catch (error) {
    throw error instanceof HttpError ? error : new HttpError(400, 'the request body is incomplete');
  }
}

function readQueryString(req: Request): object {
  const { searchParams } = new URL(req.url, 'http://localhost');
  const text = (name: string) => searchParams.get(name) || undefined;
  const json = (name: string) => {
    const value = text(name);
    try {
      return value === undefined ? undefined : parseBounded(value);
    } catch (error) {
      throw new HttpError(400, `${name} must be a JSON object: ${messageOf(error)}`);
    }
  };
  return {
    query: text('query'),
    documentId: text('documentId'),
    operationName: text('operationName'),
    variables: json('variables'),
    extensions: json('extensions'),
  };
}

function checkParams(value: unknown): Params {
  if (Array.isArray(value)) {
    const message = 'the body is a JSON list, but batching is not supported: send each operation in its own request';
    throw new CodedHttpError(400, 'BATCHING_NOT_SUPPORTED', message);
  }
  if (!isObject(value) || typeof value.query !== 'string') {
    throw new HttpError(400, 'the request must contain a "query" in a JSON object (POST) or in a URL parameter (GET)');
  }
  const { operationName } = value;
  if (typeof (operationName ?? '') !== 'string') {
    throw new HttpError(400, `operationName must be a string, not ${nameOf(operationName)}`);
  }
  for (const name of ['variables', 'extensions']) {
    const given = value[name] ?? undefined;
    if (given !== undefined && !isObject(given)) {
      throw new HttpError(400, `${name} must be a JSON object, not ${nameOf(given)}`);
    }
  }
  return value as unknown as Params;
}

function nameOf(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  return isObject(value) ? 'an object' : `a ${typeof value === 'bigint' ? 'number' : typeof value}`;
}

const STATUS_CODES: Record<number, string> = {
  401: 'UNAUTHENTICATED',
  429: 'TOO_MANY_REQUESTS',
  500: 'INTERNAL_SERVER_ERROR',
  503: 'UNAVAILABLE',
};

export const createErrorHandler = (log: Logger): ErrorRequestHandler => createHandler(log, 'GraphQL', sendError);

function sendError(res: Response, error: unknown): void {
  const { status, message, headers } = answerOf(error);
  const code = error instanceof CodedHttpError ? error.code : STATUS_CODES[status];
  const isUnsent = error instanceof UnavailableError && !(error instanceof UnconfirmedError);
  const retry = isUnsent ? { retryAfterSeconds: error.retryAfterSeconds } : {};
  res.status(status).set(headers);
  res.json({ errors: [{ message, ...(code && { extensions: { code, ...retry } }) }] });
}

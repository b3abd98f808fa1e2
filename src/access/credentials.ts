/** What a request shows of its caller: the Authorization header, read. */
import type { IncomingMessage } from 'node:http';
import { HttpError } from '../http-body.js';

export type Credentials =
  | { scheme: 'bearer'; secret: string }
  /** The name and the password of Basic. */
  | { scheme: 'basic'; name: string; secret: string };

/** Of RFC 6750 and 7617; what the secret is, the ways say. Undefined where there is nothing of either kind. */
export function readCredentials(req: IncomingMessage): Credentials | undefined {
  const { authorization } = req.headers;
  if (authorization === undefined) return undefined;
  const [, scheme = '', rest = ''] = /^(\S+) +(\S+) *$/.exec(authorization) ?? [];
  if (scheme.toLowerCase() === 'bearer') return { scheme: 'bearer', secret: rest };
  if (scheme.toLowerCase() === 'basic') {
    const text = Buffer.from(rest, 'base64').toString('utf8');
    const colon = text.indexOf(':');
    if (colon >= 0) return { scheme: 'basic', name: text.slice(0, colon), secret: text.slice(colon + 1) };
  }
  return undefined;
}

const BASIC = 'Basic realm="Tapegate", charset="UTF-8", ';

/** @param problem for people; it must not repeat what was shown */
export function unauthenticated(problem: string): HttpError {
  return new HttpError(401, problem, { 'WWW-Authenticate': `${BASIC}Bearer realm="Tapegate"` });
}

/**
 * Where Basic is offered, a browser asks for a name and a password by itself, over a page that asks in its own way: scripts of pages say by
 * `X-Requested-With` that it is they who ask.
 */
export function spareDialog(error: unknown, { headers }: IncomingMessage): unknown {
  if (!(error instanceof HttpError) || error.status !== 401 || headers['x-requested-with'] === undefined) return error;
  const challenge = String(error.headers['WWW-Authenticate']).replace(BASIC, '');
  return new HttpError(401, error.message, { ...error.headers, 'WWW-Authenticate': challenge });
}

/** As RFC 6750 has it. @param problem for people; it must not repeat what was shown */
export function invalidToken(problem: string): HttpError {
  return new HttpError(401, problem, { 'WWW-Authenticate': 'Bearer error="invalid_token", realm="Tapegate"' });
}

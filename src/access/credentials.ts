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

/** @param problem for people; it must not repeat what was shown */
export function unauthenticated(problem: string): HttpError {
  return new HttpError(401, problem, {
    'WWW-Authenticate': 'Basic realm="Tapegate", charset="UTF-8", Bearer realm="Tapegate"',
  });
}

/** As RFC 6750 has it. @param problem for people; it must not repeat what was shown */
export function invalidToken(problem: string): HttpError {
  return new HttpError(401, problem, { 'WWW-Authenticate': 'Bearer error="invalid_token", realm="Tapegate"' });
}

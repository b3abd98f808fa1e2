/** What pages of listed origins are told, so that their browsers let them ask and read (the Fetch standard, 3.2). */
import cors from 'cors';
import type { RequestHandler } from 'express';
import type { BrowserConfig } from '../../config.js';

/** All that any path takes: what one of them does not, it says itself. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'];

/** What clients send beside what browsers let every page send. */
const SENT_HEADERS = [
  'Accept',
  'Authorization',
  'Content-Type',
  'Last-Event-ID',
  'X-GraphQL-Event-Stream-Token',
  'X-Requested-With',
];

/** What pages may read beside the body and its type. */
const READ_HEADERS = ['Allow', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'WWW-Authenticate'];

/** How long a browser need not ask again whether it may. */
const MAX_AGE_SECONDS = 600;

/** Without a listed origin it does nothing at all. Cookies and the like of a proxy are not meant to be sent by other pages. */
export function createCors({ corsOrigins }: Pick<BrowserConfig, 'corsOrigins'>): RequestHandler {
  if (corsOrigins.length === 0) return (_req, _res, next) => next();
  const options = {
    methods: METHODS,
    allowedHeaders: SENT_HEADERS,
    exposedHeaders: READ_HEADERS,
    maxAge: MAX_AGE_SECONDS,
  };
  return (req, res, next) => {
    res.vary('Accept, Origin'); // for those as well that have no origin: what is cached for them is not for others
    const origin = req.get('origin');
    if (origin === undefined || !corsOrigins.includes(origin)) return next();
    const isPreflight = req.get('access-control-request-method') !== undefined;
    cors({ ...options, origin, preflightContinue: !isPreflight })(req, res, next);
  };
}

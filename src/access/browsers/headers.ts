/** What each answer says to browsers, and to caches, for the gateway's own sake. */
import type { Request, RequestHandler, Response } from 'express';
import helmet from 'helmet';
import type { BrowserConfig } from '../../config.js';

/** Half a year; of names below its own the gateway knows nothing. */
const HSTS = { maxAge: 180 * 86_400, includeSubDomains: false };

/**
 * No answer is a page, but for GraphiQL, which has a policy of its own (graphql/graphiql.ts): nothing is loaded, run, framed
 * or taken for another type. A browser is held to TLS only where users come by it.
 */
export function createSecurityHeaders({ publicUrl, tlsCert }: BrowserConfig): RequestHandler {
  const isByTls = tlsCert !== undefined || publicUrl?.startsWith('https:');
  const headers = headersOf(
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"], baseUri: ["'none'"], formAction: ["'none'"] },
      },
      xFrameOptions: { action: 'deny' },
      // Origin would be null for forms of our own with no-referrer
      referrerPolicy: { policy: 'same-origin' },
      strictTransportSecurity: isByTls ? HSTS : false,
      // of browsers that are no more
      xDownloadOptions: false,
      xXssProtection: false,
      xDnsPrefetchControl: false,
      xPermittedCrossDomainPolicies: false,
      xPoweredBy: false,
    }),
  );
  headers.push(['Cache-Control', UNKEPT]);
  return (_req, res, next) => {
    for (const [name, value] of headers) res.setHeader(name, value);
    next();
  };
}

/** What a handler sets on an answer, which depends on nothing of the request: worked out once, not by ten functions each time. */
function headersOf(handler: RequestHandler): [string, string][] {
  const headers: [string, string][] = [];
  let isDone = false;
  const res = { setHeader: (name: string, value: string) => headers.push([name, value]), removeHeader: () => {} };
  handler({} as Request, res as unknown as Response, (error?: unknown) => {
    if (error) throw error;
    isDone = true;
  });
  if (!isDone) throw new Error('the headers for browsers are not known at once');
  return headers;
}

/**
 * An answer is for who asks, and as things are at that moment. A cache in between may not know one caller from another, as where a proxy says who
 * it is; and some keep for minutes whatever says nothing of it.
 */
const UNKEPT = 'no-store';

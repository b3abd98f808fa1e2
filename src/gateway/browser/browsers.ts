/**
 * Decides by host and origin which browser requests the gateway accepts, and sets the response headers for browsers.
 */

import cors from 'cors';
import type { Request, RequestHandler } from 'express';
import helmet from 'helmet';
import type { AccessConfig, BrowserConfig } from '../../config/config.js';
import { quote } from '../../core/errors.js';
import { isLoopback } from '../../core/net/address-ranges.js';
import { bareHost } from '../../core/net/issuer-urls.js';
import { HttpError } from '../http/http-body.js';
import { hostnameOf } from '../http/http-target.js';

/** Path of the health endpoint, which accepts any host name, because load balancers might use any name. */
const HEALTH = /^\/health(\/|$)/i;

type GuardConfig = BrowserConfig & HostConfig & { access: AccessConfig };

export function createBrowserGuard(config: GuardConfig): RequestHandler {
  const checkHost = createHostCheck(config);
  const cors = createCors(config);
  return (req, res, next) => {
    if (HEALTH.test(req.path)) return next();
    if (mayBeAnonymous(config)) checkHost(req);
    cors(req, res, (error) => {
      if (error) return next(error);
      refuseForeignPage(req, config);
      next();
    });
  };
}

/**
 * Returns whether the gateway accepts requests without credentials. A gateway that requires credentials does not check
 * the Host header, because a page that uses DNS rebinding has no credentials.
 */
function mayBeAnonymous({ access }: GuardConfig): boolean {
  return access.auth.has('open') || access.auth.has('legacy');
}

type HostConfig = Pick<BrowserConfig, 'publicUrl' | 'allowedHosts'> & { host: string };

/**
 * Returns a check that throws HttpError 421 if the Host header does not name this gateway. With DNS rebinding, a
 * browser treats a foreign page as same-origin, and only the Host header shows that the page is foreign.
 */
function createHostCheck({ host, publicUrl, allowedHosts }: HostConfig): (req: Request) => void {
  const own = [host, ...allowedHosts, ...(publicUrl ? [new URL(publicUrl).hostname] : [])];
  const known = new Set(own.map(hostnameOf));
  return (req) => {
    const given = req.get('host');
    if (!given) return; // accept a request without a Host header, because no browser sends such a request
    const name = hostnameOf(given);
    if (isLoopbackName(name) || known.has(name) || name === addressOf(req)) return;
    throw new HttpError(
      421,
      `unknown host ${quote(given)}: use the host in TAPEGATE_PUBLIC_URL or a host in TAPEGATE_ALLOWED_HOSTS`,
    );
  };
}

/** Returns whether a name or address always refers to this host (RFC 6761, 6.3). */
function isLoopbackName(name: string | undefined): boolean {
  return name !== undefined && (isLoopback(bareHost(name)) || name.endsWith('.localhost'));
}

/** Returns the connection's local address, formatted as a host name. DNS rebinding cannot forge the local address. */
function addressOf({ socket }: Request): string | undefined {
  const address = socket.localAddress?.replace(/^::ffff:(?=\d+\.)/, '');
  return address && hostnameOf(address);
}

/**
 * Rejects requests from pages of other origins. Foreign pages cannot read responses, but could keep the gateway busy
 * with requests for long lists.
 * @throws HttpError 403
 */
function refuseForeignPage(req: Request, config: BrowserConfig): void {
  if (req.method === 'OPTIONS') return;
  const page = foreignPageOf(req, config);
  if (page === undefined || isLinkFollowed(req)) return;
  throw new HttpError(
    403,
    `requests from pages of another origin are not allowed (${page}): use the URL in TAPEGATE_PUBLIC_URL, or add the origin to TAPEGATE_CORS_ORIGINS`,
  );
}

/**
 * Returns the header that proves that a page of a foreign origin sent the request. Returns undefined if the page's
 * origin is allowed or unknown.
 */
function foreignPageOf(req: Request, config: BrowserConfig): string | undefined {
  const origin = req.get('origin');
  if (origin !== undefined) return isKnown(origin, req, config) ? undefined : `Origin: ${quote(origin)}`;
  // Sec-Fetch-Site is "none" if the user entered the URL; browsers omit the header over plain HTTP
  const site = req.get('sec-fetch-site') ?? 'none';
  return ['none', 'same-origin'].includes(site) ? undefined : `Sec-Fetch-Site: ${quote(site)}`;
}

function isKnown(origin: string, req: Request, { publicUrl, corsOrigins }: BrowserConfig): boolean {
  if (corsOrigins.includes(origin)) return true;
  return [`${req.protocol}://${req.get('host')}`, publicUrl].some(
    (own) => own !== undefined && originOf(own) === origin,
  );
}

const originOf = (url: string) => (URL.canParse(url) ? new URL(url).origin : undefined);

/**
 * Returns whether the user followed a link in a browser window. Requests from frames do not count, because a page could
 * open any number of frames.
 */
function isLinkFollowed(req: Request): boolean {
  const isRead = req.method === 'GET' || req.method === 'HEAD';
  return isRead && req.get('sec-fetch-mode') === 'navigate' && req.get('sec-fetch-dest') === 'document';
}

/** Response headers that pages of listed origins can read, besides those in TAPEGATE_CORS_EXPOSED_HEADERS. */
const READ_HEADERS = [
  ...['Allow', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'WWW-Authenticate'],
  ...['X-Request-Id', 'traceparent'],
];

const MAX_AGE_SECONDS = 600;

/**
 * Creates the CORS handler. Pages of other origins are not allowed to send cookies. Preflight responses allow all
 * requested headers and the usual methods.
 */
function createCors({ corsOrigins, corsExposedHeaders }: BrowserConfig): RequestHandler {
  if (corsOrigins.length === 0) return (_req, _res, next) => next();
  const options = { exposedHeaders: [...READ_HEADERS, ...corsExposedHeaders], maxAge: MAX_AGE_SECONDS };
  return (req, res, next) => {
    // set Vary even without an Origin header, so that caches do not mix up responses for different origins
    res.vary('Accept, Origin');
    const origin = req.get('origin');
    if (origin === undefined || !corsOrigins.includes(origin)) return next();
    const isPreflight = req.get('access-control-request-method') !== undefined;
    cors({ ...options, origin, preflightContinue: !isPreflight })(req, res, next);
  };
}

/**
 * HTTP Strict Transport Security for half a year. Excludes subdomains, because the gateway does not know its
 * subdomains.
 */
const HSTS = { maxAge: 180 * 86_400, includeSubDomains: false };

/**
 * Sets the security headers. By default, browsers must not run scripts in a response, show the response in a frame, or
 * guess the response's type. The GraphiQL page has its own policy (graphql/server/graphiql.ts). Sends HSTS only if
 * users connect over TLS.
 */
export function createSecurityHeaders({ publicUrl, tlsCert }: BrowserConfig): RequestHandler {
  const isByTls = tlsCert !== undefined || publicUrl?.startsWith('https:');
  const setHeaders = helmet({
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"], baseUri: ["'none'"], formAction: ["'none'"] },
    },
    xFrameOptions: { action: 'deny' },
    // do not use no-referrer, because browsers would send `Origin: null` from Tapegate's own forms
    referrerPolicy: { policy: 'same-origin' },
    strictTransportSecurity: isByTls ? HSTS : false,
    xDownloadOptions: false,
    xXssProtection: false,
    xDnsPrefetchControl: false,
    xPermittedCrossDomainPolicies: false,
    xPoweredBy: false,
  });
  return (req, res, next) => {
    // forbid caching, because a shared cache might not distinguish callers
    res.setHeader('Cache-Control', 'no-store');
    setHeaders(req, res, next);
  };
}

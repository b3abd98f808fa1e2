/** Requests that the gateway accepts from browsers, by host and origin, and the headers of its responses for them. */

import cors from 'cors';
import type { Request, RequestHandler } from 'express';
import helmet from 'helmet';
import type { AccessConfig, BrowserConfig } from '../../config/config.js';
import { isLoopback } from '../../core/address-ranges.js';
import { quote } from '../../core/errors.js';
import { bareHost } from '../../core/issuer-urls.js';
import { HttpError } from '../http/http-body.js';
import { hostnameOf } from '../http/http-target.js';

/** Load balancers check the health under any host name; the response contains almost nothing. */
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
 * A page that reaches the gateway by DNS rebinding has no credentials. So the host matters only if callers need none.
 */
function mayBeAnonymous({ access }: GuardConfig): boolean {
  return access.auth.has('open') || access.auth.has('legacy');
}

type HostConfig = Pick<BrowserConfig, 'publicUrl' | 'allowedHosts'> & { host: string };

/**
 * Returns a check that throws HttpError 421 if `Host` names another host; ports do not matter. With DNS rebinding, a
 * browser treats a foreign page as same-origin, and only `Host` shows the difference.
 */
function createHostCheck({ host, publicUrl, allowedHosts }: HostConfig): (req: Request) => void {
  const own = [host, ...allowedHosts, ...(publicUrl ? [new URL(publicUrl).hostname] : [])];
  const known = new Set(own.map(hostnameOf));
  return (req) => {
    const given = req.get('host');
    if (!given) return; // every browser sends one
    const name = hostnameOf(given);
    if (isLoopbackName(name) || known.has(name) || name === addressOf(req)) return;
    throw new HttpError(
      421,
      `unknown host ${quote(given)}: use a host of TAPEGATE_PUBLIC_URL or TAPEGATE_ALLOWED_HOSTS`,
    );
  };
}

/** Names of this host for every resolver (RFC 6761, 6.3), and its addresses. */
function isLoopbackName(name: string | undefined): boolean {
  return name !== undefined && (isLoopback(bareHost(name)) || name.endsWith('.localhost'));
}

/** The local address of the connection, as a host; DNS rebinding cannot forge it. */
function addressOf({ socket }: Request): string | undefined {
  const address = socket.localAddress?.replace(/^::ffff:(?=\d+\.)/, '');
  return address && hostnameOf(address);
}

/**
 * Rejects requests from pages of other origins, but not from other clients (curl, scripts). Such pages cannot read
 * responses, but could keep the gateway busy with lists. A user may still follow a link, which opens its own page.
 * @throws HttpError 403
 */
function refuseForeignPage(req: Request, config: BrowserConfig): void {
  if (req.method === 'OPTIONS') return; // changes and reads nothing
  const page = foreignPageOf(req, config);
  if (page === undefined || isLinkFollowed(req)) return;
  throw new HttpError(
    403,
    `pages of another origin are not allowed (${page}): use TAPEGATE_PUBLIC_URL, or list the origin in TAPEGATE_CORS_ORIGINS`,
  );
}

/** Returns the header that shows a foreign page; undefined for our own and listed pages, and for other clients. */
function foreignPageOf(req: Request, config: BrowserConfig): string | undefined {
  const origin = req.get('origin');
  if (origin !== undefined) return isKnown(origin, req, config) ? undefined : `Origin: ${quote(origin)}`;
  // user navigation is `none`; without the header, as over plain HTTP, browsers send Origin with all changes
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

/** Only in a window: a page could open any number of frames. */
function isLinkFollowed(req: Request): boolean {
  const isRead = req.method === 'GET' || req.method === 'HEAD';
  return isRead && req.get('sec-fetch-mode') === 'navigate' && req.get('sec-fetch-dest') === 'document';
}

/** Response headers that pages may read beyond the defaults. */
const READ_HEADERS = ['Allow', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'WWW-Authenticate'];

const MAX_AGE_SECONDS = 600;

/**
 * Does nothing without a listed origin. Pages of other origins must not send cookies. By default, a preflight allows the
 * headers that it names, and all usual methods; each path rejects others itself.
 */
function createCors({ corsOrigins }: Pick<BrowserConfig, 'corsOrigins'>): RequestHandler {
  if (corsOrigins.length === 0) return (_req, _res, next) => next();
  const options = { exposedHeaders: READ_HEADERS, maxAge: MAX_AGE_SECONDS };
  return (req, res, next) => {
    res.vary('Accept, Origin'); // also without an origin: caches must not mix the responses
    const origin = req.get('origin');
    if (origin === undefined || !corsOrigins.includes(origin)) return next();
    const isPreflight = req.get('access-control-request-method') !== undefined;
    cors({ ...options, origin, preflightContinue: !isPreflight })(req, res, next);
  };
}

/** Half a year. The gateway does not know about subdomains. */
const HSTS = { maxAge: 180 * 86_400, includeSubDomains: false };

/**
 * Responses are not pages, except GraphiQL with its own policy (graphql/server/graphiql.ts): browsers must not load, run,
 * frame or sniff them. HSTS is sent only if users connect by TLS.
 */
export function createSecurityHeaders({ publicUrl, tlsCert }: BrowserConfig): RequestHandler {
  const isByTls = tlsCert !== undefined || publicUrl?.startsWith('https:');
  const setHeaders = helmet({
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"], baseUri: ["'none'"], formAction: ["'none'"] },
    },
    xFrameOptions: { action: 'deny' },
    // with no-referrer, Origin would be null for our own forms
    referrerPolicy: { policy: 'same-origin' },
    strictTransportSecurity: isByTls ? HSTS : false,
    // for obsolete browsers
    xDownloadOptions: false,
    xXssProtection: false,
    xDnsPrefetchControl: false,
    xPermittedCrossDomainPolicies: false,
    xPoweredBy: false,
  });
  return (req, res, next) => {
    // the response is for this caller only, and a shared cache may not distinguish callers
    res.setHeader('Cache-Control', 'no-store');
    setHeaders(req, res, next);
  };
}

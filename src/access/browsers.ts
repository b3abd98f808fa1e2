/** Which requests the gateway accepts from browsers: for which hosts, and from pages of which origins. And the headers of its answers for them. */

import cors from 'cors';
import type { Request, RequestHandler } from 'express';
import helmet from 'helmet';
import { isLoopback } from '../address-ranges.js';
import type { AccessConfig, BrowserConfig } from '../config.js';
import { quote } from '../errors.js';
import { HttpError } from '../http-body.js';
import { hostnameOf } from '../http-target.js';

/** Whoever watches the process may ask by any address and name, as load balancers do, and is told next to nothing. */
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
 * Where a name leads here by a trick, its page has no credentials to show: it is answered only where callers need none. Those
 * of `legacy` show none either.
 */
function mayBeAnonymous({ access }: GuardConfig): boolean {
  return access.auth.has('open') || access.auth.has('legacy');
}

export type HostConfig = Pick<BrowserConfig, 'publicUrl' | 'allowedHosts'> & { host: string };

/**
 * Returns a check that throws HttpError 421 if `Host` names another host; ports do not matter. With DNS rebinding, a page of another host is of
 * the gateway's origin to the browser, and only `Host` shows that it was meant for another.
 */
export function createHostCheck({ host, publicUrl, allowedHosts }: HostConfig): (req: Request) => void {
  const own = [host, ...allowedHosts, ...(publicUrl ? [new URL(publicUrl).hostname] : [])];
  const known = new Set(own.map(hostnameOf));
  return (req) => {
    const given = req.get('host');
    if (!given) return; // every browser names one
    const name = hostnameOf(given);
    if (isLoopbackName(name) || known.has(name) || name === addressOf(req)) return;
    throw new HttpError(
      421,
      `this gateway is not ${quote(given)}: it goes by the names of TAPEGATE_PUBLIC_URL and TAPEGATE_ALLOWED_HOSTS`,
    );
  };
}

/** Names that lead to this host, whoever is asked for them (RFC 6761, 6.3), and addresses, which lead nowhere else. */
function isLoopbackName(name: string | undefined): boolean {
  return name !== undefined && (isLoopback(bare(name)) || name.endsWith('.localhost'));
}

/** The address at which the request came in, as a host; nobody can make a name of it. */
function addressOf({ socket }: Request): string | undefined {
  const address = socket.localAddress?.replace(/^::ffff:(?=\d+\.)/, '');
  return address && hostnameOf(address);
}

const bare = (name: string) => name.replace(/^\[(.*)\]$/, '$1');

/**
 * Refuses what pages of other origins ask for, and leaves alone what comes of no page (curl, scripts). What they may not
 * change is clear; reading they could not see either, but it has its cost: an open page could keep the gateway busy with
 * lists. What stays allowed is a link or an address that somebody follows, which opens in a page of its own.
 * @throws HttpError 403
 */
export function refuseForeignPage(req: Request, config: BrowserConfig): void {
  if (req.method === 'OPTIONS') return; // changes and reads nothing
  const page = foreignPageOf(req, config);
  if (page === undefined || isLinkFollowed(req)) return;
  throw new HttpError(
    403,
    `a page of another origin may not ask here (${page}): only one of this gateway (TAPEGATE_PUBLIC_URL), or of TAPEGATE_CORS_ORIGINS`,
  );
}

/** The header that says so; undefined for a page of our own, one that is listed, and none at all. */
function foreignPageOf(req: Request, config: BrowserConfig): string | undefined {
  const origin = req.get('origin');
  if (origin !== undefined) return isKnown(origin, req, config) ? undefined : `Origin: ${quote(origin)}`;
  // what a browser asks for by itself is `none`; where it does not say so, as over plain HTTP, it sends Origin with all that changes
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

/** In a window, that is: in a frame a page could have as many as it likes. */
function isLinkFollowed(req: Request): boolean {
  const isRead = req.method === 'GET' || req.method === 'HEAD';
  return isRead && req.get('sec-fetch-mode') === 'navigate' && req.get('sec-fetch-dest') === 'document';
}

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

/** Half a year; of names below its own the gateway knows nothing. */
const HSTS = { maxAge: 180 * 86_400, includeSubDomains: false };

/**
 * No answer is a page, but for GraphiQL, which has a policy of its own (graphql/graphiql.ts): nothing is loaded, run, framed
 * or taken for another type. A browser is held to TLS only where users come by it.
 */
export function createSecurityHeaders({ publicUrl, tlsCert }: BrowserConfig): RequestHandler {
  const isByTls = tlsCert !== undefined || publicUrl?.startsWith('https:');
  const setHeaders = helmet({
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
  });
  return (req, res, next) => {
    // the answer is for this caller only, and a shared cache may not tell callers apart
    res.setHeader('Cache-Control', 'no-store');
    setHeaders(req, res, next);
  };
}

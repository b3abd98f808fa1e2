/** What a request must be for the gateway to look at it at all, be it of a browser or not. */
import type { RequestHandler } from 'express';
import type { AccessConfig, BrowserConfig } from '../../config.js';
import { createCors } from './cors.js';
import { createHostCheck, type HostConfig } from './hosts.js';
import { refuseForeignPage } from './origins.js';

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

/** What a request must be for the gateway to look at it at all, be it of a browser or not. */
import type { RequestHandler } from 'express';
import type { BrowserConfig } from '../../config-browsers.js';
import { createCors } from './cors.js';
import { createHostCheck, type HostConfig } from './hosts.js';
import { refuseForeignPage } from './origins.js';

/** Whoever watches the process may ask by any address and name, as load balancers do, and is told next to nothing. */
const HEALTH = /^\/health(\/|$)/i;

export function createBrowserGuard(config: BrowserConfig & HostConfig): RequestHandler {
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

/** A caller who has shown who it is was no page of a name that leads here by a trick: that one has no credentials to show. */
function mayBeAnonymous(_config: HostConfig): boolean {
  return true; // until there are ways to know a caller
}

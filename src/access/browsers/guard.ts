/** What a request must be for the gateway to look at it at all, be it of a browser or not. */
import type { RequestHandler } from 'express';
import type { BrowserConfig } from '../../config-browsers.js';
import { refuseForeignPage } from './origins.js';

/** Who watches the process says nothing of itself, and is told next to nothing. */
const HEALTH = /^\/health(\/|$)/i;

export function createBrowserGuard(config: BrowserConfig): RequestHandler {
  return (req, _res, next) => {
    if (HEALTH.test(req.path)) return next();
    refuseForeignPage(req, config);
    next();
  };
}

/** Of which page a request comes, by what browsers add to it and no page can change: `Origin` and Fetch Metadata. */
import type { Request } from 'express';
import type { BrowserConfig } from '../../config.js';
import { quote } from '../../errors.js';
import { HttpError } from '../../http-body.js';

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
    `a page of another origin may not ask here (${page}): only one of this gateway (PUBLIC_URL), or of CORS_ORIGINS`,
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

/** Serves the discovery document of the WLCG Tape REST API at a well-known path. */
import type { Request, RequestHandler } from 'express';
import type { Config } from '../../src/config/config.js';
import { HttpError } from '../../src/gateway/http/http-body.js';

export const DISCOVERY_PATH = '/.well-known/wlcg-tape-rest-api';
export const TAPE_PATH = '/tape_rest/v1';

type SiteConfig = Pick<Config, 'publicUrl' | 'transfer'>;

/** Returns the gateway's URL from the configuration or the `Host` header. @throws HttpError 400 if both are missing */
function ownUrl({ publicUrl }: SiteConfig, req: Request): string {
  const host = req.get('host');
  if (publicUrl === undefined && !host)
    throw new HttpError(400, 'the Host header is missing: it must contain the host name of the gateway');
  return publicUrl ?? `${req.protocol}://${host}`;
}

export const apiUrl = (config: SiteConfig, req: Request): string => `${ownUrl(config, req)}${TAPE_PATH}`;

/** Returns the site's name. In a stage request, a client puts metadata for this site under the site's name. */
export const siteNameOf = (config: SiteConfig, req: Request): string =>
  config.transfer.siteName ?? new URL(ownUrl(config, req)).hostname;

export function createDiscovery(config: SiteConfig): RequestHandler {
  return (req, res) => {
    res.json({
      sitename: siteNameOf(config, req),
      description: 'Tapegate',
      endpoints: [{ uri: apiUrl(config, req), version: 'v1', metadata: {} }],
    });
  };
}

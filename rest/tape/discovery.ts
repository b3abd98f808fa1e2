/** Where clients find the WLCG Tape REST API: at a well-known place of the host by which they know the files. */
import type { Request, RequestHandler } from 'express';
import type { Config } from '../../src/config.js';
import { HttpError } from '../../src/http-body.js';

export const DISCOVERY_PATH = '/.well-known/wlcg-tape-rest-api';
export const TAPE_PATH = '/tape_rest/v1';

type Named = Pick<Config, 'publicUrl' | 'door'>;

/** @throws HttpError 400 where neither the configuration nor the client says by what name the gateway is found */
function ownUrl({ publicUrl }: Named, req: Request): string {
  const host = req.get('host');
  if (publicUrl === undefined && !host) throw new HttpError(400, 'Host must name the gateway, and is missing');
  return publicUrl ?? `${req.protocol}://${host}`;
}

/** Where all calls of version 1 are. */
export const apiUrl = (config: Named, req: Request): string => `${ownUrl(config, req)}${TAPE_PATH}`;

/** By which targeted metadata mean this site. */
export const siteNameOf = (config: Named, req: Request): string =>
  config.door.siteName ?? new URL(ownUrl(config, req)).hostname;

/** Nothing of it is secret: who asks is not asked for. */
export function createDiscovery(config: Named): RequestHandler {
  return (req, res) => {
    res.json({
      sitename: siteNameOf(config, req),
      description: 'Tapegate',
      endpoints: [{ uri: apiUrl(config, req), version: 'v1', metadata: {} }],
    });
  };
}

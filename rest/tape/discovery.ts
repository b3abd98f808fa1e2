/** Where clients find the WLCG Tape REST API: at a well-known place of the host by which they know the files. */
import type { Request, RequestHandler } from 'express';
import type { Config } from '../../src/config.js';

export const DISCOVERY_PATH = '/.well-known/wlcg-tape-rest-api';
export const TAPE_PATH = '/tape_rest/v1';

type Named = Pick<Config, 'publicUrl' | 'door'>;

const ownUrl = ({ publicUrl }: Named, req: Request): string => publicUrl ?? `${req.protocol}://${req.get('host')}`;

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

/** What the gateway says of itself to clients that look for a token: RFC 9728. */
import type { Request, RequestHandler } from 'express';
import type { AccessConfig } from '../config.js';
import { HttpError } from '../http-body.js';

export const METADATA_PATH = '/.well-known/oauth-protected-resource';

interface DiscoveryConfig {
  access: AccessConfig;
  publicUrl: string | undefined;
}

/** Of a gateway that takes tokens of issuers; any other has nothing to say there. */
export function createMetadataHandler({ access, publicUrl }: DiscoveryConfig): RequestHandler {
  return (req, res, next) => {
    if (!access.auth.has('oidc')) return next();
    res.json({
      resource: ownUrl(req, publicUrl),
      authorization_servers: access.oidcIssuers,
      bearer_methods_supported: ['header'],
      scopes_supported: ['storage.read:/', 'storage.stage:/'],
      resource_name: 'Tapegate',
      // what a command needs beside that to ask for a token: our own names, as the RFC allows (2)
      tapegate_audience: access.oidcAudiences[0],
      tapegate_client_id: access.oidcClientId,
    });
  };
}

function ownUrl(req: Request, publicUrl: string | undefined): string {
  return publicUrl ?? `${req.protocol}://${req.get('host')}`;
}

/** A refusal that says where the issuers are named (RFC 9728, 5.1). */
export function pointToIssuers(error: unknown, req: Request, { access, publicUrl }: DiscoveryConfig): unknown {
  if (!(error instanceof HttpError) || error.status !== 401 || !access.auth.has('oidc')) return error;
  const challenge = `${error.headers['WWW-Authenticate']}, resource_metadata="${ownUrl(req, publicUrl)}${METADATA_PATH}"`;
  return new HttpError(401, error.message, { ...error.headers, 'WWW-Authenticate': challenge });
}

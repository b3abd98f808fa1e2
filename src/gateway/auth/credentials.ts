/** Reads the Authorization header. */
import type { IncomingMessage } from 'node:http';
import type { Request, RequestHandler } from 'express';
import type { AccessConfig } from '../../config/config.js';
import { HttpError } from '../http/http-body.js';

export type Credentials =
  | { scheme: 'bearer'; secret: string }
  /** Name and password of Basic authentication. */
  | { scheme: 'basic'; name: string; secret: string };

/** Reads Bearer (RFC 6750) or Basic (RFC 7617) credentials; undefined if the request contains neither. */
export function readCredentials(req: IncomingMessage): Credentials | undefined {
  const { authorization } = req.headers;
  if (authorization === undefined) return undefined;
  const [, scheme = '', rest = ''] = /^(\S+) +(\S+) *$/.exec(authorization) ?? [];
  if (scheme.toLowerCase() === 'bearer') return { scheme: 'bearer', secret: rest };
  if (scheme.toLowerCase() === 'basic') {
    const text = Buffer.from(rest, 'base64').toString('utf8');
    const colon = text.indexOf(':');
    if (colon >= 0) return { scheme: 'basic', name: text.slice(0, colon), secret: text.slice(colon + 1) };
  }
  return undefined;
}

const BASIC = 'Basic realm="Tapegate", charset="UTF-8", ';

/** @param problem an error message for the user, which must not contain the credentials */
export function unauthenticated(problem: string): HttpError {
  return new HttpError(401, problem, { 'WWW-Authenticate': `${BASIC}Bearer realm="Tapegate"` });
}

/**
 * If a web page's script sent the request, removes the Basic challenge from the 401 error. With this challenge, the
 * browser would show its own login dialog. Scripts identify themselves with the header X-Requested-With.
 */
export function spareDialog(error: unknown, { headers }: IncomingMessage): unknown {
  if (!(error instanceof HttpError) || error.status !== 401 || headers['x-requested-with'] === undefined) return error;
  const challenge = String(error.headers['WWW-Authenticate']).replace(BASIC, '');
  return new HttpError(401, error.message, { ...error.headers, 'WWW-Authenticate': challenge });
}

/**
 * Returns the error for an invalid token, with the challenge from RFC 6750.
 * @param problem an error message for the user, which must not contain the credentials
 */
export function invalidToken(problem: string): HttpError {
  return new HttpError(401, problem, { 'WWW-Authenticate': 'Bearer error="invalid_token", realm="Tapegate"' });
}

export const METADATA_PATH = '/.well-known/oauth-protected-resource';

interface DiscoveryConfig {
  access: AccessConfig;
  publicUrl: string | undefined;
}

/**
 * Creates the handler that serves the gateway's OAuth metadata (RFC 9728), if the gateway accepts tokens from identity
 * providers.
 */
export function createMetadataHandler({ access, publicUrl }: DiscoveryConfig): RequestHandler {
  return (req, res, next) => {
    if (!access.auth.has('oidc')) return next();
    res.json({
      resource: ownUrl(req, publicUrl),
      authorization_servers: access.oidcIssuers,
      bearer_methods_supported: ['header'],
      scopes_supported: ['storage.read:/', 'storage.stage:/'],
      resource_name: 'Tapegate',
      // Tapegate's commands need the `tapegate_` fields to request a token; RFC 9728 (2) allows additional fields
      tapegate_audience: access.oidcAudiences[0],
      tapegate_client_id: access.oidcClientId,
    });
  };
}

function ownUrl(req: Request, publicUrl: string | undefined): string {
  return publicUrl ?? `${req.protocol}://${req.get('host')}`;
}

/** Adds the URL of the gateway's OAuth metadata to a 401 error (RFC 9728, 5.1). */
export function pointToIssuers(error: unknown, req: Request, { access, publicUrl }: DiscoveryConfig): unknown {
  if (!(error instanceof HttpError) || error.status !== 401 || !access.auth.has('oidc')) return error;
  const challenge = `${error.headers['WWW-Authenticate']}, resource_metadata="${ownUrl(req, publicUrl)}${METADATA_PATH}"`;
  return new HttpError(401, error.message, { ...error.headers, 'WWW-Authenticate': challenge });
}

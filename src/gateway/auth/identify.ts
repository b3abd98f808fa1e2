/** Authenticates REST and GraphQL requests with the configured methods. */
import type { IncomingMessage } from 'node:http';
import type { Request, RequestHandler, Response } from 'express';
import type { Caller } from '../../core/caller.js';
import type { Context } from '../../domain/context.js';
import { addressOf, findForwarded, isProxied } from '../http/address.js';
import { HttpError } from '../http/http-body.js';
import { KnownCallers, openCaller } from './callers.js';
import { pointToIssuers, readCredentials, spareDialog, unauthenticated } from './credentials.js';
import { endpointOf, LegacyCallers } from './legacy.js';
import { LinkCallers } from './links.js';
import { OidcCallers } from './oidc.js';
import { OpenResponses } from './open-responses.js';
import { readCertificateUser, readProxyUser } from './proxy.js';
import { TokenCallers } from './token.js';

const callers = new WeakMap<IncomingMessage, Caller>();

export function callerOf(req: IncomingMessage): Caller {
  const caller = callers.get(req);
  if (!caller) throw new Error('the request was not authenticated');
  return caller;
}

export interface Identifier {
  /** Authenticates each request. This handler must run before handlers that need the caller. @throws HttpError 401 */
  handler: RequestHandler;
  /**
   * Identifies the caller of a download link by the link, because a browser that saves a link does not send a token.
   * Rejects a caller that identifies itself as another user. @throws HttpError 403, 404
   */
  linkHandler: RequestHandler<{ link: string }>;
  close(): void;
  /** Writes the pending counts of anonymous requests to the database. Call this function after the last response. */
  finish(): Promise<void>;
}

export function createIdentifier(ctx: Context): Identifier {
  const tokens = new TokenCallers(ctx);
  const responses = new OpenResponses(ctx);
  const oidc = new OidcCallers(ctx);
  const legacy = new LegacyCallers(ctx);
  const links = new LinkCallers(ctx);
  const knownCallers = new KnownCallers(ctx);
  const { access } = ctx.config;
  const { auth } = access;
  const identify = async (req: Request, res: Response): Promise<Caller> => {
    const address = addressOf(req);
    const credentials = readCredentials(req);
    const known = credentials && auth.has('token') ? await tokens.find(req, credentials, address) : undefined;
    if (known) return known;
    const identity =
      (credentials?.scheme === 'bearer' && auth.has('oidc') ? await oidc.find(credentials.secret) : undefined) ??
      (auth.has('proxy') ? readProxyUser(access, req) : undefined) ??
      (auth.has('certificate') ? readCertificateUser(access, req) : undefined);
    if (identity) return await knownCallers.get(identity, address);
    const hasCredentials = req.headers.authorization !== undefined;
    const legacyCaller = !hasCredentials && auth.has('legacy') ? await legacy.find(req, res) : undefined;
    if (legacyCaller) return legacyCaller;
    // a gateway without authentication ignores unknown credentials (the REST contract, 1.4)
    if (auth.has('open')) {
      checkDirect(req);
      return openCaller(address);
    }
    if (credentials?.scheme === 'bearer') throw unauthenticated('this token is not valid');
    if (hasCredentials) throw unauthenticated('the token or password in the Authorization header is not valid');
    throw unauthenticated(
      'authentication required: send a token in the Authorization header, as a Bearer token or as the Basic password',
    );
  };
  return {
    handler: async (req, res, next) => {
      const caller = await identify(req, res).catch((error) => {
        if (error instanceof HttpError && error.status === 401) {
          recordUnauthenticated(ctx, req, error);
          if (auth.has('legacy')) legacy.recordRefused(req);
        }
        throw spareDialog(pointToIssuers(error, req, ctx.config), req);
      });
      callers.set(req, caller);
      responses.follow(res, caller);
      next();
    },
    linkHandler: async (req, res, next) => {
      const sender = await identify(req, res).catch((error) => {
        if (error instanceof HttpError && error.status === 401 && req.headers.authorization === undefined)
          return undefined;
        throw error;
      });
      const caller = await links.find(req.params.link, { address: addressOf(req), sender });
      callers.set(req, caller);
      responses.follow(res, caller);
      next();
    },
    close: () => responses.close(),
    finish: () => legacy.close(),
  };
}

/** Records a rejected request in the audit log, without headers, because any header might contain a secret. */
function recordUnauthenticated(ctx: Context, req: Request, { message }: HttpError): void {
  const caller = { name: '', way: 'unknown', tokenId: undefined, address: addressOf(req) } as const;
  const given = { problem: message, endpoint: endpointOf(req) };
  ctx.refusals.record(caller, { operation: 'identify', kind: 'NONE', object: '', given }, 'UNAUTHENTICATED');
}

/**
 * Rejects unauthenticated requests from a proxy, because all clients of a proxy on this host would seem to be on this
 * host.
 */
function checkDirect(req: IncomingMessage): void {
  const header = findForwarded(req);
  if (header === undefined && !isProxied(req)) return;
  const evidence = header ?? 'TAPEGATE_PROXY_ADDRESSES contains the proxy';
  throw unauthenticated(
    `requests through a proxy (${evidence}) must be authenticated: only clients on this host may be anonymous`,
  );
}

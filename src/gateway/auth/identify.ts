/** Authenticates each request of REST and GraphQL by the configured methods. */
import type { IncomingMessage } from 'node:http';
import type { Request, RequestHandler, Response } from 'express';
import type { Caller } from '../../core/caller.js';
import type { Context } from '../../domain/context.js';
import { addressOf, findForwarded, isProxied } from '../http/address.js';
import { HttpError } from '../http/http-body.js';
import { KnownCallers, openCaller } from './callers.js';
import { pointToIssuers, readCredentials, spareDialog, unauthenticated } from './credentials.js';
import { endpointOf, LegacyCallers } from './legacy.js';
import { OidcCallers } from './oidc.js';
import { OpenAnswers } from './open-answers.js';
import { readCertificateUser, readProxyUser } from './proxy.js';
import { TokenCallers } from './token.js';

const callers = new WeakMap<IncomingMessage, Caller>();

/** For a request that has passed `createIdentifier`. */
export function callerOf(req: IncomingMessage): Caller {
  const caller = callers.get(req);
  if (!caller) throw new Error('nobody has asked who the caller is');
  return caller;
}

export interface Identifier {
  /** Must run before all other handlers. @throws HttpError 401 */
  handler: RequestHandler;
  /** Stops following open responses. */
  close(): void;
  /** Writes pending records after the last response. */
  finish(): Promise<void>;
}

export function createIdentifier(ctx: Context): Identifier {
  const tokens = new TokenCallers(ctx);
  const answers = new OpenAnswers(ctx);
  const oidc = new OidcCallers(ctx);
  const legacy = new LegacyCallers(ctx);
  const callersKnown = new KnownCallers(ctx);
  const { access } = ctx.config;
  const { auth } = access;
  const identify = async (req: Request, res: Response): Promise<Caller> => {
    const address = addressOf(req);
    const shown = readCredentials(req);
    const known = shown && auth.has('token') ? await tokens.find(req, shown, address) : undefined;
    if (known) return known;
    const identity =
      (shown?.scheme === 'bearer' && auth.has('oidc') ? await oidc.find(shown.secret) : undefined) ??
      (auth.has('proxy') ? readProxyUser(access, req) : undefined) ??
      (auth.has('certificate') ? readCertificateUser(access, req) : undefined);
    if (identity) return await callersKnown.get(identity, address);
    const hasShown = req.headers.authorization !== undefined;
    const unknown = !hasShown && auth.has('legacy') ? await legacy.find(req, res) : undefined;
    if (unknown) return unknown;
    // unknown credentials are ignored (the REST contract, 1.4)
    if (auth.has('open')) {
      checkDirect(req);
      return openCaller(address);
    }
    if (hasShown)
      throw unauthenticated('the token, or whatever else the Authorization header shows, is not known here');
    throw unauthenticated(
      'say who you are: by a token in the Authorization header, as Bearer or as the password of Basic',
    );
  };
  return {
    handler: async (req, res, next) => {
      const caller = await identify(req, res).catch((error) => {
        if (error instanceof HttpError && error.status === 401) {
          noteUnknown(ctx, req, error);
          if (auth.has('legacy')) legacy.noteRefused(req);
        }
        throw spareDialog(pointToIssuers(error, req, ctx.config), req);
      });
      callers.set(req, caller);
      answers.follow(res, caller);
      next();
    },
    close: () => answers.close(),
    finish: () => legacy.close(),
  };
}

/** Records no part of the credentials: they may be a secret in the wrong place. */
function noteUnknown(ctx: Context, req: Request, { message }: HttpError): void {
  const asker = { name: '', way: 'unknown', tokenId: undefined, address: addressOf(req) } as const;
  const given = { problem: message, endpoint: endpointOf(req) };
  ctx.refusals.record(asker, { operation: 'identify', kind: 'NONE', object: '', given }, 'UNAUTHENTICATED');
}

/** A proxy makes every client local, so its clients must authenticate. */
function checkDirect(req: IncomingMessage): void {
  const header = findForwarded(req);
  if (header === undefined && !isProxied(req)) return;
  const sign = header ?? 'its address is listed';
  throw unauthenticated(`who comes through a proxy (${sign}) must say who it is: the open way is for this host alone`);
}

/** Identifies the callers of download links: a link has the current rights of the caller that created it. */
import { type Caller, ownerOf } from '../../core/caller.js';
import { Limiter } from '../../core/limiter.js';
import { isBefore } from '../../core/time.js';
import { findTokenById } from '../../domain/access/tokens.js';
import type { Context } from '../../domain/context.js';
import { type LinkIdentity, readLink } from '../../domain/disks/downloads.js';
import { addressKey } from '../http/address.js';
import { HttpError } from '../http/http-body.js';
import { openCaller, toCaller } from './callers.js';
import { toTokenCaller } from './token.js';

/**
 * Maximum number of concurrent lookups of links. Without this limit, lookups of invalid links could occupy all database
 * connections.
 */
const LOOKUPS = 8;

/** Returns the error for a link that does not work. The text does not reveal whether the link has ever existed. */
export const unusableLink = (): HttpError =>
  new HttpError(404, 'this download link was already used or has expired: start the download again');

export class LinkCallers {
  private readonly ctx: Context;
  private readonly lookups = new Limiter(LOOKUPS);

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /**
   * Returns the caller that created a link, with the caller's current rights.
   * @param how.sender the caller as which the client has identified itself, if any
   * @throws HttpError 404 if the link does not work, or its creator may no longer use Tapegate; 403 if the client has
   * identified itself as another caller
   */
  async find(secret: string, how: { address: string | undefined; sender: Caller | undefined }): Promise<Caller> {
    const { address, sender } = how;
    const release = await this.lookups.take({ key: addressKey(address) });
    try {
      const link = await readLink(this.ctx, secret);
      const caller = link && (await this.restore(link.identity, address));
      if (!caller) throw unusableLink();
      const isNamed = sender && sender.way !== 'open' && sender.way !== 'legacy';
      if (isNamed && ownerOf(sender) !== link.owner)
        throw new HttpError(403, 'another user created this download link');
      return { ...caller, address };
    } finally {
      release();
    }
  }

  private async restore(identity: LinkIdentity, address: string | undefined): Promise<Caller | undefined> {
    const { auth } = this.ctx.config.access;
    const { way, tokenId, expiresAt, roles } = identity;
    if (way === 'system' || way === 'legacy' || !auth.has(way)) return undefined;
    if (way === 'open') return openCaller(address);
    if (expiresAt !== undefined && !isBefore(this.ctx.now(), expiresAt)) return undefined;
    if (tokenId === undefined) return await toCaller(this.ctx, { ...identity, roles: new Set(roles), address });
    const token = await findTokenById(this.ctx, tokenId);
    return token && (await toTokenCaller(this.ctx, token));
  }
}

/**
 * Ends open responses, such as lists and streams, when the caller's token expires or is revoked, or the caller's rights
 * change.
 */
import type { Response } from 'express';
import type { Caller } from '../../core/caller.js';
import { logFailure } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import { type Rights, readRights } from '../../domain/access/members.js';
import { findEnded } from '../../domain/access/tokens.js';
import type { Context } from '../../domain/context.js';

/**
 * Interval in milliseconds at which the callers of open responses are checked. The interval is half the documented
 * maximum delay, so that responses end in time even if one check fails.
 */
const CHECK_MS = 2000;

/**
 * Maximum duration, in seconds, of a stream for a caller whom a proxy has authenticated. The client then reconnects
 * without missing events, and the proxy authenticates the caller again.
 */
const PROXIED_SECONDS = 900;

interface Followed {
  caller: Caller;
  streamsUntil: string | undefined;
}

const isStream = ({ locals }: Response): boolean => locals.isStream === true;

export class OpenResponses {
  private readonly ctx: Context;
  private readonly open = new Map<Response, Followed>();
  private readonly timer: NodeJS.Timeout;
  private readonly unsubscribe: () => void;
  private checking: Promise<void> = Promise.resolve();
  private haveRightsChanged = false;
  private openRights: string | undefined;

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.timer = setInterval(() => this.checkSoon(), CHECK_MS).unref();
    const unsubscribes = [
      ctx.events.onNotify('access', () => this.checkSoon()),
      ctx.events.onNotify('rights', () => {
        this.haveRightsChanged = true;
        this.checkSoon();
      }),
    ];
    this.unsubscribe = () => {
      for (const unsubscribe of unsubscribes) unsubscribe();
    };
  }

  follow(res: Response, caller: Caller): void {
    const isProxied = caller.way === 'proxy' || caller.way === 'certificate';
    this.open.set(res, { caller, streamsUntil: isProxied ? addSeconds(this.ctx.now(), PROXIED_SECONDS) : undefined });
    res.once('close', () => this.open.delete(res));
    if (res.closed) this.open.delete(res);
  }

  close(): void {
    clearInterval(this.timer);
    this.unsubscribe();
  }

  private async endChanged(): Promise<void> {
    const known = new Map<string, Promise<Rights>>();
    // the first check does not know `openRights`, so it might end streams although no rights have changed
    const seen = this.openRights;
    const { version: open } = await readRights(this.ctx, 'anybody', []);
    for (const [res, { caller }] of this.open) {
      const { way, name, groups, rights } = caller;
      const key = JSON.stringify([name, groups]);
      const found = known.get(key) ?? readRights(this.ctx, name, groups);
      known.set(key, found);
      if ((await found).version === (way === 'open' ? seen : rights)) continue;
      // a response that is not a stream finishes with the old rights, but `isStale` ends a response that later becomes
      // a stream
      if (isStream(res)) res.destroy();
      else res.locals.isStale = true;
    }
    this.openRights = open;
  }

  private checkSoon(): void {
    this.checking = this.checking.then(() => this.endInvalid());
  }

  private async endInvalid(): Promise<void> {
    try {
      await this.endUnknown();
      if (!this.haveRightsChanged) return;
      this.haveRightsChanged = false;
      await this.endChanged();
    } catch (error) {
      this.haveRightsChanged = true;
      logFailure(
        this.ctx.log,
        error,
        'cannot check whether the callers of open streams are still authorized; retrying',
      );
    }
  }

  private async endUnknown(): Promise<void> {
    const now = this.ctx.now();
    const ids = new Set([...this.open.values()].flatMap(({ caller }) => caller.tokenId ?? []));
    const ended = ids.size > 0 ? await findEnded(this.ctx, [...ids]) : new Set<number>();
    const isPast = (time: string | undefined) => time !== undefined && !isBefore(now, time);
    for (const [res, { caller, streamsUntil }] of this.open) {
      const { tokenId, expiresAt } = caller;
      const isOver = isPast(expiresAt) || (isStream(res) && isPast(streamsUntil));
      if (isOver || (tokenId !== undefined && ended.has(tokenId))) res.destroy();
    }
  }
}

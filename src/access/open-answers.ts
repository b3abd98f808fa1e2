/** Answers that go on: lists and streams end when their caller is known no longer. */
import type { Response } from 'express';
import type { Caller } from '../caller.js';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
import { type Rights, readRights } from '../operations/access/members.js';
import { findEnded } from '../operations/access/tokens.js';
import { addSeconds, isBefore } from '../time.js';

/** Twice within the time that is promised: a look may fail. */
const LOOK_MS = 2000;

/**
 * What a proxy says of a caller, its groups among it, holds for one request; a stream is asked again after this. Clients of streams
 * come back by themselves, and miss nothing.
 */
const PROXIED_SECONDS = 900;

interface Followed {
  caller: Caller;
  streamsUntil: string | undefined;
}

const isStream = ({ locals }: Response): boolean => locals.isStream === true;

export class OpenAnswers {
  private readonly ctx: Context;
  private readonly open = new Map<Response, Followed>();
  private readonly timer: NodeJS.Timeout;
  private readonly unlisten: () => void;
  private turn: Promise<void> = Promise.resolve();
  private isLooking = false;
  /** Rights have changed, and nobody has looked yet. */
  private isDue = false;
  /** The version of the rights of whoever asks, as it was at the last look. */
  private openRights: string | undefined;

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.timer = setInterval(() => this.look(), LOOK_MS).unref();
    const bells = [
      ctx.events.onRing('access', () => this.look()),
      ctx.events.onRing('rights', () => this.lookAtRights()),
    ];
    this.unlisten = () => {
      for (const unlisten of bells) unlisten();
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
    this.unlisten();
  }

  /** Who may see or do what has changed: those who are concerned come back, and begin with what is right by now. */
  private lookAtRights(): void {
    if (this.isLooking) return; // for all bells that ring until then
    this.isLooking = true;
    this.isDue = true;
    this.follows(async () => {
      this.isLooking = false;
      await this.endChanged();
      this.isDue = this.isLooking; // a bell has rung meanwhile
    });
  }

  private async endChanged(): Promise<void> {
    const known = new Map<string, Promise<Rights>>();
    // whoever asks is known without the database: what held at the last look is compared, and a first look ends one stream too many
    const seen = this.openRights;
    const { version: open } = await readRights(this.ctx, 'anybody', []);
    for (const [res, { caller }] of this.open) {
      const { way, name, groups, rights } = caller;
      const key = JSON.stringify([name, groups]);
      const found = known.get(key) ?? readRights(this.ctx, name, groups);
      known.set(key, found);
      if ((await found).version === (way === 'open' ? seen : rights)) continue;
      // what is no stream yet ends as soon as it is one; an answer that is not goes out as it was asked for
      if (isStream(res)) res.destroy();
      else res.locals.isStale = true;
    }
    this.openRights = open;
  }

  private look(): void {
    if (this.open.size === 0) return;
    if (this.isDue) this.lookAtRights(); // the last look has failed
    this.follows(() => this.endUnknown());
  }

  /** One look after another. */
  private follows(look: () => Promise<void>): void {
    this.turn = this.turn.then(look).catch((error) => logFailure(this.ctx.log, error, 'callers are not looked at'));
  }

  private async endUnknown(): Promise<void> {
    const now = this.ctx.now();
    const ids = new Set([...this.open.values()].flatMap(({ caller }) => caller.tokenId ?? []));
    const ended = ids.size > 0 ? await findEnded(this.ctx, [...ids]) : new Set<number>();
    const isPast = (time: string | undefined) => time !== undefined && !isBefore(now, time);
    for (const [res, { caller, streamsUntil }] of this.open) {
      const { tokenId, expiresAt } = caller;
      const isOver = isPast(expiresAt) || (isStream(res) && isPast(streamsUntil));
      // whoever reads sees that it is not whole, and is told why when it comes back
      if (isOver || (tokenId !== undefined && ended.has(tokenId))) res.destroy();
    }
  }
}

/** Answers that go on: lists and streams end when their caller is known no longer. */
import type { Response } from 'express';
import type { Caller } from '../caller.js';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
import { type Rights, readRights } from '../operations/access/members.js';
import { findEnded } from '../operations/access/tokens.js';
import { isBefore } from '../time.js';

/** Twice within the time that is promised: a look may fail. */
const LOOK_MS = 2000;

export class OpenAnswers {
  private readonly ctx: Context;
  private readonly open = new Map<Response, Caller>();
  private readonly timer: NodeJS.Timeout;
  private readonly unlisten: () => void;
  private turn: Promise<void> = Promise.resolve();
  private isLooking = false;
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
    this.open.set(res, caller);
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
    this.follows(async () => {
      this.isLooking = false;
      await this.endChanged();
    });
  }

  private async endChanged(): Promise<void> {
    const known = new Map<string, Promise<Rights>>();
    // whoever asks is known without the database: what held at the last look is compared, and a first look ends one stream too many
    const seen = this.openRights;
    const { version: open } = await readRights(this.ctx, 'anybody', []);
    for (const [res, { way, name, groups, rights }] of this.open) {
      const key = JSON.stringify([name, groups]);
      const found = known.get(key) ?? readRights(this.ctx, name, groups);
      known.set(key, found);
      if ((await found).version === (way === 'open' ? seen : rights)) continue;
      // what is no stream yet ends as soon as it is one; an answer that is not goes out as it was asked for
      if (res.locals.isStream) res.destroy();
      else res.locals.isStale = true;
    }
    this.openRights = open;
  }

  private look(): void {
    if (this.open.size === 0) return;
    this.follows(() => this.endUnknown());
  }

  /** One look after another. */
  private follows(look: () => Promise<void>): void {
    this.turn = this.turn.then(look).catch((error) => logFailure(this.ctx.log, error, 'callers are not looked at'));
  }

  private async endUnknown(): Promise<void> {
    const now = this.ctx.now();
    const ids = new Set([...this.open.values()].flatMap(({ tokenId }) => tokenId ?? []));
    const ended = ids.size > 0 ? await findEnded(this.ctx, [...ids]) : new Set<number>();
    for (const [res, { tokenId, expiresAt }] of this.open) {
      const isOver = expiresAt !== undefined && !isBefore(now, expiresAt);
      // whoever reads sees that it is not whole, and is told why when it comes back
      if (isOver || (tokenId !== undefined && ended.has(tokenId))) res.destroy();
    }
  }
}

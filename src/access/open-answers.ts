/** Answers that go on: lists and streams end when their caller is known no longer. */
import type { Response } from 'express';
import { type Caller, hasRole } from '../caller.js';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
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

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.timer = setInterval(() => this.look(), LOOK_MS).unref();
    const bells = [ctx.events.onRing('access', () => this.look()), ctx.events.onRing('rights', () => this.endRuled())];
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

  /** Who may see or do what has changed: those for whom that is of account come back, and begin with what is right by now. */
  private endRuled(): void {
    for (const [res, caller] of this.open) {
      if (hasRole(caller, 'operator')) continue;
      // what is no stream yet ends as soon as it is one; an answer that is not goes out as it was asked for
      if (res.locals.isStream) res.destroy();
      else res.locals.isStale = true;
    }
  }

  private look(): void {
    if (this.open.size === 0) return;
    this.turn = this.turn
      .then(() => this.endUnknown())
      .catch((error) => logFailure(this.ctx.log, error, 'callers are not looked at'));
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

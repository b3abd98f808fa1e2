/** Requests of one caller that are in hand at once, and streams, which are none any more once they are open. */
import type { ServerResponse } from 'node:http';
import { HttpError } from '../../http-body.js';

/** Counts what callers have at once of something. */
export class Shares {
  private readonly most: { all: number; one: number };
  private readonly what: string;
  private readonly counts = new Map<string, number>();
  private count = 0;

  /** @param what for people, in the plural */
  constructor(what: string, most: { all: number; one: number }) {
    this.what = what;
    this.most = most;
  }

  /** @returns what gives it back, once. @throws HttpError 429, 503 */
  take(caller: string, amount = 1): () => void {
    const give = this.tryTake(caller, amount);
    if (give) return give;
    const headers = { 'Retry-After': '5' };
    if ((this.counts.get(caller) ?? 0) + amount > this.most.one) {
      throw new HttpError(429, `you have ${this.most.one} ${this.what} already: try again later`, headers);
    }
    throw new HttpError(503, `there are too many ${this.what}: try again later`, headers);
  }

  /** The same, and undefined if there is no room. */
  tryTake(caller: string, amount = 1): (() => void) | undefined {
    const own = (this.counts.get(caller) ?? 0) + amount;
    if (own > this.most.one || this.count + amount > this.most.all) return undefined;
    this.count += amount;
    this.counts.set(caller, own);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.count -= amount;
      const left = (this.counts.get(caller) ?? 0) - amount;
      if (left > 0) this.counts.set(caller, left);
      else this.counts.delete(caller);
    };
  }
}

const turns = new WeakMap<ServerResponse, () => void>();

/** A request is in hand until it is answered. */
export function beginTurn(res: ServerResponse, give: () => void): void {
  turns.set(res, give);
  onceOver(res, give);
}

/** It goes on as a stream, which counts as that. */
export function endTurn(res: ServerResponse): void {
  turns.get(res)?.();
}

interface Kept {
  /** By so many. */
  count: number;
  gives: (() => void)[];
}

const keeping = new WeakMap<ServerResponse, Kept>();

/** What a request has taken is given back once it is answered, unless it is kept longer. */
export function onceOver(res: ServerResponse, give: () => void): void {
  res.once('close', () => {
    const kept = keeping.get(res);
    if (kept) kept.gives.push(give);
    else give();
  });
}

/**
 * What was asked for is still to be done once the request is answered, or its sender has gone: what it has taken is kept.
 * @returns what ends that, once
 */
export function keepTurn(res: ServerResponse): () => void {
  const kept = keeping.get(res) ?? { count: 0, gives: [] };
  keeping.set(res, kept);
  kept.count++;
  let isKept = true;
  return () => {
    if (!isKept) return;
    isKept = false;
    if (--kept.count > 0) return;
    keeping.delete(res);
    for (const give of kept.gives.splice(0)) give();
  };
}

/** Estimated ends of requests whose progress is watched. */
import { LRUCache } from 'lru-cache';
import type { EndRange } from '../../planner/end-range.js';
import type { Context } from '../context.js';
import { type Plan, readPlan } from './plan.js';
import { readWaiting } from './waiting.js';

/** Milliseconds for which an estimate and its plan are used, because thousands of clients may watch requests. */
const ESTIMATE_MS = 5000;
const MOST_ESTIMATES = 10_000;

class Estimates {
  private plan: { at: number; plan: Promise<Plan> } | undefined;
  private readonly ends = new LRUCache<number, Promise<EndRange | undefined>>({
    max: MOST_ESTIMATES,
    ttl: ESTIMATE_MS,
  });

  async read(ctx: Context, requestIds: readonly number[]): Promise<Map<number, EndRange>> {
    const missing = requestIds.filter((id) => !this.ends.has(id));
    const found = missing.length > 0 ? readWaiting(ctx, missing, () => this.readPlan(ctx)) : undefined;
    for (const id of missing) {
      const end = Promise.resolve(found).then((waiting) => waiting?.get(id)?.end);
      end.catch(() => this.ends.delete(id)); // the error is thrown below
      this.ends.set(id, end);
    }
    const ends = await Promise.all(requestIds.map(async (id) => [id, await this.ends.get(id)] as const));
    return new Map(ends.flatMap(([id, end]) => (end ? [[id, end]] : [])));
  }

  /** Discards all estimates, for example because an operator has suspended a drive. */
  clear(): void {
    this.plan = undefined;
    this.ends.clear();
  }

  private readPlan(ctx: Context): Promise<Plan> {
    const now = performance.now();
    if (!this.plan || now - this.plan.at >= ESTIMATE_MS) {
      const plan = ctx.events.shared.read('plan', () => readPlan(ctx));
      this.plan = { at: now, plan };
      plan.catch(() => {
        this.plan = undefined;
      });
    }
    return this.plan.plan;
  }
}

const estimates = new WeakMap<Context['events'], Estimates>();

/** Returns the estimated ends of requests, up to ten seconds old. Omits requests whose end is unknown. */
export async function readEnds(ctx: Context, requestIds: readonly number[]): Promise<Map<number, EndRange>> {
  let known = estimates.get(ctx.events);
  if (!known) {
    const created = new Estimates();
    ctx.events.onNotify('suspension', () => created.clear());
    estimates.set(ctx.events, created);
    known = created;
  }
  return await known.read(ctx, requestIds);
}

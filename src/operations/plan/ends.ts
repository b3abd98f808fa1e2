/**
 * Watching when a request will be done: the range first, and again when the plan has left it. All who watch share one look at the
 * plan, every so often and whenever something is taken out of service or put back.
 */
import type { Context } from '../../context.js';
import type { EndRange } from '../../planner/end-range.js';
import { allow } from '../policy.js';
import { getRequest } from '../requests/rows.js';
import { watchRequest } from '../requests/watch.js';
import { readWaiting, type Waiting } from './waiting.js';

export interface RequestEnd {
  requestId: number;
  at: string;
  /** Nothing when it cannot be told: something is out of service, or no engine works. */
  end: EndRange | undefined;
}

const LOOK_MS = 10_000;

/**
 * The range that is told holds until another one is. Ends by itself once the request has finished.
 * @throws NotFoundError
 */
export async function* watchEnd(ctx: Context, id: number, signal: AbortSignal): AsyncGenerator<RequestEnd> {
  allow(ctx, 'watchEnd');
  await getRequest(ctx, id);
  const over = new AbortController();
  const finished = untilFinished(ctx, id, signal).finally(() => over.abort());
  finished.catch(() => {}); // thrown below
  let told: RequestEnd | undefined;
  for await (const waiting of Looks.of(ctx).follow(id, AbortSignal.any([signal, over.signal]))) {
    const end = waiting?.end;
    if (told && !hasMoved(told.end, end)) continue;
    told = { requestId: id, at: ctx.now(), end };
    yield told;
  }
  await finished;
}

async function untilFinished(ctx: Context, id: number, signal: AbortSignal): Promise<void> {
  for await (const _ of watchRequest(ctx, { id }, signal));
}

/** Whoever was told `before` would be wrong by now. */
function hasMoved(before: EndRange | undefined, now: EndRange | undefined): boolean {
  if (!before || !now) return before !== now;
  return now.planned < before.earliest || now.planned > before.latest;
}

type Listener = (waiting: Waiting | undefined) => void;

/** The looks of one process at the plan, for all requests whose ends are watched. */
class Looks {
  private static readonly all = new WeakMap<Context['events'], Looks>();

  private readonly ctx: Context;
  private readonly listeners = new Map<number, Set<Listener>>();
  private unlisten: (() => void) | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  static of(ctx: Context): Looks {
    const known = Looks.all.get(ctx.events) ?? new Looks(ctx);
    Looks.all.set(ctx.events, known);
    return known;
  }

  /** What is seen of one request, the present first; a look that nobody has waited for is passed over. */
  async *follow(id: number, signal: AbortSignal): AsyncGenerator<Waiting | undefined> {
    let wake = () => {};
    let seen: { waiting: Waiting | undefined } | undefined;
    const end = this.listen(id, (waiting) => {
      seen = { waiting };
      wake();
    });
    signal.addEventListener('abort', () => wake(), { once: true });
    try {
      yield (await readWaiting(this.ctx, [id])).get(id);
      while (!signal.aborted) {
        if (!seen) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        } else {
          const { waiting } = seen;
          seen = undefined;
          yield waiting;
        }
      }
    } finally {
      end();
    }
  }

  private listen(id: number, listener: Listener): () => void {
    const mine = this.listeners.get(id) ?? new Set();
    this.listeners.set(id, mine.add(listener));
    this.unlisten ??= this.ctx.events.onRing('suspension', () => this.lookIn(0));
    if (!this.timer) this.lookIn(LOOK_MS);
    return () => {
      mine.delete(listener);
      if (mine.size === 0) this.listeners.delete(id);
      if (this.listeners.size === 0) this.stop();
    };
  }

  private lookIn(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.look(), ms).unref();
  }

  /** A database that is away is looked at again the next time. */
  private async look(): Promise<void> {
    const ids = [...this.listeners.keys()];
    const waiting = await readWaiting(this.ctx, ids).catch(() => undefined);
    if (waiting) for (const id of ids) for (const listener of this.listeners.get(id) ?? []) listener(waiting.get(id));
    if (this.listeners.size > 0) this.lookIn(LOOK_MS);
  }

  private stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.unlisten?.();
    this.unlisten = undefined;
  }
}

/** Watches the estimated end of a request. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { EndRange } from '../../planner/end-range.js';
import type { Context } from '../context.js';
import { readEnds } from '../plan/ends.js';
import { allow } from '../policy.js';
import { getRequest } from '../requests/rows.js';
import { watchRequest } from './request-watch.js';

export interface RequestEnd {
  requestId: number;
  at: string;
  end: EndRange | undefined;
}

const POLL_MS = 10_000;

/**
 * Yields the time range in which a request is expected to end. Yields a new range whenever the planned end is no longer
 * in the range that was yielded last. Stops when the request has finished.
 * @throws NotFoundError
 */
export async function* watchEnd(ctx: Context, id: number, signal: AbortSignal): AsyncGenerator<RequestEnd> {
  allow(ctx, 'watchEnd');
  await getRequest(ctx, id);
  const ended = new AbortController();
  const finished = untilFinished(ctx, id, signal).finally(() => ended.abort());
  finished.catch(() => {}); // the error is not lost, because the promise is awaited at the end of this function
  let last: RequestEnd | undefined;
  for await (const end of pollEnd(ctx, id, AbortSignal.any([signal, ended.signal]))) {
    if (last && !hasMoved(last.end, end)) continue;
    last = { requestId: id, at: ctx.now(), end };
    yield last;
  }
  await finished;
}

/** Yields the planned end immediately, every ten seconds, and after each suspension or resumption. */
async function* pollEnd(ctx: Context, id: number, signal: AbortSignal): AsyncGenerator<EndRange | undefined> {
  const read = async () => (await readEnds(ctx, [id])).get(id);
  let changed = new AbortController();
  const unlisten = ctx.events.onNotify('suspension', () => changed.abort());
  try {
    yield await read();
    while (!signal.aborted) {
      await sleep(POLL_MS, undefined, { signal: AbortSignal.any([signal, changed.signal]) }).catch(() => {});
      if (signal.aborted) return;
      changed = new AbortController();
      // ignore errors: if the database is unreachable, the next iteration reads the plan again
      const result = await read().then(
        (end) => ({ end }),
        () => undefined,
      );
      if (result) yield result.end;
    }
  } finally {
    unlisten();
  }
}

async function untilFinished(ctx: Context, id: number, signal: AbortSignal): Promise<void> {
  for await (const _ of watchRequest(ctx, { id }, signal));
}

function hasMoved(before: EndRange | undefined, now: EndRange | undefined): boolean {
  if (!before || !now) return before !== now;
  return now.planned < before.earliest || now.planned > before.latest;
}

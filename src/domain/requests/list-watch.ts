/** Watches the progress of several requests in one stream, for clients that show a list of requests. */
import { InvalidInputError } from '../../core/errors.js';
import { sql } from '../../db/sql.js';
import { type AnyEvent, isStageEvent, type ProgressEvent } from '../../events/event-table.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';
import { createProgress, type PresentProgress, type RequestProgress, readPresent } from './request-watch.js';
import { getRequest, isEnded, listRequests } from './rows.js';

interface WatchListInput {
  quota?: string | null | undefined;
  /** The requests to watch. Default: the newest live requests, and requests that are created later. */
  requestIds?: readonly number[] | null | undefined;
  /** Maximum number of requests to watch from the beginning, if `requestIds` is absent. */
  first?: number | null | undefined;
}

const DEFAULT_REQUESTS = 20;
export const MAX_WATCHED = 100;

interface Watched {
  present: Pick<PresentProgress, 'newest' | 'unnumbered'>;
  toProgress: ReturnType<typeof createProgress>;
}

/**
 * Yields the current progress of each request in a list, and then each change.
 * @throws InvalidInputError; NotFoundError if the caller may not see one of `requestIds`
 */
export async function* watchRequestList(
  ctx: Context,
  input: WatchListInput,
  signal: AbortSignal,
): AsyncGenerator<RequestProgress> {
  allow(ctx, 'watchRequestList');
  const newest = await ctx.events.newestId();
  const watched = new Map<number, Watched>();
  const others = new Set<number>();
  for (const id of await chooseRequests(ctx, input)) {
    const { start, ...present } = await readPresent(ctx, id);
    const toProgress = createProgress(ctx, start);
    watched.set(id, { present, toProgress });
    yield await toProgress(present.newest, { ...present, requestId: id, at: ctx.now() });
  }
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent => !isStageEvent(event) && !others.has(event.requestId),
    condition: sql`e.request_id IS NOT NULL`,
  };
  for await (const { id, batchId, ...progress } of ctx.events.follow(newest, filter, signal)) {
    const known = watched.get(progress.requestId) ?? (await findNew(ctx, input, progress.requestId));
    if (known === undefined) {
      others.add(progress.requestId);
      continue;
    }
    watched.set(progress.requestId, known);
    const isReported = id <= known.present.newest || known.present.unnumbered.includes(batchId);
    if (!isReported) yield await known.toProgress(id, progress);
    if (isEnded(progress.state) && !input.requestIds) watched.delete(progress.requestId);
  }
}

/** @throws InvalidInputError, NotFoundError */
async function chooseRequests(ctx: Context, { requestIds, quota, first }: WatchListInput): Promise<readonly number[]> {
  const [field, count] = requestIds ? ['requestIds', requestIds.length] : ['first', first ?? DEFAULT_REQUESTS];
  if (count < 0 || count > MAX_WATCHED) {
    const unit = requestIds ? 'contain at most' : 'be from 0 to';
    throw new InvalidInputError(field, `must ${unit} ${MAX_WATCHED}, not ${count}`);
  }
  if (requestIds) return [...new Set(requestIds)];
  const rows = await listRequests(ctx, { quota }).page({ limit: count, inverted: true });
  return rows.map(({ id }) => id);
}

/** Returns the state of a request that was created after the stream began. */
async function findNew(ctx: Context, { requestIds, quota }: WatchListInput, id: number): Promise<Watched | undefined> {
  if (requestIds) return undefined;
  const request = await getRequest(ctx, id).catch(() => undefined); // a request that the caller may not see
  if (!request || (quota && request.quota.user !== quota)) return undefined;
  const toProgress = createProgress(ctx, request.tapestoreRequestStart);
  return { present: { newest: 0n, unnumbered: [] }, toProgress };
}

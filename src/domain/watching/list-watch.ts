/** Watches the progress of several requests in one stream, for clients that show a list of requests. */
import { InvalidInputError, NotFoundError } from '../../core/errors.js';
import { raw, sql } from '../../db/sql.js';
import { type AnyEvent, isStageEvent, type ProgressEvent } from '../../events/event-table.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';
import { getRequest, isEnded, listRequests } from '../requests/rows.js';
import { createProgress, type PresentProgress, type RequestProgress, readPresent } from './request-watch.js';

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
  const isNew = await createAgeCheck(ctx);
  const newest = await ctx.events.newestId();
  const watched = new Map<number, Watched>();
  const others = new Set<number>();
  const chosen = new Set(await chooseRequests(ctx, input));
  const isInList = (id: number) => chosen.has(id) || (!input.requestIds && isNew(id));
  for (const id of chosen) {
    const { start, ...present } = await readPresent(ctx, id);
    const toProgress = createProgress(start);
    watched.set(id, { present, toProgress });
    yield toProgress(present.newest, { ...present, requestId: id, at: ctx.now() });
  }
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent => !isStageEvent(event) && !others.has(event.requestId),
    condition: sql`e.request_id IS NOT NULL`,
  };
  for await (const { id, batchId, ...progress } of ctx.events.follow(newest, filter, signal)) {
    const { requestId } = progress;
    const known = watched.get(requestId) ?? (isInList(requestId) ? await findNew(ctx, input, requestId) : undefined);
    if (known === undefined) {
      others.add(requestId);
      continue;
    }
    watched.set(requestId, known);
    const isReported = id <= known.present.newest || known.present.unnumbered.includes(batchId);
    if (!isReported) yield known.toProgress(id, progress);
    if (isEnded(progress.state) && !input.requestIds) watched.delete(requestId);
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

/**
 * Number of ids that `createAgeCheck` reads. A request that is not committed yet can have a lower id than committed
 * requests, but fewer than this number of requests are created while a transaction creates a request.
 */
const RECENT = 1000;

/** Returns a function that reports whether a request was created after the call of `createAgeCheck`. */
async function createAgeCheck(ctx: Context): Promise<(id: number) => boolean> {
  const rows = await ctx.db.rows<{ id: number }>(
    sql`SELECT id FROM request ORDER BY id DESC LIMIT ${raw(String(RECENT))}`,
  );
  const recent = new Set(rows.map(({ id }) => id));
  const oldest = rows.length < RECENT ? 0 : (rows.at(-1)?.id ?? 0);
  return (id) => id > oldest && !recent.has(id);
}

/** Returns the state of a request that is not watched yet, or undefined if the caller may not see the request. */
async function findNew(ctx: Context, { quota }: WatchListInput, id: number): Promise<Watched | undefined> {
  const request = await getRequest(ctx, id).catch((error: unknown) => {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  });
  if (!request || (quota && request.quota.user !== quota)) return undefined;
  const toProgress = createProgress(request.tapestoreRequestStart);
  return { present: { newest: 0n, unnumbered: [] }, toProgress };
}

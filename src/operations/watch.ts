/**
 * Watching: first the present state, then every change, in order. A watcher that comes back with the id of the last
 * event it saw gets all that happened since instead of the present state.
 */
import type { Context } from '../context.js';
import { isStageEvent, type ProgressEvent, type StageEvent } from '../events.js';
import type { RequestState } from '../generated/prisma/enums.js';
import type { Stage } from '../stages.js';
import { addSeconds, secondsBetween } from '../time.js';
import { checkPattern } from './checks.js';
import { getRequest } from './requests.js';

/** Sizes are bytes. */
export interface RequestProgress extends Omit<ProgressEvent, 'id'> {
  /** The event that this state follows; what to resume after. */
  eventId: bigint;
  /** When the last byte may be there, at the rate so far; null while nothing can be said. */
  eta: string | null;
}

export interface StageChange {
  eventId: bigint;
  at: string;
  path: string;
  /** Null where the present stage is told, not a change. */
  from: Stage | null;
  to: Stage;
}

const FINISHED: readonly RequestState[] = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

/**
 * Ends by itself once the request has finished.
 * @throws NotFoundError
 */
export async function* watchRequest(
  ctx: Context,
  input: { id: number; after?: bigint | null | undefined },
  signal: AbortSignal,
): AsyncGenerator<RequestProgress> {
  // read before the state, so that nothing falls between the two
  const newest = await ctx.events.newestId();
  const present = await readPresent(ctx, input.id, newest);
  if (typeof input.after !== 'bigint') yield present;
  const after = input.after ?? newest;
  if (FINISHED.includes(present.state) && (await lastProgress(ctx, input.id)) <= after) return;
  const { start } = await readStart(ctx, input.id);
  const filter = {
    accepts: (event: StageEvent | ProgressEvent): event is ProgressEvent =>
      !isStageEvent(event) && event.requestId === input.id,
    condition: 'e.request_id = $2',
    values: [input.id],
  };
  for await (const { id, ...progress } of ctx.events.follow(after, filter, signal)) {
    yield { ...progress, eventId: id, eta: estimateEnd(progress, start ?? present.at, progress.at) };
    if (FINISHED.includes(progress.state) && (await lastProgress(ctx, input.id)) <= id) return;
  }
}

async function readPresent(ctx: Context, id: number, eventId: bigint): Promise<RequestProgress> {
  const request = await getRequest(ctx, id);
  const now = ctx.now();
  const { state, filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk } = request;
  const progress = { requestId: id, state, filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk, at: now };
  return { ...progress, eventId, eta: estimateEnd(progress, request.tapestoreRequestStart, now) };
}

async function readStart(ctx: Context, id: number): Promise<{ start: string | null }> {
  return { start: (await getRequest(ctx, id)).tapestoreRequestStart };
}

async function lastProgress(ctx: Context, requestId: number): Promise<bigint> {
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    'SELECT coalesce(max(id), 0) AS id FROM event WHERE request_id = $1',
    [requestId],
  );
  return rows[0]?.id ?? 0n;
}

/** The end at the rate of the bytes so far since the first recall began. Pure. */
export function estimateEnd(
  progress: { state: RequestState; bytesTotal: bigint; bytesOnDisk: bigint },
  start: string | null,
  now: string,
): string | null {
  if (start === null || progress.bytesOnDisk === 0n || FINISHED.includes(progress.state)) return null;
  const secondsPerByte = secondsBetween(start, now) / Number(progress.bytesOnDisk);
  return addSeconds(now, secondsPerByte * Number(progress.bytesTotal - progress.bytesOnDisk));
}

const PAGE = 1000;

/**
 * The stages of a request's files, or of the files whose path holds `match`, then their changes, without end. With
 * neither, only the changes, of all files.
 */
export async function* watchStages(
  ctx: Context,
  input: {
    requestId?: number | null | undefined;
    match?: string | null | undefined;
    after?: bigint | null | undefined;
  },
  signal: AbortSignal,
): AsyncGenerator<StageChange> {
  const requestId = input.requestId ?? undefined;
  const match = input.match ? checkPattern('match', input.match) : undefined;
  if (requestId !== undefined) await getRequest(ctx, requestId);
  const newest = await ctx.events.newestId();
  if (typeof input.after !== 'bigint' && (requestId !== undefined || match !== undefined)) {
    yield* readStages(ctx, { requestId, match, eventId: newest });
  }
  const filter = {
    accepts: (event: StageEvent | ProgressEvent): event is StageEvent =>
      isStageEvent(event) &&
      (requestId === undefined || event.requestIds.includes(requestId)) &&
      (match === undefined || event.path.includes(match)),
    condition: `e.file_id IS NOT NULL AND ($2::int IS NULL OR $2 = ANY(e.request_ids))
      AND ($3::text IS NULL OR strpos(f.path, $3) > 0)`,
    values: [requestId ?? null, match ?? null],
  };
  for await (const { id, at, path, from, to } of ctx.events.follow(input.after ?? newest, filter, signal)) {
    yield { eventId: id, at, path, from, to };
  }
}

async function* readStages(
  ctx: Context,
  choice: { requestId: number | undefined; match: string | undefined; eventId: bigint },
): AsyncGenerator<StageChange> {
  const at = ctx.now();
  for (let after = 0n; ; ) {
    const { rows } = await ctx.db.pool.query<{ id: bigint; path: string; stage: Stage }>(
      `SELECT f.id, f.path, f.stage FROM tape_file f
       WHERE f.id > $1 AND ($2::int IS NULL OR EXISTS (SELECT FROM hold h WHERE h.request_id = $2 AND h.file_id = f.id))
         AND ($3::text IS NULL OR strpos(f.path, $3) > 0)
       ORDER BY f.id LIMIT ${PAGE}`,
      [after, choice.requestId ?? null, choice.match ?? null],
    );
    for (const { id, path, stage } of rows) {
      after = id;
      yield { eventId: choice.eventId, at, path, from: null, to: stage };
    }
    if (rows.length < PAGE) return;
  }
}

/**
 * Watches requests and file stages: yields the current state, and then every change in order. A watcher that resumes
 * after an event gets only the later events.
 *
 * A watcher gets each change exactly once, because a single statement reads the current state, the newest event id, and
 * the batches of events without ids.
 */

import { InvalidInputError, noRequest } from '../../core/errors.js';
import type { Stage } from '../../core/stages.js';
import { secondsBetween } from '../../core/time.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { prepared } from '../../db/prepared.js';
import { allOf, empty, type Sql, sql } from '../../db/sql.js';
import type { Present } from '../../events/event-table.js';
import { type AnyEvent, isStageEvent, type ProgressEvent, type StageEvent } from '../../events/event-table.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { mayPath, mayPathOfRequest, readPathFilter } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPattern } from '../input.js';
import { holdsText } from '../match.js';
import { allow, isVisibleQuota, rightsKey } from '../policy.js';
import { getRequest } from '../requests/rows.js';

export interface RequestProgress extends Omit<ProgressEvent, 'id' | 'batchId'> {
  /**
   * Id of the newest event whose change is included in this state. A client that reconnects can resume after this
   * event.
   */
  eventId: bigint;
  /** Mean rate since the first recall began, in bytes per second; null if no recall has begun. */
  bytesPerSecond: number | null;
  /** Seconds since the first recall began; null if no recall has begun. */
  elapsedSeconds: number | null;
}

export interface StageChange {
  eventId: bigint;
  at: string;
  path: string;
  /** The file's stage before the change; null if this report describes the file's current stage and not a change. */
  from: Stage | null;
  to: Stage;
}

export const FINISHED: readonly RequestState[] = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

/**
 * Watches a request until it has finished.
 * @throws NotFoundError; InvalidInputError if `after` is not the id of an event; EventsGoneError if the event `after`
 *   was deleted
 */
export async function* watchRequest(
  ctx: Context,
  input: { id: number; after?: bigint | null | undefined },
  signal: AbortSignal,
): AsyncGenerator<RequestProgress> {
  allow(ctx, 'watchRequest');
  const { newest, unnumbered, last, start: knownStart, ...present } = await readPresent(ctx, input.id);
  const after = await checkAfter(ctx, input.after, newest);
  const reported = new Set(after === undefined ? unnumbered : []);
  const toProgress = createProgress(knownStart);
  if (after === undefined) yield toProgress(newest, { ...present, requestId: input.id, at: ctx.now() });
  if (FINISHED.includes(present.state) && (after === undefined || last <= after)) return;
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent =>
      !isStageEvent(event) && event.requestId === input.id && !reported.has(event.batchId),
    condition: sql`e.request_id = ${input.id}`,
    requestId: input.id,
  };
  for await (const { id, batchId, ...progress } of ctx.events.follow(after ?? newest, filter, signal)) {
    yield toProgress(id, progress);
    if (FINISHED.includes(progress.state) && (await readPresent(ctx, input.id)).last <= id) return;
  }
}

/**
 * Returns a function that adds the rate and the elapsed time to the counts of a request.
 * @param start the time at which the first recall began
 */
export function createProgress(start: string | null) {
  let began = start;
  return (eventId: bigint, progress: Omit<ProgressEvent, 'id' | 'batchId'>): RequestProgress => {
    if (progress.state === 'QUEUED') began = null;
    if (progress.state === 'RESTORING') began ??= progress.at;
    return {
      ...progress,
      eventId,
      bytesPerSecond: rateOf(progress, began),
      elapsedSeconds: began === null ? null : Math.max(secondsBetween(began, progress.at), 0),
    };
  };
}

function rateOf({ bytesOnDisk, at }: { bytesOnDisk: bigint; at: string }, start: string | null): number | null {
  const seconds = start === null ? 0 : secondsBetween(start, at);
  return seconds > 0 ? Number(bytesOnDisk) / seconds : null;
}

export interface PresentProgress extends Present, Omit<ProgressEvent, 'id' | 'batchId' | 'at' | 'requestId'> {
  start: string | null;
  /** Id of the request's last event; `NO_ID_YET` if the event does not have an id yet. */
  last: bigint;
}

const NO_ID_YET = 2n ** 63n - 1n;

const isOfRequest = sql`EXISTS (
  SELECT FROM event e WHERE e.request_id = r.id AND e.id BETWEEN b.first_id AND b.last_id AND e.batch_id = b.id)`;

const MAX_READS = 5;

/**
 * Reads a request's state. Repeats the read a few times if some of the request's events do not have ids yet.
 * @throws NotFoundError, also if the caller is not allowed to see the request
 */
export function readPresent(ctx: Context, id: number): Promise<PresentProgress> {
  const rights = rightsKey(ctx.caller);
  const key = rights === undefined ? undefined : `present ${id} ${rights}`;
  return ctx.events.shared.read(key, () => queryPresent(ctx, id));
}

async function queryPresent(ctx: Context, id: number): Promise<PresentProgress> {
  for (let attempt = 1; ; attempt++) {
    await ctx.events.numbers.number();
    const [row] = await ctx.db.rows<PresentProgress>(
      prepared(
        sql`SELECT r.state, r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed",
              r.bytes_total AS "bytesTotal", r.bytes_on_disk AS "bytesOnDisk", r.tapestore_request_start AS start, ${ctx.events.numbers.present(isOfRequest)},
              coalesce((
                SELECT coalesce(b.first_number + e.id - b.first_id, ${NO_ID_YET}) FROM event e JOIN event_batch b ON b.id = e.batch_id
                WHERE e.request_id = r.id ORDER BY e.id DESC LIMIT 1), 0) AS last
            FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisibleQuota(ctx)}`,
      ),
    );
    if (!row) throw noRequest(id);
    if (row.unnumbered.length === 0 || attempt === MAX_READS) return row;
  }
}

/** Checks the event id after which a watcher resumes. Rejects ids that are greater than the id of the newest event. */
async function checkAfter(ctx: Context, after: bigint | null | undefined, newest: bigint): Promise<bigint | undefined> {
  if (after === null || after === undefined) return undefined;
  if (after >= 0n && after <= newest) {
    await ctx.events.checkKept(after);
    return after;
  }
  throw new InvalidInputError('after', `must be an event id, from 0 to ${newest}, not ${after}`);
}

interface WatchStagesInput {
  requestId?: number | null | undefined;
  match?: string | null | undefined;
  after?: bigint | null | undefined;
}

/**
 * Yields the stages of a request's files, or of files whose path contains `match`, and then each change of stage.
 * Without a request or `match`, yields the changes for all files, but not their current stages.
 * @throws NotFoundError, InvalidInputError, EventsGoneError
 */
export async function* watchStages(
  ctx: Context,
  input: WatchStagesInput,
  signal: AbortSignal,
): AsyncGenerator<StageChange> {
  allow(ctx, 'watchStages');
  const requestId = input.requestId ?? undefined;
  const match = input.match ? checkPattern('match', input.match) : undefined;
  if (requestId !== undefined) await getRequest(ctx, requestId);
  const newest = await ctx.events.newestId();
  const after = await checkAfter(ctx, input.after, newest);
  // a request's owner is allowed to see all files of the request
  const isFiltered = requestId === undefined || ctx.caller.reads === 'all';
  const isListed = isFiltered ? await readPathFilter(ctx, 'LIST') : undefined;
  const reported = new ReportedStages();
  if (after === undefined && (requestId !== undefined || match !== undefined)) {
    yield* reportStages(ctx, { requestId, match, eventId: newest }, { reported, signal });
  }
  const filter = {
    accepts: (event: AnyEvent): event is StageEvent =>
      isStageEvent(event) &&
      (requestId === undefined || event.requestIds.includes(requestId)) &&
      (match === undefined || event.path.includes(match)) &&
      (isListed === undefined || isListed(event.path)) &&
      !reported.has(event),
    condition: allOf([
      sql`e.file_id IS NOT NULL`,
      ...(requestId === undefined ? [] : [sql`${requestId} = ANY(e.request_ids)`]),
      ...(match === undefined ? [] : [sql`strpos(f.path, ${match}) > 0`]),
    ]),
  };
  for await (const { id, at, path, from, to } of ctx.events.follow(after ?? newest, filter, signal)) {
    yield { eventId: id, at, path, from, to };
  }
}

class ReportedStages {
  private readonly pages: { lastFileId: bigint; newest: bigint; unnumbered: Set<string> }[] = [];
  private readonly unnumbered = new Set<string>();

  add(lastFileId: bigint, { newest, unnumbered }: Present): void {
    this.pages.push({ lastFileId, newest, unnumbered: new Set(unnumbered) });
    for (const batch of unnumbered) this.unnumbered.add(batch);
  }

  has(event: StageEvent): boolean {
    if (event.id > (this.pages.at(-1)?.newest ?? 0n) && !this.unnumbered.has(event.batchId)) return false;
    const page = this.pages.find(({ lastFileId }) => event.fileId <= lastFileId);
    return page !== undefined && (event.id <= page.newest || page.unnumbered.has(event.batchId));
  }
}

const PAGE = 1000;

/**
 * Yields the current stages of files, and records in `reported` which stages were yielded. Stages are read in pages, so
 * that a slow client does not occupy a database connection.
 */
async function* reportStages(
  ctx: Context,
  choice: { requestId: number | undefined; match: string | undefined; eventId: bigint },
  { reported, signal }: { reported: ReportedStages; signal: AbortSignal },
): AsyncGenerator<StageChange> {
  const at = ctx.now();
  for (let after = 0n; ; ) {
    const page = presentStages(ctx, choice, after);
    const rows = await askAtLength<Present & { id: bigint; path: string; stage: Stage }>(ctx, page, signal);
    for (const { id, path, stage } of rows) {
      after = id;
      yield { eventId: choice.eventId, at, path, from: null, to: stage };
    }
    if (rows[0]) reported.add(after, rows[0]);
    if (rows.length < PAGE) return;
  }
}

/**
 * Omits the conditions on the request and the path if the caller does not filter by them, so that PostgreSQL chooses a
 * suitable index.
 */
function presentStages(
  ctx: Context,
  choice: { requestId: number | undefined; match: string | undefined },
  after: bigint,
): Sql {
  const { requestId, match } = choice;
  const isMatch = match === undefined ? empty : sql`AND ${holdsText(match)}`;
  const columns = sql`f.id, f.path, f.stage, ${ctx.events.present}`;
  if (requestId === undefined) {
    const isListed = mayPath(ctx, 'LIST');
    return sql`SELECT ${columns} FROM tape_file f WHERE f.id > ${after} AND ${isOffered} AND ${isListed} ${isMatch} ORDER BY f.id LIMIT ${PAGE}`;
  }
  return sql`SELECT ${columns} FROM request_file h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.request_id = ${requestId} AND h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)} ${isMatch}
    ORDER BY h.file_id LIMIT ${PAGE}`;
}

/**
 * Watching: first the present state, then every change, in order. A watcher that comes back with the id of the last
 * event it saw gets all that happened since instead of the present state.
 *
 * The present state is read in one statement with the id of the newest event, and with the batches of events that the
 * statement saw and that have no ids yet. So the changes go on from exactly there: none is missing, and none that the state
 * holds already is told after it.
 */

import type { Context } from '../../context.js';
import { prepared } from '../../database/prepared.js';
import { askAtLength } from '../../database/snapshot.js';
import { allOf, empty, type Sql, sql } from '../../database/sql.js';
import { InvalidInputError } from '../../errors.js';
import type { Present } from '../../event-table.js';
import { type AnyEvent, isStageEvent, type ProgressEvent, type StageEvent } from '../../event-table.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import type { Stage } from '../../stages.js';
import { addSeconds, secondsBetween } from '../../time.js';
import { mayPath, mayPathOfRequest, readPathFilter } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import { checkPattern } from '../input.js';
import { holdsText } from '../match.js';
import { allow, isVisibleQuota, rightsKey } from '../policy.js';
import { getRequest, notFound } from './rows.js';

/** Sizes are bytes. */
export interface RequestProgress extends Omit<ProgressEvent, 'id' | 'batchId'> {
  /** The event that this state follows; what to resume after. */
  eventId: bigint;
  /** When the last byte may be there, at the rate so far; null while nothing can be said, as for what is out of service. */
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
 * @throws NotFoundError; InvalidInputError when there cannot be an event `after`, EventsGoneError when it is kept no longer
 */
export async function* watchRequest(
  ctx: Context,
  input: { id: number; after?: bigint | null | undefined },
  signal: AbortSignal,
): AsyncGenerator<RequestProgress> {
  allow(ctx, 'watchRequest');
  const { newest, unnumbered, last, start: knownStart, ...present } = await readPresent(ctx, input.id);
  const after = await checkAfter(ctx, input.after, newest);
  let start = knownStart;
  const told = new Set(after === undefined ? unnumbered : []);
  const isHeldUp = createHeldUp(ctx, input.id);
  const tell = async (eventId: bigint, progress: Omit<ProgressEvent, 'id' | 'batchId'>): Promise<RequestProgress> => {
    if (progress.state === 'QUEUED') start = null;
    if (progress.state === 'RESTORING') start ??= progress.at;
    const eta = estimateEnd(progress, start, progress.at);
    return { ...progress, eventId, eta: eta !== null && (await isHeldUp()) ? null : eta };
  };
  if (after === undefined) yield await tell(newest, { ...present, requestId: input.id, at: ctx.now() });
  if (FINISHED.includes(present.state) && (after === undefined || last <= after)) return;
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent =>
      !isStageEvent(event) && event.requestId === input.id && !told.has(event.batchId),
    condition: sql`e.request_id = ${input.id}`,
    requestId: input.id,
  };
  for await (const { id, batchId, ...progress } of ctx.events.follow(after ?? newest, filter, signal)) {
    yield await tell(id, progress);
    if (FINISHED.includes(progress.state) && (await readPresent(ctx, input.id)).last <= id) return;
  }
}

interface PresentProgress extends Present, Omit<ProgressEvent, 'id' | 'batchId' | 'at' | 'requestId'> {
  start: string | null;
  /** Id of the last event of this request: greater than any while that has none. */
  last: bigint;
}

const NO_ID_YET = 2n ** 63n - 1n;

/** Of batches `b` and a request `r`. */
const isOfRequest = sql`EXISTS (
  SELECT FROM event e WHERE e.request_id = r.id AND e.id BETWEEN b.first_id AND b.last_id AND e.batch_id = b.id)`;

/** So often, while others commit events of this very request. */
const MOST_LOOKS = 5;

/**
 * A request as it is, preferably as of a moment at which all of its events have numbers.
 * @throws NotFoundError, also where the caller may not see it
 */
function readPresent(ctx: Context, id: number): Promise<PresentProgress> {
  const rights = rightsKey(ctx.caller);
  const key = rights === undefined ? undefined : `present ${id} ${rights}`;
  return ctx.events.shared.read(key, () => askPresent(ctx, id));
}

async function askPresent(ctx: Context, id: number): Promise<PresentProgress> {
  for (let look = 1; ; look++) {
    await ctx.events.numbers.number();
    const { rows } = await ctx.db.pool.query<PresentProgress>(
      prepared(
        sql`SELECT r.state, r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed",
              r.bytes_total AS "bytesTotal", r.bytes_on_disk AS "bytesOnDisk", r.tapestore_request_start AS start, ${ctx.events.numbers.present(isOfRequest)},
              coalesce((
                SELECT coalesce(b.first_number + e.id - b.first_id, ${NO_ID_YET}) FROM event e JOIN event_batch b ON b.id = e.batch_id
                WHERE e.request_id = r.id ORDER BY e.id DESC LIMIT 1), 0) AS last
            FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisibleQuota(ctx)}`,
      ),
    );
    const [row] = rows;
    if (!row) throw notFound(id);
    if (row.unnumbered.length === 0 || look === MOST_LOOKS) return row;
  }
}

/** An id beyond the newest is none that was ever given: to wait for it would be to wait in silence. */
async function checkAfter(ctx: Context, after: bigint | null | undefined, newest: bigint): Promise<bigint | undefined> {
  if (after === null || after === undefined) return undefined;
  if (after >= 0n && after <= newest) {
    await ctx.events.checkKept(after);
    return after;
  }
  throw new InvalidInputError('after', `must be the id of an event, from 0 to ${newest}, not ${after}`);
}

/** How long an answer holds: a request of many files has many events in a second. */
const HELD_UP_MS = 2000;

/**
 * Returns a function that says whether a request waits for something that is suspended: a volume, its user, a library. Its end is unknown then.
 */
function createHeldUp(ctx: Context, id: number): () => Promise<boolean> {
  let known = { until: 0, isHeldUp: false };
  return async () => {
    if (performance.now() < known.until) return known.isHeldUp;
    const isHeldUp = await ctx.events.shared.read(`held up ${id}`, () => askHeldUp(ctx, id));
    known = { until: performance.now() + HELD_UP_MS, isHeldUp };
    return isHeldUp;
  };
}

async function askHeldUp(ctx: Context, id: number): Promise<boolean> {
  const { rows } = await ctx.db.pool.query<{ isHeldUp: boolean }>(
    sql`SELECT EXISTS (SELECT FROM request r JOIN suspended_quota s ON s.quota_id = r.quota_id WHERE r.id = ${id})
          OR EXISTS (
            SELECT FROM suspended_volume s JOIN recall c ON c.volume_id = s.volume_id
              JOIN hold h ON h.file_id = c.file_id
            WHERE c.state = 'WAITING' AND h.request_id = ${id} AND h.state = 'WAITING')
          OR EXISTS (
            SELECT FROM suspended_library s JOIN volume v ON v.library_id = s.library_id JOIN recall c ON c.volume_id = v.id
              JOIN hold h ON h.file_id = c.file_id
            WHERE h.request_id = ${id} AND h.state = 'WAITING') AS "isHeldUp"`,
  );
  return rows[0]?.isHeldUp ?? false;
}

/** Longer estimates say nothing, and later ends have no date. */
const MAX_ETA_SECONDS = 10 * 365 * 24 * 3600;

/** The end at the rate of the bytes so far since the first recall began. Pure. */
function estimateEnd(
  progress: { state: RequestState; bytesTotal: bigint; bytesOnDisk: bigint },
  start: string | null,
  now: string,
): string | null {
  if (start === null || progress.bytesOnDisk === 0n || FINISHED.includes(progress.state)) return null;
  const secondsPerByte = Math.max(secondsBetween(start, now), 0) / Number(progress.bytesOnDisk);
  const seconds = secondsPerByte * Number(progress.bytesTotal - progress.bytesOnDisk);
  return seconds <= MAX_ETA_SECONDS ? addSeconds(now, seconds) : null;
}

export interface WatchStagesInput {
  requestId?: number | null | undefined;
  match?: string | null | undefined;
  after?: bigint | null | undefined;
}

/**
 * The stages of a request's files, or of the files whose path holds `match`, then their changes, without end. With
 * neither, only the changes, of all files.
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
  // what is in a request is to be seen by those whose it is
  const isFiltered = requestId === undefined || ctx.caller.reads === 'all';
  const isListed = isFiltered ? await readPathFilter(ctx, 'LIST') : undefined;
  const told = new ToldStages();
  if (after === undefined && (requestId !== undefined || match !== undefined)) {
    yield* tellStages(ctx, { requestId, match, eventId: newest }, { told, signal });
  }
  const filter = {
    accepts: (event: AnyEvent): event is StageEvent =>
      isStageEvent(event) &&
      (requestId === undefined || event.requestIds.includes(requestId)) &&
      (match === undefined || event.path.includes(match)) &&
      (isListed === undefined || isListed(event.path)) &&
      !told.has(event),
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

/** What the present stages, which were told, hold already: events of the files of each page, up to when it was read. */
class ToldStages {
  private readonly pages: { lastFileId: bigint; newest: bigint; unnumbered: Set<string> }[] = [];
  /** Of all pages. */
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

/** By the page, so that no reader, however slow, keeps a connection; what is told is noted in `told`. */
async function* tellStages(
  ctx: Context,
  choice: { requestId: number | undefined; match: string | undefined; eventId: bigint },
  { told, signal }: { told: ToldStages; signal: AbortSignal },
): AsyncGenerator<StageChange> {
  const at = ctx.now();
  for (let after = 0n; ; ) {
    const page = presentStages(ctx, choice, after);
    const rows = await askAtLength<Present & { id: bigint; path: string; stage: Stage }>(ctx, page, signal);
    for (const { id, path, stage } of rows) {
      after = id;
      yield { eventId: choice.eventId, at, path, from: null, to: stage };
    }
    if (rows[0]) told.add(after, rows[0]);
    if (rows.length < PAGE) return;
  }
}

/** The next page of the stages; what is not asked for is left out, so that the planner sees which index it may use. */
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
  return sql`SELECT ${columns} FROM any_hold h JOIN tape_file f ON f.id = h.file_id
    WHERE h.file_id > ${after} AND h.request_id = ${requestId} AND h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)} ${isMatch}
    ORDER BY h.file_id LIMIT ${PAGE}`;
}

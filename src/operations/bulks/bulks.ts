/**
 * A bulk is what a client of the WLCG Tape REST API stages under one id. Its files are in requests, one for each lifetime: whatever is asked
 * of the bulk is asked of these, by the operations that others go through.
 */
import { createHash, randomUUID } from 'node:crypto';
import { ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { askAtLength, type ListPages, readList } from '../../database/snapshot.js';
import { type Sql, sql } from '../../database/sql.js';
import { InvalidInputError, logFailure, NotFoundError, quote, UnknownUserError, UserError } from '../../errors.js';
import type { BulkProblem } from '../../generated/prisma/enums.js';
import { addSeconds } from '../../time.js';
import { mayPath } from '../access/paths.js';
import { noteRefusal } from '../audit/audited.js';
import { hasOther, isLive, isOffered } from '../conditions.js';
import { checkText, findPathProblem } from '../input.js';
import { allow, allowChange, isVisibleQuota } from '../policy.js';
import { type BulkFileInput, createRequestOfBulk, isFolder, wantedFiles } from '../requests/create.js';
import { cancelRequest, releaseFiles } from '../requests/ends.js';

/** Each lifetime is a request of its own, with a transaction of its own. */
const MOST_LIFETIMES = 100;

export interface CreateBulkInput {
  /** User whose quota is charged. */
  quota: string;
  /** At least one; of a path that is there twice the first one counts. */
  files: readonly { path: string; given: string; lifetimeSeconds: number | undefined }[];
}

/**
 * What of it cannot be had is told by its files (`readBulk`). A process that is killed within this leaves requests of which nobody has the id; they end
 * by their retention.
 * @returns the id of the bulk
 * @throws InvalidInputError, ForbiddenError, UnknownUserError, LimitReachedError; nothing is kept then
 */
export async function createBulk(ctx: Context, { quota, files }: CreateBulkInput): Promise<string> {
  allow(ctx, 'createRequest', checkText('quota', quota));
  const { parts, none } = partsOf(files);
  if (parts.size > MOST_LIFETIMES) {
    const problem = `must have at most ${MOST_LIFETIMES} values in a request, not ${parts.size}`;
    throw new InvalidInputError('diskLifetime', problem);
  }
  const id = randomUUID();
  const { rowCount } = await ctx.db.pool.query(
    sql`INSERT INTO bulk (id, quota_id, made_at) SELECT ${id}::uuid, q.id, ${ctx.now()}::timestamp FROM quota q
        WHERE q."user" = ${quota} AND q.removed_at IS NULL`,
  );
  if (rowCount === 0) throw new UnknownUserError(quota);
  const made: number[] = [];
  try {
    if (none.length > 0) await noteUnknown(ctx, id, none);
    for (const [lifetime, part] of parts) {
      const request = await createRequestOfBulk(
        ctx,
        {
          quota,
          files: part.map(({ path }) => path),
          label: `stage ${id}`,
          retention: lifetime === undefined ? undefined : addSeconds(ctx.now(), lifetime),
        },
        { id, files: part },
      );
      if (request !== undefined) made.push(request);
    }
  } catch (error) {
    await takeBack(ctx, id, made).catch((failure) => logFailure(ctx.log, failure, 'a bulk is not taken back', { id }));
    throw error;
  }
  return id;
}

interface Parts {
  /** By their lifetimes, in the order in which these are first named. */
  parts: Map<number | undefined, BulkFileInput[]>;
  /** What is the path of no file. */
  none: BulkFileInput[];
}

function partsOf(files: CreateBulkInput['files']): Parts {
  const parts: Parts['parts'] = new Map();
  const none: BulkFileInput[] = [];
  const known = new Set<string>();
  for (const [index, { path: wanted, given, lifetimeSeconds }] of files.entries()) {
    const path = bulkKeyOf(wanted);
    if (known.has(path)) continue;
    known.add(path);
    const part = path === wanted ? (parts.get(lifetimeSeconds) ?? []) : none;
    if (part !== none) parts.set(lifetimeSeconds, part);
    part.push({ path, given, ordinal: index + 1 });
  }
  return { parts, none };
}

/** As each file stands for itself, one that there cannot be is its own problem, and not that of the others. */
async function noteUnknown(ctx: Context, id: string, files: readonly BulkFileInput[]): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO bulk_file (bulk_id, path, given, ordinal, problem)
        SELECT ${id}::uuid, l.path, l.given, l.n, 'UNKNOWN' FROM (${wantedFiles(files)}) l`,
  );
}

async function takeBack(ctx: Context, id: string, requests: readonly number[]): Promise<void> {
  for (const request of requests) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM bulk WHERE id = ${id}::uuid`);
}

/**
 * The quotas with which the caller may ask, for one who has not said which: its own where it has one, else all of them.
 * @returns undefined where it may ask with any
 */
export async function readQuotasOfCaller(ctx: Context): Promise<string[] | undefined> {
  allow(ctx, 'createRequest');
  const { acts, name } = ctx.caller;
  if (acts === 'all') return undefined;
  const { rows } = await ctx.db.pool.query<{ user: string }>(
    sql`SELECT q."user" FROM quota q WHERE q."user" = ANY(${[...acts]}::text[]) AND q.removed_at IS NULL ORDER BY q."user"`,
  );
  const users = rows.map(({ user }) => user);
  return users.includes(name) ? [name] : users;
}

/** Its path; of what is no path at all, a text that none begins with, and that the database takes. */
export function bulkKeyOf(path: string): string {
  if (findPathProblem(path) === undefined) return path;
  return `no path: ${createHash('sha256').update(path).digest('hex')}`;
}

/** As the WLCG Tape REST API has them. */
export type BulkFileState = 'SUBMITTED' | 'STARTED' | 'COMPLETED' | 'FAILED' | 'CANCELLED';

export interface BulkFileRow {
  /** As the client has written it. */
  given: string;
  state: BulkFileState;
  /** When its recall began, while it runs. */
  startedAt: string | null;
  /** Why it is in no request. */
  problem: BulkProblem | null;
  /** Why its recall has failed. */
  error: string | null;
  /** The request ended before the file came. */
  isLate: boolean;
}

export interface BulkRow {
  id: string;
  /** User. */
  quota: string;
  madeAt: string;
  /** When the first of its recalls began; null where none has. */
  startedAt: string | null;
  /** When the last of its files was there, or was given up; null while any is still to come. */
  endedAt: string | null;
}

/** Anything else is the id of none. */
export const isBulkId = (text: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);

export const noBulk = (id: string): NotFoundError => new NotFoundError(`there is no stage request ${quote(id)}`);

/**
 * A bulk, and its files in order, at the pace of the reader.
 * @throws NotFoundError, also where the caller may not see it
 */
export async function readBulk<T>(
  ctx: Context,
  id: string,
  consume: (bulk: BulkRow, files: ListPages<BulkFileRow>) => Promise<T>,
): Promise<T> {
  const bulk = await findBulk(ctx, id);
  const list = sql`SELECT s.given, s.state, s."startedAt", s.problem, s.error, s."isLate" FROM (${filesOf(ctx, id)}) s ORDER BY s.ordinal`;
  return await readList<BulkFileRow, T>(ctx, list, (pages) => consume(bulk, pages));
}

/** @throws NotFoundError, also where the caller may not see it */
async function findBulk(ctx: Context, id: string): Promise<BulkRow> {
  allow(ctx, 'getRequest');
  const [bulk] = isBulkId(id)
    ? await askAtLength<BulkRow>(
        ctx,
        sql`SELECT b.id, q."user" AS quota, b.made_at AS "madeAt", t."startedAt",
              CASE WHEN NOT t."isOpen" THEN greatest(b.made_at, b.cancelled_at, t."endedAt") END AS "endedAt"
            FROM bulk b JOIN quota q ON q.id = b.quota_id CROSS JOIN LATERAL (
              SELECT min(s."requestStart") AS "startedAt", max(s."requestEnd") AS "endedAt", coalesce(bool_or(s.state IN ('SUBMITTED', 'STARTED')), false) AS "isOpen"
              FROM (${filesOf(ctx, id)}) s
            ) t WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)}`,
        ctx.reader,
      )
    : [];
  if (!bulk) throw noBulk(id);
  return bulk;
}

/** A row for each file: what is in a compact request is read with all of that request, once. */
function filesOf(ctx: Context, id: string): Sql {
  const isOver = sql`(NOT ${isLive} OR r.retention <= ${ctx.now()}::timestamp)`;
  return sql`
    WITH compact AS MATERIALIZED (
      SELECT p.request_id, h.file_id, h.state, h.error FROM (
        SELECT DISTINCT r.id AS request_id FROM bulk_file b JOIN request r ON r.id = b.request_id
        WHERE b.bulk_id = ${id}::uuid AND r.form <> 'ROWS'
      ) p CROSS JOIN LATERAL (SELECT h.file_id, h.state, h.error FROM any_hold h WHERE h.request_id = p.request_id OFFSET 0) h
    )
    SELECT b.ordinal, b.given, b.problem, CASE
        WHEN b.problem IS NOT NULL THEN 'FAILED'
        WHEN b.was_on_disk OR h.state = 'ON_DISK' THEN 'COMPLETED'
        WHEN h.state = 'FAILED' THEN 'FAILED'
        WHEN h.state = 'RELEASED' OR r.state = 'CANCELLED' THEN 'CANCELLED'
        WHEN ${isOver} THEN 'FAILED'
        WHEN c.state = 'RUNNING' THEN 'STARTED'
        ELSE 'SUBMITTED' END AS state,
      CASE WHEN c.state = 'RUNNING' THEN c.started_at END AS "startedAt",
      CASE WHEN h.state = 'FAILED' THEN coalesce(h.error, 'its recall has failed') END AS error,
      coalesce(NOT b.was_on_disk AND h.state = 'WAITING' AND r.state <> 'CANCELLED' AND ${isOver}, false) AS "isLate",
      coalesce(r.tapestore_request_start, r.first_files_on_disk) AS "requestStart",
      greatest(r.tapestore_request_end, r.last_files_on_disk, CASE WHEN ${isOver} THEN r.retention END) AS "requestEnd"
    FROM bulk_file b LEFT JOIN request r ON r.id = b.request_id
      LEFT JOIN LATERAL (
        SELECT h.state, h.error FROM (SELECT * FROM hold h WHERE h.request_id + 0 = b.request_id AND h.file_id = b.file_id OFFSET 0) h
        UNION ALL SELECT h.state, h.error FROM compact h WHERE h.request_id = b.request_id AND h.file_id = b.file_id LIMIT 1
      ) h ON true
      LEFT JOIN LATERAL (SELECT c.state, c.started_at FROM recall c WHERE c.file_id = b.file_id OFFSET 0) c ON h.state = 'WAITING'
    WHERE b.bulk_id = ${id}::uuid`;
}

/** As the WLCG Tape REST API has them; UNAVAILABLE may pass by itself. */
export type Locality = 'TAPE' | 'DISK_AND_TAPE' | 'UNAVAILABLE';

/** Why a file is UNAVAILABLE, or is none. */
export type LocalityProblem =
  | Exclude<BulkProblem, 'QUOTA_FULL'>
  | 'NOT_YOURS'
  | 'DISK_FAILS'
  | 'VOLUME_AWAY'
  | 'NO_PLACE';

export interface LocalityRow {
  path: string;
  /** Null where there is no such file. */
  locality: Locality | null;
  problem: LocalityProblem | null;
}

interface Located {
  path: string;
  isFile: boolean;
  stage: string;
  problem: LocalityProblem | null;
}

/**
 * What is told is what can be served here: of a file with a copy in the restore area, that it is on disk; of one that could be brought there, that it
 * is on tape. What the caller may not list is as if it were not there.
 * @param paths distinct logical paths; in no order
 */
export async function readLocalities(ctx: Context, paths: readonly string[]): Promise<LocalityRow[]> {
  allow(ctx, 'listFiles');
  const rows = await askAtLength<Located>(
    ctx,
    sql`SELECT l.path, f.id IS NOT NULL AS "isFile", f.stage, CASE
          WHEN f.id IS NULL THEN CASE WHEN ${isFolder(ctx)} THEN 'FOLDER' ELSE 'UNKNOWN' END
          WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
          WHEN f.stage IN ('UNVERIFIED', 'ONDISK') THEN 'ELSEWHERE'
          WHEN f.stage = 'RESTORED' THEN
            CASE WHEN f.disk_id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = f.disk_id) THEN 'DISK_FAILS' END
          WHEN f.volume_id IS NULL THEN 'NO_PLACE'
          WHEN f.stage = 'ONTAPE' AND EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.volume_id)
            AND NOT (${hasOther} AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.copy_volume_id)) THEN 'VOLUME_AWAY' END AS problem
        FROM unnest(${paths}::text[]) AS l (path) LEFT JOIN tape_file f ON f.path = l.path AND (${isOffered} OR f.stage = 'RESTORED') AND ${mayPath(ctx, 'LIST')}`,
    ctx.reader,
  );
  return rows.map(({ path, isFile, stage, problem }) => ({
    path,
    locality: isFile ? localityOf(stage, problem) : null,
    problem,
  }));
}

function localityOf(stage: string, problem: LocalityProblem | null): Locality {
  if (problem !== null) return 'UNAVAILABLE';
  return stage === 'RESTORED' ? 'DISK_AND_TAPE' : 'TAPE';
}

/** Files of a bulk in one request, by the paths that they have by now. */
interface Members {
  id: number;
  paths: string[];
}

/**
 * All of them or none: what is still to come is not waited for any more, and what has come is let go.
 * @param paths logical ones, or what is none
 * @throws InvalidInputError for a path that is not in the bulk, and nothing is changed then; NotFoundError, ForbiddenError
 */
export async function cancelInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await findRequests(ctx, id);
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
  await ctx.db.pool.query(sql`UPDATE bulk SET cancelled_at = ${ctx.now()}::timestamp WHERE id = ${id}::uuid`);
}

/** The same of what the client needs no more. @throws as `cancelInBulk` */
export async function releaseInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await findRequests(ctx, id);
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
}

/** Of one who does not say in which bulk: in all that the caller has made. What is in none of them is passed over. */
export async function releaseInAll(ctx: Context, paths: readonly string[]): Promise<void> {
  allow(ctx, 'releaseFiles');
  const known = paths.filter((path) => findPathProblem(path) === undefined);
  const { rows } = await ctx.db.pool.query<{ bulkId: string; id: number; paths: string[] }>(
    // by the path by which it was staged, as in a bulk, or by the one that the file has by now
    sql`SELECT b.bulk_id AS "bulkId", r.id, array_agg(DISTINCT f.path) AS paths
        FROM (SELECT o.bulk_id, o.request_id, o.file_id FROM bulk_file o WHERE o.path = ANY(${known}::text[])
          UNION SELECT o.bulk_id, o.request_id, o.file_id FROM tape_file n JOIN bulk_file o ON o.file_id = n.id WHERE n.path = ANY(${known}::text[])) b
          JOIN tape_file f ON f.id = b.file_id JOIN request r ON r.id = b.request_id JOIN quota q ON q.id = r.quota_id
        WHERE ${isLive} AND r.made_by = ${ownerOf(ctx.caller)} AND ${isVisibleQuota(ctx)}
        GROUP BY b.bulk_id, r.id ORDER BY r.id`,
  );
  for (const { bulkId, ...request } of rows) await letGoAll(ctx, bulkId, [request]);
}

/**
 * Ends all of its requests; nobody finds it any more.
 * @throws NotFoundError, ForbiddenError; what was ended before stays so
 */
export async function removeBulk(ctx: Context, id: string): Promise<void> {
  for (const request of await findRequests(ctx, id)) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM bulk WHERE id = ${id}::uuid`);
}

/**
 * Its requests, all of which the caller may change: before any of it is changed.
 * @throws NotFoundError, also where the caller may not see it; ForbiddenError
 */
async function findRequests(ctx: Context, id: string): Promise<number[]> {
  allow(ctx, 'cancelRequest');
  if (!isBulkId(id)) throw noBulk(id);
  const { rows } = await ctx.db.pool.query<{ user: string; id: number | null; madeBy: string | null }>(
    sql`SELECT q."user", r.id, r.made_by AS "madeBy" FROM bulk b JOIN quota q ON q.id = b.quota_id LEFT JOIN LATERAL (
          SELECT DISTINCT f.request_id FROM bulk_file f WHERE f.bulk_id = b.id AND f.request_id IS NOT NULL) m ON true
          LEFT JOIN request r ON r.id = m.request_id
        WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)} ORDER BY r.id`,
  );
  if (rows.length === 0) throw noBulk(id);
  return rows.flatMap(({ id: request, ...of }) => {
    // of which nothing could be had is that of whoever may ask with its quota
    if (request === null) allow(ctx, 'createRequest', of.user);
    else checkChange(ctx, { id: request, ...of });
    return request ?? [];
  });
}

/** @throws ForbiddenError, which is noted as of any other request */
function checkChange(ctx: Context, request: Parameters<typeof allowChange>[2]): void {
  try {
    allowChange(ctx, 'cancelRequest', request);
  } catch (error) {
    const deed = { operation: 'cancelRequest', kind: 'REQUEST', object: request.id } as const;
    if (error instanceof UserError) noteRefusal(ctx, deed, error.code);
    throw error;
  }
}

async function findMembers(ctx: Context, id: string, paths: readonly string[]): Promise<Members[]> {
  const given = new Map(paths.map((path) => [bulkKeyOf(path), path]));
  const { rows } = await ctx.db.pool.query<{ path: string; name: string; isIn: boolean; requestId: number | null }>(
    // a client knows a file by the path by which it has staged it, also when it was renamed since
    sql`SELECT w.path, coalesce(n.path, w.path) AS name, f.path IS NOT NULL AS "isIn", f.request_id AS "requestId"
        FROM unnest(${[...given.keys()]}::text[]) AS w (path) LEFT JOIN bulk_file f ON f.bulk_id = ${id}::uuid AND f.path = w.path
          LEFT JOIN tape_file n ON n.id = f.file_id`,
  );
  const foreign = rows.filter(({ isIn }) => !isIn);
  if (foreign[0]) {
    const more = foreign.length === 1 ? '' : ` and ${foreign.length - 1} more`;
    const first = quote(given.get(foreign[0].path) ?? foreign[0].path);
    throw new InvalidInputError('paths', `has what stage request ${id} does not hold: ${first}${more}`);
  }
  const byRequest = new Map<number, string[]>();
  for (const { name, requestId } of rows) {
    if (requestId === null) continue;
    const own = byRequest.get(requestId) ?? [];
    byRequest.set(requestId, own);
    own.push(name);
  }
  return [...byRequest].map(([request, own]) => ({ id: request, paths: own }));
}

/** What was on disk by then has been completed, whatever becomes of it. */
async function letGoAll(ctx: Context, bulkId: string, requests: readonly Members[]): Promise<void> {
  for (const { id, paths } of requests) {
    await ctx.db.pool.query(
      sql`UPDATE bulk_file b SET was_on_disk = true FROM hold h JOIN tape_file f ON f.id = h.file_id
          WHERE b.bulk_id = ${bulkId}::uuid AND b.request_id = ${id} AND f.path = ANY(${paths}::text[])
            AND h.request_id = b.request_id AND h.file_id = b.file_id AND h.state = 'ON_DISK'`,
    );
    await releaseFiles(ctx, { id, paths }, { mayHaveEnded: true }); // a lifetime may be over before its client is done
  }
}

const DAY_SECONDS = 24 * 3600;
/** No bulk goes sooner after it was made: it may still be being made, and whoever made it has yet to hear what became of it. */
const LEAST_DAYS = 1;
/** Of a statement: some tens of thousands of rows with their files. */
const STEP = 1000;

/** May be killed at any line; any number of engines may do so at once. */
export async function pruneBulks(ctx: Context, stop: AbortSignal): Promise<void> {
  const { requestDays } = ctx.config;
  const now = ctx.now();
  const before = addSeconds(now, -requestDays * DAY_SECONDS);
  const madeBefore = addSeconds(now, -Math.max(requestDays, LEAST_DAYS) * DAY_SECONDS);
  while (!stop.aborted) {
    const { rowCount } = await ctx.db.pool.query(
      sql`DELETE FROM bulk WHERE id IN (
            SELECT b.id FROM bulk b WHERE b.made_at <= ${madeBefore}::timestamp AND NOT EXISTS (
              SELECT FROM bulk_file f JOIN request r ON r.id = f.request_id
              WHERE f.bulk_id = b.id AND (${isLive} OR r.retention > ${before}::timestamp)) LIMIT ${STEP})`,
    );
    if ((rowCount ?? 0) < STEP) return;
  }
}

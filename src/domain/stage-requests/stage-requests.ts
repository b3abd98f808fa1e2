/**
 * Stage requests of the WLCG Tape REST API. A stage request gives each file a disk lifetime. For each disk lifetime,
 * Tapegate creates one ordinary request with the files that have this lifetime.
 */
import { createHash, randomUUID } from 'node:crypto';
import { hasRole, ownerOf } from '../../core/caller.js';
import { InvalidInputError, logFailure, NotFoundError, quote, UnknownUserError, UserError } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { askAtLength, type ListPages, readList } from '../../db/lists/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import type { StageRequestProblem } from '../../generated/prisma/enums.js';
import { mayPath } from '../access/paths.js';
import { recordRefusal } from '../audit/audited.js';
import { hasOther, isLive, isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText, findPathProblem } from '../input.js';
import { allow, allowChange, isVisibleQuota, may } from '../policy.js';
import { checkLimit } from '../quotas/charges.js';
import {
  createForStageRequest,
  isDirectory,
  type StageRequestFileInput,
  stageRequestRows,
} from '../requests/create.js';
import { cancelRequest, releaseFiles } from '../requests/ends.js';

/**
 * Maximum number of different disk lifetimes in a stage request. Each disk lifetime needs its own request and
 * transaction.
 */
const MAX_LIFETIMES = 100;

interface CreateStageRequestInput {
  quota: string;
  /** The requested files, at least one. If a path occurs more than once, only its first entry counts. */
  files: readonly { path: string; given: string; lifetimeSeconds: number | undefined }[];
}

/**
 * Creates a stage request. If a file cannot be staged, the stage request is still created, and `readStageRequest` later
 * reports the reason. If the process dies during the creation, the requests created so far remain until their retention
 * ends.
 * @returns the stage request's id
 * @throws InvalidInputError, ForbiddenError, UnknownUserError, LimitReachedError; after an error, the stage request
 *   is removed
 */
export async function createStageRequest(ctx: Context, { quota, files }: CreateStageRequestInput): Promise<string> {
  allow(ctx, 'createRequest', checkText('quota', quota));
  const { parts, invalid } = partsOf(files);
  if (parts.size > MAX_LIFETIMES) {
    const problem = `must have at most ${MAX_LIFETIMES} different values in a request, not ${parts.size}`;
    throw new InvalidInputError('diskLifetime', problem);
  }
  const id = randomUUID();
  const { rows } = await ctx.db.pool.query<{ unstaged: number }>(
    sql`INSERT INTO stage_request (id, quota_id, made_at) SELECT ${id}::uuid, q.id, ${ctx.now()}::timestamp FROM quota q
        WHERE q."user" = ${quota} AND q.removed_at IS NULL
        RETURNING (SELECT coalesce(sum(o.unstaged), 0)::int FROM stage_request o WHERE o.quota_id = stage_request.quota_id) AS unstaged`,
  );
  const [own] = rows;
  if (!own) throw new UnknownUserError(quota);
  const created: number[] = [];
  try {
    // check the limit on unstaged paths before creating any request; the unstaged paths of this stage request are
    // counted only at the end
    checkLimit(ctx, quota, 'unstagedPaths', { total: own.unstaged + 1, added: 1 });
    if (invalid.length > 0) await recordInvalid(ctx, id, invalid);
    for (const [lifetime, part] of parts) {
      const request = await createForStageRequest(
        ctx,
        {
          quota,
          files: part.map(({ path }) => path),
          label: `stage ${id}`,
          retention: lifetime === undefined ? undefined : addSeconds(ctx.now(), lifetime),
        },
        { id, files: part },
      );
      if (request !== undefined) created.push(request);
    }
    await ctx.db.pool.query(
      sql`UPDATE stage_request b SET unstaged = (SELECT count(*) FROM stage_request_file f WHERE f.stage_request_id = b.id AND f.request_id IS NULL)
          WHERE b.id = ${id}::uuid`,
    );
  } catch (error) {
    await undoCreation(ctx, id, created).catch((failure) =>
      logFailure(ctx.log, failure, 'cannot remove a failed stage request', { id }),
    );
    throw error;
  }
  return id;
}

interface StageParts {
  parts: Map<number | undefined, StageRequestFileInput[]>;
  invalid: StageRequestFileInput[];
}

function partsOf(files: CreateStageRequestInput['files']): StageParts {
  const parts: StageParts['parts'] = new Map();
  const invalid: StageRequestFileInput[] = [];
  const known = new Set<string>();
  for (const [index, { path: requested, given, lifetimeSeconds }] of files.entries()) {
    const path = pathKeyOf(requested);
    if (known.has(path)) continue;
    known.add(path);
    const part = path === requested ? (parts.get(lifetimeSeconds) ?? []) : invalid;
    if (part !== invalid) parts.set(lifetimeSeconds, part);
    part.push({ path, given, ordinal: index + 1 });
  }
  return { parts, invalid };
}

async function recordInvalid(ctx: Context, id: string, files: readonly StageRequestFileInput[]): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO stage_request_file (stage_request_id, path, given, ordinal, problem)
        SELECT ${id}::uuid, l.path, l.given, l.n, 'UNKNOWN' FROM (${stageRequestRows(files)}) l`,
  );
}

async function undoCreation(ctx: Context, id: string, requests: readonly number[]): Promise<void> {
  for (const request of requests) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM stage_request WHERE id = ${id}::uuid`);
}

/**
 * Returns the users whose quotas the caller is allowed to charge; undefined if the caller can charge any quota. A user
 * without a quota can charge only the first quota that the user became a member of. Later memberships are ignored,
 * because users can be made members without their consent.
 */
export async function readQuotasOfCaller(ctx: Context): Promise<string[] | undefined> {
  allow(ctx, 'createRequest');
  const { acts, name, groups } = ctx.caller;
  if (acts === 'all') return undefined;
  const rows = await ctx.db.rows<{ user: string }>(
    sql`SELECT q."user" FROM quota q WHERE q."user" = ANY(${[...acts]}::text[]) AND q.removed_at IS NULL
        ORDER BY q."user" <> ${name}, (SELECT min(m.ordinal) FROM quota_member m WHERE m.quota_id = q.id
          AND ((m.kind = 'USER' AND m.name = ${name}) OR (m.kind = 'GROUP' AND m.name = ANY(${groups}::text[])))), q."user"`,
  );
  const users = rows.map(({ user }) => user);
  return hasRole(ctx.caller, 'user') || users[0] === name ? users.slice(0, 1) : users.sort();
}

/** Returns the user whose quota is charged by default. Returns null if the caller must name a quota. */
export async function readDefaultQuota(ctx: Context): Promise<string | null> {
  if (!may(ctx.caller, 'createRequest')) return null;
  const [only, ...more] = (await readQuotasOfCaller(ctx)) ?? [];
  return more.length === 0 ? (only ?? null) : null;
}

/**
 * Returns the text under which the database stores a path: a valid path unchanged, or a replacement text for an invalid
 * path. The replacement text never equals a valid path.
 */
function pathKeyOf(path: string): string {
  if (findPathProblem(path) === undefined) return path;
  return `no path: ${createHash('sha256').update(path).digest('hex')}`;
}

/** State of a file in a stage request, as defined by the WLCG Tape REST API. */
export type StageRequestFileState = 'SUBMITTED' | 'STARTED' | 'COMPLETED' | 'FAILED' | 'CANCELLED';

export interface StageRequestFileRow {
  given: string;
  state: StageRequestFileState;
  startedAt: string | null;
  problem: StageRequestProblem | null;
  error: string | null;
  /** Whether the request that contains the file ended before the file was on disk. */
  isLate: boolean;
}

export interface StageRequestRow {
  id: string;
  quota: string;
  madeAt: string;
  startedAt: string | null;
  /** Time at which the last pending file was restored or failed; null while a file is pending. */
  endedAt: string | null;
}

const isStageRequestId = (text: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);

const unknownStageRequest = (id: string): NotFoundError => new NotFoundError(`there is no stage request ${quote(id)}`);

/**
 * Reads a stage request, and its files in list order.
 * @throws NotFoundError, also if the caller is not allowed to see the stage request
 */
export async function readStageRequest<T>(
  ctx: Context,
  id: string,
  consume: (stageRequest: StageRequestRow, files: ListPages<StageRequestFileRow>) => Promise<T>,
): Promise<T> {
  const stageRequest = await findStageRequest(ctx, id);
  const list = sql`SELECT s.given, s.state, s."startedAt", s.problem, s.error, s."isLate" FROM (${filesOf(ctx, id)}) s ORDER BY s.ordinal`;
  return await readList<StageRequestFileRow, T>(ctx, list, (pages) => consume(stageRequest, pages));
}

async function findStageRequest(ctx: Context, id: string): Promise<StageRequestRow> {
  allow(ctx, 'getRequest');
  const [stageRequest] = isStageRequestId(id)
    ? await askAtLength<StageRequestRow>(
        ctx,
        sql`SELECT b.id, q."user" AS quota, b.made_at AS "madeAt", t."startedAt",
              CASE WHEN NOT t."isOpen" THEN greatest(b.made_at, b.cancelled_at, t."endedAt") END AS "endedAt"
            FROM stage_request b JOIN quota q ON q.id = b.quota_id CROSS JOIN LATERAL (
              SELECT min(s."requestStart") AS "startedAt", max(s."requestEnd") AS "endedAt", coalesce(bool_or(s.state IN ('SUBMITTED', 'STARTED')), false) AS "isOpen"
              FROM (${filesOf(ctx, id)}) s
            ) t WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)}`,
        ctx.reader,
      )
    : [];
  if (!stageRequest) throw unknownStageRequest(id);
  return stageRequest;
}

function filesOf(ctx: Context, id: string): Sql {
  const isOver = sql`(NOT ${isLive} OR r.retention <= ${ctx.now()}::timestamp)`;
  return sql`
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
    FROM stage_request_file b LEFT JOIN request r ON r.id = b.request_id
      LEFT JOIN LATERAL (
        SELECT h.state, h.error FROM request_file h WHERE h.request_id = b.request_id AND h.file_id = b.file_id OFFSET 0
      ) h ON true
      LEFT JOIN LATERAL (SELECT c.state, c.started_at FROM recall c WHERE c.file_id = b.file_id OFFSET 0) c ON h.state = 'WAITING'
    WHERE b.stage_request_id = ${id}::uuid`;
}

/** Locality of a file in the WLCG Tape REST API. */
export type Locality = 'TAPE' | 'DISK_AND_TAPE' | 'UNAVAILABLE';

/** Reason why a file's locality is UNAVAILABLE, or why the file does not exist. */
export type LocalityProblem =
  | Exclude<StageRequestProblem, 'QUOTA_FULL'>
  | 'NOT_YOURS'
  | 'DISK_FAILS'
  | 'VOLUME_AWAY'
  | 'NO_POSITION';

export interface LocalityRow {
  path: string;
  locality: Locality | null;
  problem: LocalityProblem | null;
}

interface LocatedFile {
  path: string;
  fileId: bigint | null;
  isFile: boolean;
  stage: string;
  problem: LocalityProblem | null;
}

/**
 * Returns the locality of each path. The results are in no particular order. A file with a copy in the restore area is
 * DISK_AND_TAPE. A file that is only on tape, and that drives can recall, is TAPE. A file that the caller is not
 * allowed to list counts as missing.
 * @param paths distinct logical paths
 */
export async function readLocalities(ctx: Context, paths: readonly string[]): Promise<LocalityRow[]> {
  allow(ctx, 'listFiles');
  const rows = await askAtLength<LocatedFile>(
    ctx,
    sql`SELECT l.path, f.id AS "fileId", f.id IS NOT NULL AS "isFile", f.stage, CASE
          WHEN f.id IS NULL THEN CASE WHEN ${isDirectory(ctx)} THEN 'DIRECTORY' ELSE 'UNKNOWN' END
          WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
          WHEN f.stage IN ('UNVERIFIED', 'ONDISK') THEN 'ELSEWHERE'
          WHEN f.stage = 'RESTORED' THEN
            CASE WHEN f.disk_id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = f.disk_id) THEN 'DISK_FAILS' END
          WHEN f.volume_id IS NULL THEN 'NO_POSITION'
          WHEN f.stage = 'ONTAPE' AND EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.volume_id)
            AND NOT (${hasOther} AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.copy_volume_id)) THEN 'VOLUME_AWAY' END AS problem
        FROM unnest(${paths}::text[]) AS l (path) LEFT JOIN tape_file f ON f.path = l.path AND (${isOffered} OR f.stage = 'RESTORED') AND ${mayPath(ctx, 'LIST')}`,
    ctx.reader,
  );
  const onDisk = rows.filter(({ stage, problem }) => stage === 'RESTORED' && problem === null);
  const ids = onDisk.map(({ fileId }) => fileId);
  const missing = ids.length > 0 ? await ctx.recordMissing(ctx, sql`f.id = ANY(${ids}::bigint[])`) : undefined;
  return rows.map(({ path, fileId, isFile, stage, problem }) => ({
    path,
    locality: isFile ? localityOf(fileId !== null && missing?.has(fileId) ? 'ONTAPE' : stage, problem) : null,
    problem,
  }));
}

function localityOf(stage: string, problem: LocalityProblem | null): Locality {
  if (problem !== null) return 'UNAVAILABLE';
  return stage === 'RESTORED' ? 'DISK_AND_TAPE' : 'TAPE';
}

interface RequestFiles {
  id: number;
  paths: string[];
}

/**
 * Cancels the pending files of a stage request, and releases its files on disk.
 * @param paths paths in the form in which the client sent them in the stage request, including invalid paths
 * @throws InvalidInputError if a path is not in the stage request; NotFoundError, ForbiddenError
 */
export async function cancelStageRequestFiles(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await releaseStageRequestFiles(ctx, id, paths);
  await ctx.db.pool.query(sql`UPDATE stage_request SET cancelled_at = ${ctx.now()}::timestamp WHERE id = ${id}::uuid`);
}

/** Releases files in a stage request. The parameters and errors are the same as for `cancelStageRequestFiles`. */
export async function releaseStageRequestFiles(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await findRequests(ctx, id);
  await releaseByRequest(ctx, id, await groupByRequest(ctx, id, paths));
}

/** Releases files in all of the caller's stage requests. Ignores unknown paths. */
export async function releaseInAllStageRequests(ctx: Context, paths: readonly string[]): Promise<void> {
  allow(ctx, 'releaseFiles');
  const known = paths.filter((path) => findPathProblem(path) === undefined);
  const rows = await ctx.db.rows<{ stageRequestId: string; id: number; paths: string[] }>(
    // a client can identify a file by its path in the stage request or by its current path
    sql`SELECT b.stage_request_id AS "stageRequestId", r.id, array_agg(DISTINCT f.path) AS paths
        FROM (SELECT o.stage_request_id, o.request_id, o.file_id FROM stage_request_file o WHERE o.path = ANY(${known}::text[])
          UNION SELECT o.stage_request_id, o.request_id, o.file_id FROM tape_file n JOIN stage_request_file o ON o.file_id = n.id WHERE n.path = ANY(${known}::text[])) b
          JOIN tape_file f ON f.id = b.file_id JOIN request r ON r.id = b.request_id JOIN quota q ON q.id = r.quota_id
        WHERE ${isLive} AND r.made_by = ${ownerOf(ctx.caller)} AND ${isVisibleQuota(ctx)}
        GROUP BY b.stage_request_id, r.id ORDER BY r.id`,
  );
  for (const { stageRequestId, ...request } of rows) await releaseByRequest(ctx, stageRequestId, [request]);
}

/**
 * Cancels the ordinary requests of a stage request, and deletes the stage request. After an error, requests that were
 * already cancelled stay cancelled.
 * @throws NotFoundError, ForbiddenError
 */
export async function removeStageRequest(ctx: Context, id: string): Promise<void> {
  for (const request of await findRequests(ctx, id)) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM stage_request WHERE id = ${id}::uuid`);
}

/**
 * Returns the ordinary requests of a stage request. Checks that the caller is allowed to change all of these requests.
 * @throws NotFoundError, also if the caller is not allowed to see the stage request; ForbiddenError
 */
async function findRequests(ctx: Context, id: string): Promise<number[]> {
  allow(ctx, 'cancelRequest');
  if (!isStageRequestId(id)) throw unknownStageRequest(id);
  const rows = await ctx.db.rows<{ user: string; id: number | null; madeBy: string | null }>(
    sql`SELECT q."user", r.id, r.made_by AS "madeBy" FROM stage_request b JOIN quota q ON q.id = b.quota_id LEFT JOIN LATERAL (
          SELECT DISTINCT f.request_id FROM stage_request_file f WHERE f.stage_request_id = b.id AND f.request_id IS NOT NULL) m ON true
          LEFT JOIN request r ON r.id = m.request_id
        WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)} ORDER BY r.id`,
  );
  if (rows.length === 0) throw unknownStageRequest(id);
  return rows.flatMap(({ id: request, ...of }) => {
    // if a stage request has no ordinary requests, every caller that can charge the quota can also change the stage
    // request
    if (request === null) allow(ctx, 'createRequest', of.user);
    else checkChange(ctx, { id: request, ...of });
    return request ?? [];
  });
}

/**
 * Checks that the caller is allowed to cancel a request. Records a refusal in the audit log.
 * @throws ForbiddenError
 */
function checkChange(ctx: Context, request: Parameters<typeof allowChange>[2]): void {
  try {
    allowChange(ctx, 'cancelRequest', request);
  } catch (error) {
    const action = { operation: 'cancelRequest', kind: 'REQUEST', object: request.id } as const;
    if (error instanceof UserError) recordRefusal(ctx, action, error.code);
    throw error;
  }
}

async function groupByRequest(ctx: Context, id: string, paths: readonly string[]): Promise<RequestFiles[]> {
  const given = new Map(paths.map((path) => [pathKeyOf(path), path]));
  const rows = await ctx.db.rows<{ path: string; name: string; isIn: boolean; requestId: number | null }>(
    // a client identifies a file by its path in the stage request, even if the file was renamed later
    sql`SELECT w.path, coalesce(n.path, w.path) AS name, f.path IS NOT NULL AS "isIn", f.request_id AS "requestId"
        FROM unnest(${[...given.keys()]}::text[]) AS w (path) LEFT JOIN stage_request_file f ON f.stage_request_id = ${id}::uuid AND f.path = w.path
          LEFT JOIN tape_file n ON n.id = f.file_id`,
  );
  const foreign = rows.filter(({ isIn }) => !isIn);
  if (foreign[0]) {
    const more = foreign.length === 1 ? '' : ` and ${foreign.length - 1} more`;
    const first = quote(given.get(foreign[0].path) ?? foreign[0].path);
    throw new InvalidInputError('paths', `must all be in stage request ${id}, which does not contain ${first}${more}`);
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

/** Releases files in several requests. Released files that were on disk stay COMPLETED in the stage request. */
async function releaseByRequest(
  ctx: Context,
  stageRequestId: string,
  requests: readonly RequestFiles[],
): Promise<void> {
  for (const { id, paths } of requests) {
    await ctx.db.pool.query(
      sql`UPDATE stage_request_file b SET was_on_disk = true FROM request_file h JOIN tape_file f ON f.id = h.file_id
          WHERE b.stage_request_id = ${stageRequestId}::uuid AND b.request_id = ${id} AND f.path = ANY(${paths}::text[])
            AND h.request_id = b.request_id AND h.file_id = b.file_id AND h.state = 'ON_DISK'`,
    );
    // accept an ended request, because the disk lifetime might have passed before the client releases the files
    await releaseFiles(ctx, { id, paths }, { mayHaveEnded: true });
  }
}

const DAY_SECONDS = 24 * 3600;
/**
 * Minimum age in days at which a stage request is deleted. During this time, clients can read the result of the stage
 * request.
 */
const MIN_DAYS = 1;
const STEP = 1000;

/** Deletes old stage requests. Several engines can call this function at the same time. */
export async function pruneStageRequests(ctx: Context, stop: AbortSignal): Promise<void> {
  const { requestDays } = ctx.config;
  const now = ctx.now();
  const before = addSeconds(now, -requestDays * DAY_SECONDS);
  const madeBefore = addSeconds(now, -Math.max(requestDays, MIN_DAYS) * DAY_SECONDS);
  while (!stop.aborted) {
    const { rowCount } = await ctx.db.pool.query(
      sql`DELETE FROM stage_request WHERE id IN (
            SELECT b.id FROM stage_request b WHERE b.made_at <= ${madeBefore}::timestamp AND NOT EXISTS (
              SELECT FROM stage_request_file f JOIN request r ON r.id = f.request_id
              WHERE f.stage_request_id = b.id AND (${isLive} OR r.retention > ${before}::timestamp)) LIMIT ${STEP})`,
    );
    if ((rowCount ?? 0) < STEP) return;
  }
}

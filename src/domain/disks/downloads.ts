/**
 * Links that download several restored files as one archive. A browser does not send a token when it saves a link, so a
 * link is itself a credential: it works once, for a minute, and only with the rights that its creator still has.
 */
import { createHash, randomBytes } from 'node:crypto';
import { type Caller, ownerOf } from '../../core/caller.js';
import { ForbiddenError, InvalidInputError, quote } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { locking } from '../../db/locks.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import { mayPath, mayPathOfRequest } from '../access/paths.js';
import type { Context } from '../context.js';
import { checkPath } from '../input.js';
import { allow, isVisibleQuota } from '../policy.js';
import { describeForeign, getRequest, isEnded, type RequestWithQuota } from '../requests/rows.js';
import { copyColumns, type ServedCopy, type Unserved } from './disk-copies.js';

/** Maximum number of files in an archive. The gateway keeps the list of an archive's files in memory. */
export const MAX_FILES = 10_000;

/** Seconds within which a download must start. */
const LINK_SECONDS = 60;

/** Maximum number of unused links of a caller. A new link replaces the oldest link. */
const MAX_LINKS = 10;

/** Prefix of the secret, so that logs hide the secret as they hide tokens. */
const PREFIX = 'tapegate_link_';
const SECRET_BYTES = 32;
const SECRET = /^tapegate_link_[\w-]{43}$/;

interface CreateDownloadInput {
  requestId: number;
  /** Logical paths of files in the request. Default: all files of the request that are on disk. */
  paths?: readonly string[] | null | undefined;
}

interface CreatedDownload {
  /** The link's secret, which cannot be read later. */
  secret: string;
  fileCount: number;
  /** Number of files on disk that cannot be downloaded, and that the archive therefore omits. */
  skippedCount: number;
  bytes: bigint;
  expiresAt: string;
}

/**
 * Creates a link to an archive of files in a request.
 * @throws NotFoundError; InvalidInputError if the request has ended, if a given file or every file cannot be downloaded,
 * or if there are too many files; ForbiddenError if the site does not serve file contents
 */
export async function createDownload(ctx: Context, input: CreateDownloadInput): Promise<CreatedDownload> {
  allow(ctx, 'createDownload');
  const request = await getRequest(ctx, input.requestId);
  if (ctx.config.transfer.webdav === 'off')
    throw new ForbiddenError(ctx.caller.name, 'download files: this site does not serve file contents');
  if (isEnded(request.state))
    throw new InvalidInputError('requestId', `must identify a live request: request ${request.id} has ended`);
  const chosen = input.paths ? await findChosen(ctx, request, input.paths) : await findAllOnDisk(ctx, request);
  const found = await findDownloadable(ctx, request.id, chosen);
  const files = found.filter(({ problem }) => problem === null);
  const unserved = found.filter(({ problem }) => problem !== null);
  if (unserved.length > 0 && (input.paths || files.length === 0)) throw cannotDownload(unserved);
  const fileIds = files.map(({ fileId }) => fileId);
  const secret = PREFIX + randomBytes(SECRET_BYTES).toString('base64url');
  const expiresAt = addSeconds(ctx.now(), LINK_SECONDS);
  await deleteOldLinks(ctx);
  await ctx.db.pool.query(
    sql`INSERT INTO download_link (hash, owner, caller, request_id, file_ids, expires_at)
        VALUES (${hashOf(secret)}, ${ownerOf(ctx.caller)}, ${JSON.stringify(identityOf(ctx.caller))}::jsonb, ${request.id},
          ${fileIds}::bigint[], ${expiresAt}::timestamp)`,
  );
  const bytes = files.reduce((sum, { size }) => sum + size, 0n);
  return { secret, fileCount: files.length, skippedCount: unserved.length, bytes, expiresAt };
}

const hashOf = (secret: string): Buffer => createHash('sha256').update(secret).digest();

const tooMany = (given: string) =>
  new InvalidInputError('paths', `must contain at most ${MAX_FILES} files for one archive, not ${given}`);

/** @returns the ids of the files with the given paths @throws InvalidInputError */
async function findChosen(ctx: Context, { id }: RequestWithQuota, given: readonly string[]): Promise<bigint[]> {
  const paths = [...new Set(given)];
  if (paths.length === 0) throw new InvalidInputError('paths', 'must not be empty');
  if (paths.length > MAX_FILES) throw tooMany(String(paths.length));
  for (const path of paths) checkPath('paths', path);
  const rows = await ctx.db.rows<{ path: string; fileId: bigint | null }>(
    sql`SELECT c.path, h.file_id AS "fileId" FROM unnest(${paths}::text[]) AS c (path)
          LEFT JOIN LATERAL (SELECT f.* FROM tape_file f WHERE f.path = c.path OFFSET 0) f ON ${mayPathOfRequest(ctx)}
          LEFT JOIN LATERAL (
            SELECT h.file_id FROM request_file h WHERE h.request_id = ${id} AND h.file_id = f.id OFFSET 0
          ) h ON true`,
  );
  const missing = rows.filter(({ fileId }) => fileId === null);
  if (missing[0]) throw new InvalidInputError('paths', describeForeign(id, missing[0].path, missing.length));
  return rows.flatMap(({ fileId }) => fileId ?? []);
}

/** @throws InvalidInputError */
async function findAllOnDisk(ctx: Context, { id, filesOnDisk }: RequestWithQuota): Promise<bigint[]> {
  if (filesOnDisk > MAX_FILES) throw tooMany(`the ${filesOnDisk} files of request ${id} that are on disk`);
  const rows = await askAtLength<{ fileId: bigint }>(
    ctx,
    sql`SELECT h.file_id AS "fileId" FROM request_file h JOIN tape_file f ON f.id = h.file_id
        WHERE h.request_id = ${id} AND h.state = 'ON_DISK' AND ${mayPathOfRequest(ctx)} LIMIT ${raw(String(MAX_FILES + 1))}`,
    ctx.reader,
  );
  if (rows.length > MAX_FILES) throw tooMany(`more than ${MAX_FILES} files of request ${id} that are on disk`);
  if (rows.length === 0)
    throw new InvalidInputError('requestId', `must have files on disk: request ${id} has none yet`);
  return rows.map(({ fileId }) => fileId);
}

/** A file of an archive. `problem` is the reason why the file cannot be downloaded, or null. */
export type DownloadableFile = ServedCopy & { logicalPath: string; problem: Unserved | null };

/**
 * Returns the files with the given ids, ordered by path, with the reason why the caller cannot download a file. Returns
 * no files if the caller may not see the request.
 */
export async function findDownloadable(
  ctx: Context,
  requestId: number,
  fileIds: readonly bigint[],
): Promise<DownloadableFile[]> {
  return await ctx.db.rows<DownloadableFile>(
    sql`SELECT ${copyColumns}, f.path AS "logicalPath",
          CASE WHEN NOT ${mayPath(ctx, 'LIST')} THEN 'UNKNOWN'
            WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
            WHEN f.stage IN ('ONTAPE', 'RESTORING') OR h.state IS DISTINCT FROM 'ON_DISK' THEN 'ON_TAPE'
            WHEN f.stage <> 'RESTORED' THEN 'ELSEWHERE'
            WHEN k.id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) THEN 'DISK_FAILS' END AS problem
        FROM unnest(${fileIds}::bigint[]) AS c (id)
          JOIN tape_file f ON f.id = c.id
          LEFT JOIN LATERAL (
            SELECT h.state FROM request_file h
            WHERE h.request_id = ${requestId} AND h.file_id = f.id AND NOT h.is_ended OFFSET 0
          ) h ON true
          LEFT JOIN restore_disk k ON k.id = f.disk_id
        WHERE ${isSeen(ctx, requestId)} ORDER BY f.path COLLATE "C"`,
  );
}

const isSeen = (ctx: Context, requestId: number): Sql =>
  sql`EXISTS (SELECT FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${requestId}
    AND r.state NOT IN ('EXPIRED', 'CANCELLED') AND ${isVisibleQuota(ctx)})`;

const reasons: Record<Unserved, string> = {
  UNKNOWN: 'does not exist',
  DIRECTORY: 'is a directory',
  NOT_YOURS: 'is closed to you: you are not allowed to read it',
  ON_TAPE: 'is not on disk for this request',
  ELSEWHERE: 'is at its primary path or was changed on disk, and the gateway serves only unchanged restored copies',
  DISK_FAILS: 'is on a disk that is temporarily unavailable',
};

function cannotDownload([first, ...others]: readonly DownloadableFile[]): InvalidInputError {
  const { logicalPath, problem } = first as DownloadableFile;
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  const why = reasons[problem ?? 'UNKNOWN'];
  return new InvalidInputError(
    'paths',
    `contains a file that cannot be downloaded: ${quote(logicalPath)} ${why}${more}`,
  );
}

/**
 * What a gateway must know about a link's creator to determine the creator's current rights. The rights of a token are
 * read from the token.
 */
export type LinkIdentity = Pick<
  Caller,
  'name' | 'way' | 'groups' | 'isReadOnly' | 'isScoped' | 'tokenId' | 'expiresAt'
> & {
  roles: readonly ('user' | 'viewer' | 'operator' | 'service' | 'legacy')[];
};

function identityOf(caller: Caller): LinkIdentity {
  const { name, way, groups, roles, isReadOnly = false, isScoped = false, tokenId, expiresAt } = caller;
  return { name, way, groups, roles: [...roles], isReadOnly, isScoped, tokenId, expiresAt };
}

export interface DownloadLink {
  owner: string;
  identity: LinkIdentity;
  requestId: number;
  fileIds: bigint[];
}

/** Returns the unused link with a secret; undefined if the link is unknown, was used or has expired. */
export async function readLink(ctx: Context, secret: string): Promise<DownloadLink | undefined> {
  if (!SECRET.test(secret)) return undefined;
  const [row] = await ctx.db.rows<DownloadLink>(
    sql`SELECT l.owner, l.caller AS identity, l.request_id AS "requestId", l.file_ids AS "fileIds" FROM download_link l
        WHERE l.hash = ${hashOf(secret)} AND l.expires_at > ${ctx.now()}::timestamp`,
  );
  return row;
}

/** Uses a link. @returns false if another download has used the link, or the link has expired */
export async function useLink(ctx: Context, secret: string): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`DELETE FROM download_link l WHERE l.hash = ${hashOf(secret)} AND l.expires_at > ${ctx.now()}::timestamp`,
  );
  return rowCount === 1;
}

const STEP = 1000;

/** Deletes expired links, and the caller's oldest links if the caller has too many. */
async function deleteOldLinks(ctx: Context): Promise<void> {
  const owner = ownerOf(ctx.caller);
  await ctx.db.pool.query(
    sql`DELETE FROM download_link WHERE hash IN (
          SELECT l.hash FROM download_link l WHERE l.expires_at <= ${ctx.now()}::timestamp
            OR (l.owner = ${owner} AND l.hash NOT IN (
              SELECT n.hash FROM download_link n WHERE n.owner = ${owner} ORDER BY n.expires_at DESC LIMIT ${MAX_LINKS - 1}))
          LIMIT ${STEP} ${locking.freeDownloadLink})`,
  );
}

/** Deletes expired links. Several engines can prune at the same time. */
export async function pruneLinks(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`DELETE FROM download_link WHERE hash IN (
          SELECT l.hash FROM download_link l WHERE l.expires_at <= ${ctx.now()}::timestamp ${locking.freeDownloadLink})`,
  );
}

/**
 * Symbolic links at the archive paths of files. Each link points to the file's copy in the restore area. Tapegate
 * stores a link's row in the database before it makes the link, and keeps the row until the link is removed. A copy
 * leaves the restore area only if no link points to it (disks/removals.ts).
 *
 * A trigger marks a link's row whenever the copy changes. An engine makes, replaces or removes the links of marked rows
 * (restore-area/links/keeper.ts). An engine records its result only if the link's row was not marked again in the
 * meantime (column `change`). If a process is paused until its claim on a row has expired, the process might later make
 * an unwanted link. Therefore, an engine checks each removed link a second time, after all claims on the link's row
 * have expired.
 */

import { addSeconds } from '../../core/time.js';
import { locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { diskOfCopy, diskPath } from '../conditions.js';
import type { Context } from '../context.js';

export interface Link {
  at: string;
  target: string;
}

export interface DueLink {
  fileId: bigint;
  change: bigint;
  noted: Link | null;
  isThere: boolean;
  wanted: Link | null;
}

export type SettledLink = Pick<DueLink, 'fileId' | 'change'> & {
  /**
   * Result of an attempt to make or remove a link. `right`: the path has the wanted link. `gone`: no link is wanted,
   * and the path has no link. `forgotten`: the link was removed, and a second check has found no link at the path.
   * `stuck`: the attempt to make or remove the link failed, and will be repeated.
   */
  result: 'right' | 'gone' | 'forgotten' | 'stuck';
  problem: string | null;
};

const CLAIM_SECONDS = 60;
/**
 * Seconds after which an engine checks again that a removed link is gone. After this time, no process still has a valid
 * claim to make the link.
 */
const LATE_SECONDS = 600;
const RETRY_SECONDS = 300;

/**
 * Stores the directory in which links are made. If the directory has changed, engines check all links.
 * @returns the earlier directory if the directory changed, otherwise null
 */
export async function setLinkRoot(ctx: Context, root: string | undefined): Promise<{ before: string | null } | null> {
  const rows = await ctx.db.rows<{ before: string | null }>(
    sql`WITH earlier AS (SELECT path FROM link_root)
        INSERT INTO link_root AS r (id, path) SELECT 1, ${root ?? null}::text
          WHERE ${root ?? null}::text IS NOT NULL OR EXISTS (SELECT FROM earlier)
        ON CONFLICT (id) DO UPDATE SET path = excluded.path WHERE r.path IS DISTINCT FROM excluded.path
        RETURNING (SELECT path FROM earlier) AS before`,
  );
  if (rows[0]) await ctx.db.pool.query(sql`UPDATE archive_link SET check_at = '1970-01-01', change = change + 1`);
  await markUnlinked(ctx);
  return rows[0] ?? null;
}

const isUnlinked: Sql = sql`(f.disk_id IS NOT NULL AND f.stage = 'RESTORED' OR f.changed_disk_id IS NOT NULL AND f.stage = 'UNVERIFIED')
  AND NOT EXISTS (SELECT FROM archive_link l WHERE l.file_id = f.id)`;

/** Adds missing link rows for copies that were restored before the link directory was set. */
export async function markUnlinked(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO archive_link (file_id, check_at) SELECT f.id, '1970-01-01' FROM tape_file f, link_root r
        WHERE r.path IS NOT NULL AND ${isUnlinked} ORDER BY f.id ON CONFLICT DO NOTHING`,
  );
}

const wantedAt = sql`rtrim(r.path, '/') || f.path`;
const wantedTarget = sql`k.mountpoint || ${diskPath}`;

/**
 * SQL condition that is true if the file of the link `l` was renamed, and another file now uses the link at the old
 * path.
 */
const isOfOther = sql`EXISTS (SELECT FROM tape_file o JOIN archive_link n ON n.file_id = o.id
  WHERE o.path = substr(l.at, length(rtrim(r.path, '/')) + 1) AND o.id <> l.file_id AND n.is_there AND n.at = l.at AND n.target = l.target)`;

export async function claimLinks(ctx: Context, limit: number): Promise<DueLink[]> {
  const now = ctx.now();
  const { rows: claimed } = await ctx.db.pool.query<{ id: bigint }>(
    sql`UPDATE archive_link a SET check_at = ${addSeconds(now, CLAIM_SECONDS)}::timestamp FROM (
          SELECT l.file_id FROM archive_link l WHERE l.check_at <= ${now}::timestamp ORDER BY l.check_at, l.file_id LIMIT ${limit}
          ${locking.freeLink}) due
        WHERE a.file_id = due.file_id RETURNING a.file_id AS id`,
  );
  if (claimed.length === 0) return [];
  // read the files in a separate statement after the claim: if a file changes later, a trigger marks the row of its
  // link again
  const rows = await ctx.db.rows<{
    fileId: bigint;
    change: bigint;
    at: string | null;
    target: string | null;
    isThere: boolean;
    wantedAt: string | null;
    wantedTarget: string | null;
  }>(
    sql`SELECT l.file_id AS "fileId", l.change, CASE WHEN NOT ${isOfOther} THEN l.at END AS at, l.target, l.is_there AS "isThere",
          ${wantedAt} AS "wantedAt", CASE WHEN r.path IS NOT NULL THEN ${wantedTarget} END AS "wantedTarget"
        FROM archive_link l JOIN tape_file f ON f.id = l.file_id LEFT JOIN link_root r ON r.path IS NOT NULL
          LEFT JOIN restore_disk k ON k.id = ${diskOfCopy}
        WHERE l.file_id = ANY(${claimed.map(({ id }) => id)}::bigint[]) ORDER BY l.file_id`,
  );
  return rows.map(({ fileId, change, at, target, isThere, ...wanted }) => ({
    ...{ fileId, change, isThere },
    noted: toLink(at, target),
    wanted: toLink(wanted.wantedAt, wanted.wantedTarget),
  }));
}

function toLink(at: string | null, target: string | null): Link | null {
  return at === null || target === null ? null : { at, target };
}

/**
 * Stores links that are about to be made. Returns the files whose links the caller can make. Skips rows that were
 * marked again after the caller claimed them.
 */
export async function recordLinks(
  ctx: Context,
  links: readonly (Link & Pick<DueLink, 'fileId' | 'change'>)[],
): Promise<Set<bigint>> {
  if (links.length === 0) return new Set();
  const rows = await ctx.db.rows<{ id: bigint }>(
    sql`WITH free AS (${freeOf(links)})
        UPDATE archive_link a SET at = m.at, target = m.target, is_there = true
        FROM free, unnest(${links.map(({ fileId }) => fileId)}::bigint[], ${links.map(({ at }) => at)}::text[],
          ${links.map(({ target }) => target)}::text[]) AS m (id, at, target)
        WHERE a.file_id = free.id AND m.id = free.id RETURNING a.file_id AS id`,
  );
  return new Set(rows.map(({ id }) => id));
}

/**
 * Stores whether the links in claimed rows were made or removed. Skips rows that were marked again after the caller
 * claimed them.
 */
export async function recordSettled(ctx: Context, settled: readonly SettledLink[]): Promise<Set<bigint>> {
  const recorded: { id: bigint }[] = [];
  const now = ctx.now();
  const next = { right: null, gone: addSeconds(now, LATE_SECONDS), stuck: addSeconds(now, RETRY_SECONDS) };
  const kept = settled.filter((link) => link.result !== 'forgotten');
  const times = kept.map(({ result }) => (result === 'forgotten' ? null : next[result]));
  if (kept.length > 0) {
    const rows = await ctx.db.rows<{ id: bigint }>(
      sql`WITH free AS (${freeOf(kept)})
          UPDATE archive_link a SET check_at = m.check_at, is_there = a.is_there AND NOT m.is_gone, problem = m.problem
          FROM free, unnest(${kept.map(({ fileId }) => fileId)}::bigint[], ${times}::timestamp[],
            ${kept.map(({ result }) => result === 'gone')}::bool[], ${kept.map(({ problem }) => problem)}::text[])
            AS m (id, check_at, is_gone, problem)
          WHERE a.file_id = free.id AND m.id = free.id RETURNING a.file_id AS id`,
    );
    recorded.push(...rows);
  }
  const over = settled.filter((link) => link.result === 'forgotten');
  if (over.length > 0) {
    const rows = await ctx.db.rows<{ id: bigint }>(
      sql`DELETE FROM archive_link a USING (${freeOf(over)}) free WHERE a.file_id = free.id RETURNING a.file_id AS id`,
    );
    recorded.push(...rows);
  }
  return new Set(recorded.map(({ id }) => id));
}

export async function markLinks(ctx: Context, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  await ctx.db.pool.query(
    sql`UPDATE archive_link a SET check_at = '1970-01-01', change = a.change + 1 FROM (
          SELECT l.file_id FROM archive_link l WHERE l.file_id = ANY(${fileIds}::bigint[]) ${locking.freeLink}) free
        WHERE a.file_id = free.file_id`,
  );
}

/**
 * Selects the rows that were not marked again after they were claimed. Skips rows that another transaction has locked,
 * because waiting for a lock could cause a deadlock.
 */
function freeOf(links: readonly Pick<DueLink, 'fileId' | 'change'>[]): Sql {
  return sql`SELECT l.file_id AS id FROM archive_link l
    JOIN unnest(${links.map(({ fileId }) => fileId)}::bigint[], ${links.map(({ change }) => change)}::bigint[]) AS s (id, change)
      ON s.id = l.file_id AND s.change = l.change
    ${locking.freeLink}`;
}

/**
 * Stores links to copies that were just restored, and claims the links' rows. The caller can then make the links before
 * users are notified that their files are on disk.
 * @returns the links that the caller can make
 */
export async function recordEarlyLinks(
  ctx: Context,
  copies: readonly { fileId: bigint; diskId: number }[],
): Promise<(Link & Pick<DueLink, 'fileId'>)[]> {
  return await ctx.db.rows<Link & Pick<DueLink, 'fileId'>>(
    sql`INSERT INTO archive_link AS l (file_id, at, target, is_there, check_at)
        SELECT f.id, ${wantedAt}, ${wantedTarget}, true, ${addSeconds(ctx.now(), CLAIM_SECONDS)}::timestamp
        FROM unnest(${copies.map(({ fileId }) => fileId)}::bigint[], ${copies.map(({ diskId }) => diskId)}::int[]) AS m (id, disk_id)
          JOIN tape_file f ON f.id = m.id JOIN restore_disk k ON k.id = m.disk_id JOIN link_root r ON r.path IS NOT NULL
        WHERE f.stage = 'RESTORING' ORDER BY f.id
        ON CONFLICT (file_id) DO UPDATE SET at = excluded.at, target = excluded.target, is_there = true,
          check_at = excluded.check_at, change = l.change + 1
          WHERE NOT l.is_there OR (l.at = excluded.at AND l.target = excluded.target)
        RETURNING l.file_id AS "fileId", l.at, l.target`,
  );
}

export async function readNoted(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, Link>> {
  if (fileIds.length === 0) return new Map();
  const rows = await ctx.db.rows<Link & Pick<DueLink, 'fileId'>>(
    sql`SELECT l.file_id AS "fileId", l.at, l.target FROM archive_link l
        WHERE l.file_id = ANY(${fileIds}::bigint[]) AND l.is_there AND l.at IS NOT NULL`,
  );
  return new Map(rows.map((row) => [row.fileId, row]));
}

export type RecordedLink = Link & Pick<DueLink, 'fileId' | 'change'> & Pick<SettledLink, 'problem'>;

export async function readLinks(ctx: Context, page: { after: bigint; limit: number }): Promise<RecordedLink[]> {
  return await ctx.db.rows<RecordedLink>(
    sql`SELECT l.file_id AS "fileId", l.change, l.at, l.target, l.problem FROM archive_link l
        WHERE l.is_there AND (l.check_at IS NULL OR l.problem IS NOT NULL) AND l.file_id > ${page.after}
        ORDER BY l.file_id LIMIT ${page.limit}`,
  );
}

/**
 * Returns the change numbers of links by file id. Marking a link's row increases the link's change number. A retry
 * after a failed attempt leaves the change number unchanged.
 */
export async function readChanges(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, bigint>> {
  if (fileIds.length === 0) return new Map();
  const rows = await ctx.db.rows<Pick<DueLink, 'fileId' | 'change'>>(
    sql`SELECT l.file_id AS "fileId", l.change FROM archive_link l WHERE l.file_id = ANY(${fileIds}::bigint[])`,
  );
  return new Map(rows.map(({ fileId, change }) => [fileId, change]));
}

export const isLinked: Sql = sql`EXISTS (SELECT FROM archive_link l WHERE l.file_id = f.id AND l.is_there)`;

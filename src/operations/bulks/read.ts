/** How far a bulk is: as a whole, and each of its files. Who sees the requests of its quota sees it. */
import type { Context } from '../../context.js';
import { askAtLength, type ListPages, readList } from '../../database/snapshot.js';
import { type Sql, sql } from '../../database/sql.js';
import { NotFoundError, quote } from '../../errors.js';
import type { BulkProblem } from '../../generated/prisma/enums.js';
import { isLive } from '../conditions.js';
import { allow, isVisibleQuota } from '../policy.js';

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

/** A request as REST answers it: all of it by one statement, from one snapshot, where its paths fit a page. */
import type { Context } from '../../context.js';
import { prepared } from '../../database/prepared.js';
import { PAGE } from '../../database/snapshot.js';
import { raw, sql } from '../../database/sql.js';
import { mayPathOfRequest } from '../access/paths.js';
import { allow, isVisibleQuota } from '../policy.js';
import { notFound } from './rows.js';

export interface RequestWithPaths {
  id: number;
  /** User. */
  quota: string;
  pattern: string;
  label: string;
  requestDate: string;
  retention: string;
  notifyOnFirstFile: string | null;
  notifyOnLastFile: string | null;
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
  /**
   * Its paths in the order in which it took them, as JSON strings with commas between (lists.ts says which they are); null where
   * they are more than a page.
   */
  paths: string | null;
}

/** By its id, past its retention too: history is kept. @throws NotFoundError */
export async function getRequestWithPaths(ctx: Context, id: number): Promise<RequestWithPaths> {
  allow(ctx, 'getRequest');
  const { rows } = await ctx.db.pool.query<RequestWithPaths>(prepared(byId(ctx, id)));
  const [request] = rows;
  if (!request) throw notFound(id);
  return request;
}

const MOST = raw(String(PAGE));
const ONE_MORE = raw(String(PAGE + 1));

/** One more than a page of each kind tells that there is more, and no more is read than that, whatever the counts of the request say. */
const byId = (ctx: Context, id: number) => sql`
  SELECT r.id, q."user" AS quota, r.pattern, r.label, r.request_date AS "requestDate", r.retention,
    r.notify_on_first_file AS "notifyOnFirstFile", r.notify_on_last_file AS "notifyOnLastFile",
    r.tapestore_request_start AS "tapestoreRequestStart", r.tapestore_request_end AS "tapestoreRequestEnd",
    r.first_files_on_disk AS "firstFilesOnDisk", r.last_files_on_disk AS "lastFilesOnDisk", p.paths
  FROM request r JOIN quota q ON q.id = r.quota_id
    LEFT JOIN LATERAL (
      SELECT CASE WHEN count(*) <= ${MOST}
        THEN coalesce(string_agg(to_json(l.path)::text, ',' ORDER BY l.ordinal) FILTER (WHERE l.is_seen), '') END AS paths
      FROM (
        SELECT f.path, h.ordinal, h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)} AS is_seen
        FROM (SELECT file_id, ordinal, state FROM any_hold WHERE request_id = r.id LIMIT ${ONE_MORE}) h
          JOIN tape_file f ON f.id = h.file_id
        UNION ALL
        SELECT f.path, f.ordinal, ${mayPathOfRequest(ctx)}
        FROM (SELECT path, ordinal FROM any_awaited_path WHERE request_id = r.id LIMIT ${ONE_MORE}) f
      ) l
    ) p ON r.files_total <= ${MOST}
  WHERE r.id = ${id}::int AND ${isVisibleQuota(ctx)}`;

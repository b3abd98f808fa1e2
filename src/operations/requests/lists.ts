/** Lists of requests, and of what is in one. */
import type { Context } from '../../context.js';
import { withSnapshot } from '../../database/snapshot.js';
import type { Prisma } from '../../generated/prisma/client.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { IS_LIVE } from '../conditions.js';
import { checkText } from '../input.js';
import { isEnded, type RequestQuery } from './rows.js';

export interface ListRequestsInput {
  /** User. */
  quota?: string | null | undefined;
  /** Live ones unless given; a request past its retention is in no list that does not ask for ended ones. */
  states?: readonly RequestState[] | null | undefined;
}

export interface RequestRow {
  id: number;
  quota: string;
  requestDate: string;
  retention: string;
  label: string;
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
}

const LIVE_STATES: readonly RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];

/** Requests, oldest first: counted, by the page, or all of them from one snapshot. */
export function listRequests(ctx: Context, input: ListRequestsInput) {
  const states = input.states ?? LIVE_STATES;
  const user = input.quota ? checkText('quota', input.quota) : undefined;
  const now = ctx.now();
  const where: Prisma.RequestWhereInput = {
    OR: [
      { state: { in: states.filter((state) => !isEnded(state)) }, retention: { gt: now } },
      { state: { in: states.filter(isEnded) } },
    ],
    ...(user === undefined ? {} : { quota: { user } }),
  };
  return {
    count: () => ctx.db.prisma.request.count({ where }),
    page: (query: RequestQuery) =>
      ctx.db.prisma.request.findMany({ ...(query as object), where, orderBy: { id: 'asc' } }),
    stream: <T>(consume: (pages: AsyncIterable<RequestRow[]>) => Promise<T>) =>
      withSnapshot(ctx.db.streamPool, (snapshot) =>
        consume(
          snapshot.stream<RequestRow>(
            `SELECT r.id, q."user" AS quota, r.request_date AS "requestDate", r.retention, r.label,
               r.tapestore_request_start AS "tapestoreRequestStart", r.tapestore_request_end AS "tapestoreRequestEnd",
               r.first_files_on_disk AS "firstFilesOnDisk", r.last_files_on_disk AS "lastFilesOnDisk"
             FROM request r JOIN quota q ON q.id = r.quota_id
             WHERE r.state = ANY($1::"RequestState"[]) AND (NOT (${IS_LIVE}) OR r.retention > $2)
               AND ($3::text IS NULL OR q."user" = $3)
             ORDER BY r.id`,
            [states, now, user ?? null],
          ),
        ),
      ),
  };
}

/**
 * Paths of a request, in the order in which it took them: files that it holds or held when it ended, and paths that it
 * waits for. A file that was released is no longer in the request.
 */
export async function streamRequestPaths<T>(
  ctx: Context,
  requestId: number,
  consume: (pages: AsyncIterable<{ path: string }[]>) => Promise<T>,
): Promise<T> {
  return await withSnapshot(ctx.db.streamPool, (snapshot) =>
    consume(
      snapshot.stream<{ path: string }>(
        `SELECT path FROM (
           SELECT f.path, h.ordinal FROM hold h JOIN tape_file f ON f.id = h.file_id
           WHERE h.request_id = $1 AND h.state <> 'RELEASED'
           UNION ALL SELECT path, ordinal FROM awaited_path WHERE request_id = $1
         ) p ORDER BY ordinal`,
        [requestId],
      ),
    ),
  );
}

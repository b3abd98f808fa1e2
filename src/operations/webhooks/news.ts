/**
 * What webhooks are told of requests follows from the events, which are written in the transactions that make them true: they are looked
 * through in order, from where the last look ended, and how far that was is written together with the messages. So each change of a request
 * is told once, whoever is killed when, and nobody who changes one waits for it.
 */
import type { Context } from '../../context.js';
import { tryWebhooks } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { EventTable, isStageEvent, type ProgressEvent } from '../../event-table.js';
import type { RequestState, WebhookEvent } from '../../generated/prisma/enums.js';
import { isBefore } from '../../time.js';
import { describeRequest, eventTypes, type NewMessage, queueMessages } from './messages.js';

/** Who is told of the quota: a condition on webhooks `w`. */
export const tellsOf = (quotaId: Sql): Sql => sql`(w.quota_id IS NULL OR w.quota_id = ${quotaId})`;

/** Of an event `e` that some webhook might be told of, switched on or not: it may be on when the next one comes. */
const isWatched = sql`e.request_id IS NOT NULL AND EXISTS (SELECT FROM request r JOIN webhook w ON ${tellsOf(sql`r.quota_id`)}
  WHERE r.id = e.request_id)`;

/** Looks through what is new, a step after the other. Of several engines one does. */
export async function queueWebhooks(ctx: Context, stop: AbortSignal): Promise<void> {
  const { rowCount } = await ctx.db.pool.query(sql`SELECT FROM webhook LIMIT 1`);
  if (rowCount === 0) return;
  await ctx.events.newestId(); // what is committed has its numbers by then
  for (let isMore = true; isMore && !stop.aborted; ) {
    isMore = await transaction(ctx.db.pool, 'queueWebhooks', async (tx) => await lookThroughNext(ctx, tx));
  }
}

/** @returns whether there may be more */
async function lookThroughNext(ctx: Context, tx: Transaction): Promise<boolean> {
  if (!(await tryWebhooks(tx))) return false;
  const [cursor] = await tx.query<{ last: bigint }>(sql`SELECT last FROM webhook_cursor`);
  if (!cursor) return false;
  const table = new EventTable((statement) => tx.query(statement));
  const range = await table.nextRange(cursor.last);
  if (!range) return false;
  if (range.isBroken) ctx.log.error({ after: String(cursor.last) }, 'events went before webhooks were told of them');
  const events = await table.readRange(range, isWatched);
  const ofRequests = events.filter((event): event is ProgressEvent => !isStageEvent(event));
  await tellOf(ctx, tx, ofRequests);
  await tx.query(sql`UPDATE webhook_cursor SET last = ${range.upTo}`);
  return true;
}

interface Request {
  id: number;
  quotaId: number;
  user: string;
  label: string;
  retention: string;
  seen: Seen | null;
}

/** What was told of a request, or would have been, in the life that it has: one that is revived begins another. */
interface Seen {
  state: RequestState;
  isStarted: boolean;
  hasFirstFile: boolean;
}

interface Webhook {
  id: number;
  quotaId: number | null;
  events: WebhookEvent[];
  madeAt: string;
}

const states: Partial<Record<RequestState, WebhookEvent>> = {
  COMPLETED: 'REQUEST_FINISHED',
  PARTIAL: 'REQUEST_FAILED',
  EXPIRED: 'REQUEST_ENDED',
  CANCELLED: 'REQUEST_ENDED',
};

/** @param events of watched requests, in order */
async function tellOf(ctx: Context, tx: Transaction, events: readonly ProgressEvent[]): Promise<void> {
  if (events.length === 0) return;
  const requests = await readRequests(tx, [...new Set(events.map(({ requestId }) => requestId))]);
  const quotas = [...new Set([...requests.values()].map(({ quotaId }) => quotaId))];
  const webhooks = await tx.query<Webhook>(
    sql`SELECT w.id, w.quota_id AS "quotaId", w.events::text[] AS events, w.made_at AS "madeAt"
        FROM webhook w WHERE w.disabled_at IS NULL AND (w.quota_id IS NULL OR w.quota_id = ANY(${quotas}::int[])) ORDER BY w.id`,
  );
  const messages: NewMessage[] = [];
  for (const event of events) {
    const request = requests.get(event.requestId);
    if (!request) continue;
    for (const news of newsOf(event, request)) messages.push(...tell(ctx, webhooks, { news, event, request }));
  }
  await queueMessages(ctx, tx, messages);
  await noteSeen(tx, requests);
}

async function readRequests(tx: Transaction, ids: readonly number[]): Promise<Map<number, Request>> {
  const rows = await tx.query<Request & Seen & { isSeen: boolean }>(
    sql`SELECT r.id, r.quota_id AS "quotaId", q."user", r.label, r.retention, s.request_id IS NOT NULL AS "isSeen", s.state, s.is_started AS "isStarted",
          s.has_first_file AS "hasFirstFile"
        FROM request r JOIN quota q ON q.id = r.quota_id LEFT JOIN webhook_request s ON s.request_id = r.id
        WHERE r.id = ANY(${ids}::int[])`,
  );
  return new Map(
    rows.map(({ isSeen, state, isStarted, hasFirstFile, ...request }) => [
      request.id,
      { ...request, seen: isSeen ? { state, isStarted, hasFirstFile } : null },
    ]),
  );
}

/** What an event brings that was not told; the request is noted as told. */
function newsOf({ state, filesOnDisk }: ProgressEvent, request: Request): WebhookEvent[] {
  const { seen } = request;
  const isAnew = seen !== null && isEnd(seen.state) && !isEnd(state);
  const [wasStarted, hadFirstFile] = isAnew ? [false, false] : [seen?.isStarted ?? false, seen?.hasFirstFile ?? false];
  const isStarted = wasStarted || state === 'RESTORING';
  const hasFirstFile = hadFirstFile || filesOnDisk > 0;
  request.seen = { state, isStarted, hasFirstFile };
  const news: WebhookEvent[] = [];
  if (isStarted && !wasStarted) news.push('REQUEST_STARTED');
  if (hasFirstFile && !hadFirstFile) news.push('REQUEST_FIRST_FILE');
  const due = states[state];
  if (due && seen?.state !== state) news.push(due);
  return news;
}

const isEnd = (state: RequestState): boolean => states[state] === 'REQUEST_ENDED';

function tell(
  ctx: Context,
  webhooks: readonly Webhook[],
  { news, event, request }: { news: WebhookEvent; event: ProgressEvent; request: Request },
): NewMessage[] {
  const told = webhooks.filter(
    ({ quotaId, events, madeAt }) =>
      (quotaId === null || quotaId === request.quotaId) && events.includes(news) && !isBefore(event.at, madeAt),
  );
  const { quotaId, user, label, retention } = request;
  return told.map(({ id }) => ({
    webhookId: id,
    type: eventTypes[news],
    key: String(event.id),
    at: event.at,
    quotaId,
    requestId: request.id,
    data: describeRequest(ctx, { ...event, user, label, retention }),
  }));
}

async function noteSeen(tx: Transaction, requests: ReadonlyMap<number, Request>): Promise<void> {
  const rows = [...requests].flatMap(([id, { seen }]) => (seen ? [{ id, ...seen }] : []));
  await tx.query(
    sql`INSERT INTO webhook_request (request_id, state, is_started, has_first_file)
        SELECT * FROM unnest(${rows.map(({ id }) => id)}::int[], ${rows.map(({ state }) => state)}::"RequestState"[],
          ${rows.map(({ isStarted }) => isStarted)}::boolean[], ${rows.map(({ hasFirstFile }) => hasFirstFile)}::boolean[])
        ON CONFLICT (request_id) DO UPDATE SET state = excluded.state, is_started = excluded.is_started,
          has_first_file = excluded.has_first_file`,
  );
}

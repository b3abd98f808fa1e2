/**
 * Queues webhook messages for request events, in event order. One transaction stores the messages and the position of
 * the last processed event, so each event is reported exactly once, even after a crash. A transaction that changes a
 * request never waits for webhooks.
 */

import { createHmac } from 'node:crypto';
import { formatJson } from '../../../core/text/json.js';
import { addSeconds, isBefore } from '../../../core/time.js';
import { tryAdvisory } from '../../../db/locks.js';
import { type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import { EventTable, isStageEvent, type ProgressEvent } from '../../../events/event-table.js';
import type { RequestState, WebhookEvent } from '../../../generated/prisma/enums.js';
import { isLive } from '../../conditions.js';
import type { Context } from '../../context.js';
import { linkToRequest } from '../mail/mail.js';

const receivesFrom = (quotaId: Sql): Sql => sql`(w.quota_id IS NULL OR w.quota_id = ${quotaId})`;

/**
 * SQL condition that is true if a webhook might have to report the event `e`. Disabled webhooks count too, because an
 * operator or manager might enable them at any time.
 */
const isWatched = sql`e.request_id IS NOT NULL AND EXISTS (SELECT FROM request r JOIN webhook w ON ${receivesFrom(sql`r.quota_id`)}
  WHERE r.id = e.request_id)`;

/** Queues messages for new events, in small transactions. Two engines never process events concurrently. */
export async function queueWebhooks(ctx: Context, stop: AbortSignal): Promise<void> {
  const { rowCount } = await ctx.db.pool.query(sql`SELECT FROM webhook LIMIT 1`);
  if (rowCount === 0) return;
  await ctx.events.newestId();
  for (let isMore = true; isMore && !stop.aborted; ) {
    isMore = await transaction(ctx.db.pool, 'queueWebhooks', async (tx) => await processNext(ctx, tx));
  }
}

async function processNext(ctx: Context, tx: Transaction): Promise<boolean> {
  if (!(await tryAdvisory(tx, 'webhooks'))) return false;
  const [cursor] = await tx.query<{ last: bigint }>(sql`SELECT last FROM webhook_cursor`);
  if (!cursor) return false;
  const table = new EventTable((statement) => tx.query(statement));
  const range = await table.nextRange(cursor.last);
  if (!range) return false;
  if (range.isBroken)
    ctx.log.error({ after: String(cursor.last) }, 'some events were removed before they were sent to webhooks');
  const events = await table.readRange(range, isWatched);
  const ofRequests = events.filter((event): event is ProgressEvent => !isStageEvent(event));
  await reportEvents(ctx, tx, ofRequests);
  await tx.query(sql`UPDATE webhook_cursor SET last = ${range.upTo}`);
  return true;
}

interface Request {
  id: number;
  quotaId: number;
  user: string;
  label: string;
  retention: string;
  seen: SeenProgress | null;
}

/** A request's state as last reported to webhooks. Reports from before the request's last revival are ignored. */
interface SeenProgress {
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
  COMPLETED: 'REQUEST_COMPLETED',
  PARTIAL: 'REQUEST_PARTIAL',
  EXPIRED: 'REQUEST_ENDED',
  CANCELLED: 'REQUEST_ENDED',
};

async function reportEvents(ctx: Context, tx: Transaction, events: readonly ProgressEvent[]): Promise<void> {
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
    for (const news of newsOf(event, request)) messages.push(...messagesOf(ctx, webhooks, { news, event, request }));
  }
  await queueMessages(ctx, tx, messages);
  await recordSeen(tx, requests);
}

async function readRequests(tx: Transaction, ids: readonly number[]): Promise<Map<number, Request>> {
  const rows = await tx.query<Request & SeenProgress & { isSeen: boolean }>(
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

function messagesOf(
  ctx: Context,
  webhooks: readonly Webhook[],
  { news, event, request }: { news: WebhookEvent; event: ProgressEvent; request: Request },
): NewMessage[] {
  const receivers = webhooks.filter(
    ({ quotaId, events, madeAt }) =>
      (quotaId === null || quotaId === request.quotaId) && events.includes(news) && !isBefore(event.at, madeAt),
  );
  const { quotaId, user, label, retention } = request;
  return receivers.map(({ id }) => ({
    webhookId: id,
    type: eventTypes[news],
    key: String(event.id),
    at: event.at,
    quotaId,
    requestId: request.id,
    data: describeRequest(ctx, { ...event, user, label, retention }),
  }));
}

async function recordSeen(tx: Transaction, requests: ReadonlyMap<number, Request>): Promise<void> {
  const rows = [...requests].flatMap(([id, { seen }]) => (seen ? [{ id, ...seen }] : []));
  await tx.query(
    sql`INSERT INTO webhook_request (request_id, state, is_started, has_first_file)
        SELECT * FROM unnest(${rows.map(({ id }) => id)}::int[], ${rows.map(({ state }) => state)}::"RequestState"[],
          ${rows.map(({ isStarted }) => isStarted)}::boolean[], ${rows.map(({ hasFirstFile }) => hasFirstFile)}::boolean[])
        ON CONFLICT (request_id) DO UPDATE SET state = excluded.state, is_started = excluded.is_started,
          has_first_file = excluded.has_first_file`,
  );
}

const BATCH = 200;

/**
 * A quota counts as nearly full from this used fraction upwards, and until the used fraction falls below `ROOM_AGAIN`.
 */
const NEARLY_FULL = 0.9;
const ROOM_AGAIN = 0.8;

/** Queues messages about requests that expire soon and quotas that are nearly full. */
export async function queueNearEnds(ctx: Context, stop: AbortSignal): Promise<void> {
  for (const step of [reportExpiring, reportNearlyFull]) {
    for (let count = BATCH; count === BATCH && !stop.aborted; ) {
      count = await transaction(ctx.db.pool, 'queueWebhooks', async (tx) => {
        return (await tryAdvisory(tx, 'webhooks')) ? await step(ctx, tx) : 0;
      });
    }
  }
}

const receiversOf = (event: WebhookEvent, quotaId: Sql): Sql => sql`ARRAY(SELECT w.id FROM webhook w
  WHERE w.disabled_at IS NULL AND ${event}::"WebhookEvent" = ANY(w.events) AND ${receivesFrom(quotaId)} ORDER BY w.id)`;

async function reportExpiring(ctx: Context, tx: Transaction): Promise<number> {
  const now = ctx.now();
  const seconds = ctx.config.expiryNoticeHours * 3600;
  const rows = await tx.query<ReportedRequest & { quotaId: number; webhooks: number[] }>(
    sql`SELECT * FROM (
          SELECT r.id AS "requestId", r.quota_id AS "quotaId", q."user", r.label, r.state, r.files_total AS "filesTotal",
            r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed", r.bytes_total AS "bytesTotal",
            r.bytes_on_disk AS "bytesOnDisk", r.retention, ${receiversOf('REQUEST_EXPIRING', sql`r.quota_id`)} AS webhooks
          FROM request r JOIN quota q ON q.id = r.quota_id JOIN webhook_request s ON s.request_id = r.id
          WHERE r.retention > ${now}::timestamp AND r.retention <= ${addSeconds(now, seconds)}::timestamp AND ${isLive}
            AND r.retention > r.request_date + ${seconds}::float8 * interval '1 second' AND r.files_total > r.files_failed
            AND s.expires_at IS DISTINCT FROM r.retention
        ) r WHERE r.webhooks <> '{}' ORDER BY r.retention LIMIT ${BATCH}`,
  );
  await queueMessages(
    ctx,
    tx,
    rows.flatMap(({ quotaId, webhooks, ...request }) => {
      const data = describeRequest(ctx, request);
      const { requestId, retention } = request;
      const key = `${requestId} ${retention}`;
      const about = { type: eventTypes.REQUEST_EXPIRING, key, at: now, quotaId, requestId, data };
      return webhooks.map((webhookId) => ({ webhookId, ...about }));
    }),
  );
  await tx.query(
    sql`UPDATE webhook_request s SET expires_at = t.retention
        FROM unnest(${rows.map((row) => row.requestId)}::int[], ${rows.map((row) => row.retention)}::timestamp[]) AS t (id, retention)
        WHERE s.request_id = t.id`,
  );
  return rows.length;
}

async function reportNearlyFull(ctx: Context, tx: Transaction): Promise<number> {
  const now = ctx.now();
  const usedOf = (part: number) => sql`q.size::numeric * ${part}::numeric`;
  await tx.query(
    sql`DELETE FROM nearly_full_quota n USING quota q
        WHERE q.id = n.quota_id AND (q.used < ${usedOf(ROOM_AGAIN)} OR q.removed_at IS NOT NULL)`,
  );
  const rows = await tx.query<ToldQuota & { id: number; webhooks: number[] }>(
    sql`SELECT * FROM (
          SELECT q.id, q."user", q.size, q.used, ${receiversOf('QUOTA_NEARLY_FULL', sql`q.id`)} AS webhooks FROM quota q
          WHERE q.removed_at IS NULL AND q.used > 0 AND q.used >= ${usedOf(NEARLY_FULL)}
            AND NOT EXISTS (SELECT FROM nearly_full_quota n WHERE n.quota_id = q.id)
        ) q WHERE q.webhooks <> '{}' ORDER BY q.id LIMIT ${BATCH}`,
  );
  await queueMessages(
    ctx,
    tx,
    rows.flatMap(({ id, webhooks, ...data }) => {
      const key = `${id} ${now}`;
      const about = { type: eventTypes.QUOTA_NEARLY_FULL, key, at: now, quotaId: id, requestId: null, data };
      return webhooks.map((webhookId) => ({ webhookId, ...about }));
    }),
  );
  await tx.query(
    sql`INSERT INTO nearly_full_quota (quota_id, since) SELECT i.id, ${now} FROM unnest(${rows.map((row) => row.id)}::int[]) AS i (id)
        ON CONFLICT (quota_id) DO NOTHING`,
  );
  return rows.length;
}

export const eventTypes: Record<WebhookEvent, string> = {
  REQUEST_STARTED: 'request.started',
  REQUEST_FIRST_FILE: 'request.first_file',
  REQUEST_COMPLETED: 'request.completed',
  REQUEST_PARTIAL: 'request.partial',
  REQUEST_EXPIRING: 'request.expiring',
  REQUEST_ENDED: 'request.ended',
  QUOTA_NEARLY_FULL: 'quota.nearly_full',
};

export const TEST_TYPE = 'webhook.test';

interface ReportedRequest {
  requestId: number;
  user: string;
  label: string;
  state: RequestState;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
  retention: string;
}

interface ToldQuota {
  user: string;
  size: bigint;
  used: bigint;
}

interface NewMessage {
  webhookId: number;
  type: string;
  /**
   * Key of the reported change, unique among a webhook's messages of the same type. Messages with equal keys get equal
   * ids.
   */
  key: string;
  at: string;
  quotaId: number | null;
  requestId: number | null;
  data: object;
}

function describeRequest({ config }: Context, request: ReportedRequest): object {
  const { requestId, user, label, state, retention } = request;
  const { filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk } = request;
  const figures = { filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk };
  const link = linkToRequest(config, requestId);
  return { requestId, user, label, state, ...figures, retention: zoned(retention), ...(link ? { link } : {}) };
}

const zoned = (time: string): string => `${time}Z`;

/**
 * Queues messages about a change, in the same transaction as the change. A message's id is derived from the webhook's
 * secret, the type and the key. Therefore, a message has the same id after a database restore, and ids differ between
 * sites.
 */
export async function queueMessages(ctx: Context, tx: Transaction, messages: readonly NewMessage[]): Promise<void> {
  if (messages.length === 0) return;
  const now = ctx.now();
  const webhooks = await tx.query<{ id: number; secret: string }>(
    sql`SELECT w.id, w.secret FROM webhook w WHERE w.id = ANY(${[...new Set(messages.map((each) => each.webhookId))]}::int[])`,
  );
  const secrets = new Map(webhooks.map(({ id, secret }) => [id, secret]));
  const rows = messages.flatMap(({ webhookId, type, key, at, data, ...about }) => {
    const secret = secrets.get(webhookId);
    if (secret === undefined) return [];
    const messageId = `msg_${createHmac('sha256', secret).update(`${type} ${key}`).digest('hex').slice(0, 32)}`;
    return { ...about, webhookId, type, messageId, body: formatJson({ type, timestamp: zoned(at), data }) };
  });
  const column = (name: keyof (typeof rows)[number]) => rows.map((row) => row[name]);
  await tx.query(
    sql`INSERT INTO webhook_message (webhook_id, message_id, type, quota_id, request_id, body, created_at, next_try_at)
        SELECT m.webhook_id, m.message_id, m.type, m.quota_id, m.request_id, m.body, ${now}, ${now}
        FROM unnest(${column('webhookId')}::int[], ${column('messageId')}::text[], ${column('type')}::text[],
          ${column('quotaId')}::int[], ${column('requestId')}::int[], ${column('body')}::text[])
          WITH ORDINALITY AS m (webhook_id, message_id, type, quota_id, request_id, body, n) ORDER BY m.n
        ON CONFLICT (message_id) DO NOTHING`,
  );
  await tx.query(sql`SELECT pg_notify('tapegate', 'webhook')`);
}

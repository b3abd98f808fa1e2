/** Webhooks as they are shown, and found by whoever manages their quotas. */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { allOf, empty, raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { NotFoundError } from '../../errors.js';
import type { WebhookEvent, WebhookMessageState } from '../../generated/prisma/enums.js';
import { allow, isManagedQuota } from '../policy.js';

/** Everything of a webhook but its secret. */
export interface ShownWebhook {
  id: number;
  /** Of the quota; null: it is told of all. */
  user: string | null;
  url: string;
  events: WebhookEvent[];
  note: string;
  madeAt: string;
  madeBy: string;
  /** Null: it is on. */
  disabledAt: string | null;
  disabledReason: string | null;
  /** Since when, how often in a row, and why; null and 0 while it takes what it is told. */
  failingSince: string | null;
  failures: number;
  lastError: string | null;
  /** When it took a message last. */
  sentAt: string | null;
  nextTryAt: string;
  /** Messages that are still to be sent. */
  waiting: number;
}

const columns = sql`w.id, q."user", w.url, w.events::text[] AS events, w.note, w.made_at AS "madeAt", w.made_by AS "madeBy",
  w.disabled_at AS "disabledAt", w.disabled_reason AS "disabledReason", w.failing_since AS "failingSince", w.failures,
  w.last_error AS "lastError", w.sent_at AS "sentAt", w.next_try_at AS "nextTryAt",
  (SELECT count(*)::int FROM webhook_message m WHERE m.webhook_id = w.id AND m.state = 'PENDING') AS waiting`;

/** By ids, or those between two others. */
export interface WebhookPage {
  after?: number | undefined;
  before?: number | undefined;
  limit: number;
  /** From the other end of the list. */
  inverted?: boolean;
}

/** Those of the quotas that the caller manages, and for operators all, in the order of their ids. */
export async function listWebhooks(ctx: Context, page: WebhookPage): Promise<ShownWebhook[]> {
  allow(ctx, 'listWebhooks');
  const conditions: Sql[] = [isManagedQuota(ctx)];
  if (page.after !== undefined) conditions.push(sql`w.id > ${page.after}::bigint`);
  if (page.before !== undefined) conditions.push(sql`w.id < ${page.before}::bigint`);
  const { rows } = await ctx.db.pool.query<ShownWebhook>(
    sql`SELECT ${columns} FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id
        WHERE ${allOf(conditions)} ORDER BY w.id ${page.inverted ? raw('DESC') : empty} LIMIT ${page.limit}`,
  );
  return rows;
}

/** @throws NotFoundError, also of one that the caller does not manage */
export async function readWebhook(ctx: Context, id: number): Promise<ShownWebhook> {
  const { rows } = await ctx.db.pool.query<ShownWebhook>(
    sql`SELECT ${columns} FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id WHERE w.id = ${id} AND ${isManagedQuota(ctx)}`,
  );
  return found(rows[0], id);
}

/** One that is about to be changed. @throws NotFoundError, also of one that the caller does not manage */
export async function lockWebhook(ctx: Context, tx: Transaction, id: number): Promise<void> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT w.id FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id WHERE w.id = ${id} AND ${isManagedQuota(ctx)} ${locking.webhook}`,
  );
  found(rows[0], id);
}

function found<Row>(row: Row | undefined, id: number): Row {
  if (row === undefined) throw new NotFoundError(`there is no webhook with id ${id}`);
  return row;
}

export interface ShownMessage {
  id: bigint;
  messageId: string;
  type: string;
  requestId: number | null;
  body: string;
  state: WebhookMessageState;
  attempts: number;
  createdAt: string;
  /** Of what is still to be sent: not before. */
  nextTryAt: string;
  sentAt: string | null;
  lastError: string | null;
}

export interface MessagePage {
  webhookId: number;
  after?: bigint | undefined;
  before?: bigint | undefined;
  limit: number;
  inverted?: boolean;
}

/** What one was told of late, and is to be told, newest first. @throws NotFoundError */
export async function listWebhookMessages(ctx: Context, page: MessagePage): Promise<ShownMessage[]> {
  allow(ctx, 'listWebhookMessages');
  await readWebhook(ctx, page.webhookId);
  const conditions: Sql[] = [sql`m.webhook_id = ${page.webhookId}`];
  if (page.after !== undefined) conditions.push(sql`m.id < ${page.after}`);
  if (page.before !== undefined) conditions.push(sql`m.id > ${page.before}`);
  const { rows } = await ctx.db.pool.query<ShownMessage>(
    sql`SELECT m.id, m.message_id AS "messageId", m.type, m.request_id AS "requestId", m.body, m.state, m.attempts,
          m.created_at AS "createdAt", m.next_try_at AS "nextTryAt", m.sent_at AS "sentAt", m.last_error AS "lastError"
        FROM webhook_message m WHERE ${allOf(conditions)} ORDER BY m.id ${page.inverted ? empty : raw('DESC')} LIMIT ${page.limit}`,
  );
  return rows;
}

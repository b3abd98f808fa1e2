/** What webhooks are told: the bodies of messages, exactly as they go out, in the form of the Standard Webhooks specification. */
import { randomUUID } from 'node:crypto';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import type { RequestState, WebhookEvent } from '../../generated/prisma/enums.js';
import { linkToRequest } from '../../mail.js';

/** As the events are called in messages. */
export const eventTypes: Record<WebhookEvent, string> = {
  REQUEST_STARTED: 'request.started',
  REQUEST_FIRST_FILE: 'request.first_file',
  REQUEST_FINISHED: 'request.finished',
  REQUEST_FAILED: 'request.failed',
  REQUEST_EXPIRING: 'request.expiring',
  REQUEST_ENDED: 'request.ended',
  QUOTA_NEARLY_FULL: 'quota.nearly_full',
};

/** Of a message that its owner has asked for, to see whether it comes. */
export const TEST_TYPE = 'webhook.test';

/** A request as a message tells of it, at the time of the event; sizes are bytes. */
export interface ToldRequest {
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

export interface ToldQuota {
  user: string;
  size: bigint;
  used: bigint;
}

export interface NewMessage {
  webhookId: number;
  type: string;
  /** When it happened. */
  at: string;
  /** Of whom it tells, and of which request; null where it tells of none. */
  quotaId: number | null;
  requestId: number | null;
  data: object;
}

/** @returns `data` of a message about a request */
export function describeRequest({ config }: Context, request: ToldRequest): object {
  const { requestId, user, label, state, retention } = request;
  const { filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk } = request;
  const figures = { filesTotal, filesOnDisk, filesFailed, bytesTotal, bytesOnDisk };
  const link = linkToRequest(config, requestId);
  return { requestId, user, label, state, ...figures, retention: zoned(retention), ...(link ? { link } : {}) };
}

const zoned = (time: string): string => `${time}Z`;

/** In the transaction of what they tell of. Whoever sends is rung for. */
export async function queueMessages(ctx: Context, tx: Transaction, messages: readonly NewMessage[]): Promise<void> {
  if (messages.length === 0) return;
  const now = ctx.now();
  const rows = messages.map(({ type, at, data }) => ({
    messageId: `msg_${randomUUID().replaceAll('-', '')}`,
    body: JSON.stringify({ type, timestamp: zoned(at), data }),
  }));
  await tx.query(
    sql`INSERT INTO webhook_message (webhook_id, message_id, type, quota_id, request_id, body, created_at, next_try_at)
        SELECT m.webhook_id, m.message_id, m.type, m.quota_id, m.request_id, m.body, ${now}, ${now}
        FROM unnest(${messages.map((each) => each.webhookId)}::int[], ${rows.map((row) => row.messageId)}::text[],
          ${messages.map((each) => each.type)}::text[], ${messages.map((each) => each.quotaId)}::int[],
          ${messages.map((each) => each.requestId)}::int[], ${rows.map((row) => row.body)}::text[])
          WITH ORDINALITY AS m (webhook_id, message_id, type, quota_id, request_id, body, n) ORDER BY m.n`,
  );
  await tx.query(sql`SELECT pg_notify('tapegate', 'webhook')`);
}

/** What webhooks are told: the bodies of messages, exactly as they go out, in the form of the Standard Webhooks specification. */
import { createHmac } from 'node:crypto';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import type { RequestState, WebhookEvent } from '../../generated/prisma/enums.js';
import { formatJson } from '../../json.js';
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
  /** What it tells of, of that type and webhook: told another time, it has the same id. */
  key: string;
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

/**
 * In the transaction of what they tell of. Whoever sends is rung for. The id of a message follows from the secret of its webhook and from
 * what it tells of, so that it is the same where a database was put back to a state before, and is no other site's.
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
    if (secret === undefined) return []; // it was removed meanwhile
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

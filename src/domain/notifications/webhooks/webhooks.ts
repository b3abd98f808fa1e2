/**
 * Creates, changes and removes webhooks. The managers of a quota manage the quota's webhooks. Operators manage the
 * webhooks that report on all quotas.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { ownerOf, userOwner } from '../../../core/caller.js';
import { ForbiddenError, InvalidInputError, NotFoundError, quote, UnknownUserError } from '../../../core/errors.js';
import { createTargets, findTargetProblem } from '../../../core/net/webhook-targets.js';
import { addSeconds } from '../../../core/time.js';
import { lockAdvisory, locking } from '../../../db/locks.js';
import { allOf, type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import { newestNumber } from '../../../events/event-table.js';
import { Prisma, type Webhook, type WebhookMessage } from '../../../generated/prisma/client.js';
import { WebhookEvent } from '../../../generated/prisma/enums.js';
import { audited } from '../../audit/audited.js';
import { isLive } from '../../conditions.js';
import type { Context } from '../../context.js';
import { checkText } from '../../input.js';
import { boundsOf, countRows, type KeyPage } from '../../page-keys.js';
import { allow, allowManage, isManagedQuota } from '../../policy.js';
import { columnsOf } from '../../row-columns.js';
import { queueMessages, TEST_TYPE } from './news.js';

const MAX_WEBHOOKS = 20;

const OLD_SECRET_SECONDS = 24 * 3600;

interface CreateWebhookInput {
  /**
   * The user whose requests the webhook reports on. If the user is omitted, the webhook reports on all users' requests.
   */
  quota?: string | null | undefined;
  url: string;
  events?: readonly WebhookEvent[] | null | undefined;
  note?: string | null | undefined;
}

/** A webhook with its new secret. Tapegate shows the secret only once, in this result. */
export interface WebhookWithSecret {
  webhook: ShownWebhook;
  secret: string;
}

/** @throws InvalidInputError, NotFoundError, ForbiddenError */
export async function createWebhook(ctx: Context, input: CreateWebhookInput): Promise<WebhookWithSecret> {
  const secret = makeSecret();
  const given = { ...input, url: HIDDEN };
  const id = await audited(
    ctx,
    { operation: 'createWebhook', kind: 'WEBHOOK', object: '', given },
    async (auditEntry) => {
      const quota = checkQuota(ctx, input.quota ?? undefined);
      const checked = checkWebhook(ctx, input);
      const events = checked.events ?? Object.values(WebhookEvent);
      return await transaction(ctx.db.pool, 'createWebhook', async (tx) => {
        await lockAdvisory(tx, 'webhooks');
        const quotaId = quota === undefined ? null : await findQuotaId(tx, quota);
        await checkRoomFor(tx, quotaId, quota);
        await beginWatching(tx, quotaId);
        const [row] = await tx.query<{ id: number }>(
          sql`INSERT INTO webhook (quota_id, url, events, note, secret, made_at, made_by, owner, next_try_at)
            VALUES (${quotaId}, ${checked.url}, ${events}::"WebhookEvent"[], ${checked.note ?? ''}, ${secret}, ${ctx.now()},
              ${ctx.caller.name}, ${ownerOf(ctx.caller)}, ${ctx.now()}) RETURNING id`,
        );
        const { id } = row as { id: number };
        await tx.query(auditEntry({ object: id }));
        return id;
      });
    },
  );
  return { webhook: await readWebhook(ctx, id), secret };
}

/** Creates a signing secret of 32 bytes. The Standard Webhooks specification allows 24 to 64 bytes. */
const makeSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`;

/** Text that replaces URLs in the audit log, because a URL might contain a person's name or a secret. */
const HIDDEN = '…';

function checkQuota(ctx: Context, quota: string | undefined): string | undefined {
  if (quota !== undefined) {
    allowManage(ctx, 'createWebhook', quota);
    return checkText('quota', quota);
  }
  if (ctx.caller.manages === 'all') return undefined;
  throw new ForbiddenError(ctx.caller.name, "receive events of all users: name a quota, or use an operator's token");
}

interface Settings {
  url?: string | null | undefined;
  events?: readonly WebhookEvent[] | null | undefined;
  note?: string | null | undefined;
}

function checkWebhook(ctx: Context, { url, events, note }: Settings) {
  return {
    url: url == null ? null : checkUrl(ctx, url),
    events: events == null ? null : checkEvents(events),
    note: note == null ? null : checkText('note', note),
  };
}

function checkUrl(ctx: Context, given: string): string {
  const url = checkText('url', given);
  const problem = findTargetProblem(url, createTargets(ctx.config.webhookHosts));
  if (problem) throw new InvalidInputError('url', `${problem}: ${quote(url)}`);
  return url;
}

function checkEvents(events: readonly WebhookEvent[]): WebhookEvent[] {
  if (events.length === 0) throw new InvalidInputError('events', 'must name at least one event');
  return Object.values(WebhookEvent).filter((event) => events.includes(event));
}

async function findQuotaId(tx: Transaction, user: string): Promise<number> {
  const [row] = await tx.query<{ id: number }>(
    sql`SELECT q.id FROM quota q WHERE q."user" = ${user} AND q.removed_at IS NULL FOR KEY SHARE`,
  );
  if (!row) throw new UnknownUserError(user);
  return row.id;
}

async function checkRoomFor(tx: Transaction, quotaId: number | null, user: string | undefined): Promise<void> {
  const [row] = await tx.query<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM webhook WHERE quota_id IS NOT DISTINCT FROM ${quotaId}::int`,
  );
  if (!row || row.count < MAX_WEBHOOKS) return;
  const whose = user === undefined ? 'for all users' : `for quota ${quote(user)}`;
  throw new InvalidInputError('url', `cannot be added: there are already ${row.count} webhooks ${whose}, the maximum`);
}

/**
 * Records the current state of live requests as already reported, so that a new webhook gets only later changes. Skips
 * requests that another webhook already reports on, because Tapegate might not have reported their latest events to
 * that webhook yet.
 */
async function beginWatching(tx: Transaction, quotaId: number | null): Promise<void> {
  await tx.query(
    sql`INSERT INTO webhook_cursor (id, last) SELECT 1, ${newestNumber} WHERE NOT EXISTS (SELECT FROM webhook)
        ON CONFLICT (id) DO UPDATE SET last = excluded.last`,
  );
  await tx.query(
    sql`INSERT INTO webhook_request (request_id, state, is_started, has_first_file)
        SELECT r.id, r.state, r.tapestore_request_start IS NOT NULL, r.first_files_on_disk IS NOT NULL
        FROM request r WHERE ${isLive} AND (${quotaId}::int IS NULL OR r.quota_id = ${quotaId}::int)
          AND NOT EXISTS (SELECT FROM webhook w WHERE w.quota_id IS NULL OR w.quota_id = r.quota_id)
        ON CONFLICT (request_id) DO UPDATE SET state = excluded.state, is_started = excluded.is_started,
          has_first_file = excluded.has_first_file`,
  );
}

interface UpdateWebhookInput extends Settings {
  id: number;
  /**
   * Whether the webhook's messages are queued and sent. Setting the field to true also retries pending messages, and
   * messages that engines had stopped sending.
   */
  isEnabled?: boolean | null | undefined;
}

/** Changes the webhook fields that `input` contains. @throws InvalidInputError, NotFoundError, ForbiddenError */
export async function updateWebhook(ctx: Context, input: UpdateWebhookInput): Promise<ShownWebhook> {
  const { id, ...settings } = input;
  const given = { ...settings, ...(settings.url ? { url: HIDDEN } : {}) };
  await audited(ctx, { operation: 'updateWebhook', kind: 'WEBHOOK', object: id, given }, async (auditEntry) => {
    const { url, events, note: words } = checkWebhook(ctx, settings);
    await transaction(ctx.db.pool, 'updateWebhook', async (tx) => {
      await lockWebhook(ctx, tx, id);
      await tx.query(
        sql`UPDATE webhook w SET url = coalesce(${url}::text, w.url), note = coalesce(${words}::text, w.note),
              events = coalesce(${events}::"WebhookEvent"[], w.events) WHERE w.id = ${id}`,
      );
      // a new URL means a new receiver, so delete the failures recorded for the old receiver, and record the caller as
      // the webhook's author
      if (input.isEnabled === true || url !== null) await tx.query(beginAnew(ctx, id, input.isEnabled === true));
      if (input.isEnabled === false) await tx.query(switchOff(ctx, id));
      if (input.isEnabled === true) await tx.query(tryAgain(ctx, id));
      await tx.query(auditEntry());
      await tx.query(sql`SELECT pg_notify('tapegate', 'webhook')`);
    });
  });
  return await readWebhook(ctx, id);
}

const beginAnew = (ctx: Context, id: number, isOn: boolean): Sql =>
  sql`UPDATE webhook w SET failures = 0, failing_since = NULL, last_error = NULL, next_try_at = ${ctx.now()},
        made_by = ${ctx.caller.name}, owner = ${ownerOf(ctx.caller)},
        disabled_at = CASE WHEN NOT ${isOn}::boolean THEN w.disabled_at END,
        disabled_reason = CASE WHEN NOT ${isOn}::boolean THEN w.disabled_reason END WHERE w.id = ${id}`;

const switchOff = (ctx: Context, id: number): Sql =>
  sql`UPDATE webhook w SET disabled_at = ${ctx.now()}, disabled_reason = 'switched off'
      WHERE w.id = ${id} AND w.disabled_at IS NULL`;

const tryAgain = (ctx: Context, id: number): Sql =>
  sql`UPDATE webhook_message SET state = 'PENDING', next_try_at = ${ctx.now()}, attempts = 0
      WHERE webhook_id = ${id} AND state IN ('PENDING', 'GIVEN_UP')`;

/**
 * Creates a new secret for a webhook. For one day, messages are signed with the old and the new secret, so that
 * receivers can switch.
 * @throws NotFoundError, ForbiddenError
 */
export async function rotateWebhookSecret(ctx: Context, id: number): Promise<WebhookWithSecret> {
  const secret = makeSecret();
  await audited(ctx, { operation: 'rotateWebhookSecret', kind: 'WEBHOOK', object: id }, async (auditEntry) => {
    await transaction(ctx.db.pool, 'rotateWebhookSecret', async (tx) => {
      await lockWebhook(ctx, tx, id);
      const until = addSeconds(ctx.now(), OLD_SECRET_SECONDS);
      await tx.query(
        sql`UPDATE webhook w SET old_secret = w.secret, old_secret_until = ${until}, secret = ${secret} WHERE w.id = ${id}`,
      );
      await tx.query(auditEntry());
    });
  });
  return { webhook: await readWebhook(ctx, id), secret };
}

/**
 * @throws NotFoundError, ForbiddenError
 */
export async function testWebhook(ctx: Context, id: number): Promise<ShownWebhook> {
  await audited(ctx, { operation: 'testWebhook', kind: 'WEBHOOK', object: id }, async (auditEntry) => {
    await transaction(ctx.db.pool, 'testWebhook', async (tx) => {
      await lockWebhook(ctx, tx, id);
      const waiting = await tx.query(
        sql`SELECT FROM webhook_message WHERE webhook_id = ${id} AND state = 'PENDING' AND type = ${TEST_TYPE} LIMIT 1`,
      );
      const about = { key: randomUUID(), at: ctx.now(), quotaId: null, requestId: null, data: {} };
      if (waiting.length === 0) await queueMessages(ctx, tx, [{ webhookId: id, type: TEST_TYPE, ...about }]);
      await tx.query(auditEntry());
    });
  });
  return await readWebhook(ctx, id);
}

/** Removes a webhook with its pending messages. @throws NotFoundError, ForbiddenError */
export async function removeWebhook(ctx: Context, id: number): Promise<ShownWebhook> {
  return await audited(ctx, { operation: 'removeWebhook', kind: 'WEBHOOK', object: id }, async (auditEntry) => {
    const removed = await readWebhook(ctx, id);
    await transaction(ctx.db.pool, 'removeWebhook', async (tx) => {
      await lockWebhook(ctx, tx, id);
      await tx.query(sql`DELETE FROM webhook WHERE id = ${id}`);
      await tx.query(auditEntry());
    });
    return removed;
  });
}

export interface ShownWebhook extends Omit<Webhook, 'quotaId' | 'owner' | 'secret' | 'oldSecret' | 'oldSecretUntil'> {
  /** Owner of the webhook's quota; null for a webhook that reports on all quotas. */
  user: string | null;
  waiting: number;
}

const columns = sql`w.id, q."user", w.url, w.events::text[] AS events, w.note, w.made_at AS "madeAt", w.made_by AS "madeBy",
  w.disabled_at AS "disabledAt", w.disabled_reason AS "disabledReason", w.failing_since AS "failingSince", w.failures,
  w.last_error AS "lastError", w.sent_at AS "sentAt", w.next_try_at AS "nextTryAt",
  (SELECT count(*)::int FROM webhook_message m WHERE m.webhook_id = w.id AND m.state = 'PENDING') AS waiting`;

export async function countWebhooks(ctx: Context): Promise<number> {
  allow(ctx, 'listWebhooks');
  return await countRows(ctx, {
    rows: sql`webhook w LEFT JOIN quota q ON q.id = w.quota_id WHERE ${isManagedQuota(ctx)}`,
  });
}

export async function listWebhooks(ctx: Context, page: KeyPage<number>): Promise<ShownWebhook[]> {
  allow(ctx, 'listWebhooks');
  const { conditions, order } = boundsOf(sql`w.id`, page);
  return await ctx.db.rows<ShownWebhook>(
    sql`SELECT ${columns} FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id
        WHERE ${allOf([isManagedQuota(ctx), ...conditions])} ${order}`,
  );
}

/** Returns a webhook. @throws NotFoundError, also if the caller does not manage the webhook */
export async function readWebhook(ctx: Context, id: number): Promise<ShownWebhook> {
  const rows = await ctx.db.rows<ShownWebhook>(
    sql`SELECT ${columns} FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id WHERE w.id = ${id} AND ${isManagedQuota(ctx)}`,
  );
  return found(rows[0], id);
}

/** @throws NotFoundError, also if the caller does not manage the webhook */
async function lockWebhook(ctx: Context, tx: Transaction, id: number): Promise<void> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT w.id FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id WHERE w.id = ${id} AND ${isManagedQuota(ctx)} ${locking.webhook}`,
  );
  found(rows[0], id);
}

function found<Row>(row: Row | undefined, id: number): Row {
  if (row === undefined) throw new NotFoundError(`there is no webhook with id ${id}`);
  return row;
}

export type ShownMessage = Omit<WebhookMessage, 'webhookId' | 'quotaId'>;

/** Returns a message, or null if no message has the id. @throws NotFoundError if the caller does not manage the webhook */
export async function readWebhookMessage(ctx: Context, id: bigint): Promise<ShownMessage | null> {
  allow(ctx, 'listWebhookMessages');
  const message = await ctx.db.prisma.webhookMessage.findUnique({ where: { id } });
  if (message) await readWebhook(ctx, message.webhookId);
  return message;
}

/** @throws NotFoundError */
export async function countWebhookMessages(ctx: Context, webhookId: number): Promise<number> {
  allow(ctx, 'listWebhookMessages');
  await readWebhook(ctx, webhookId);
  return await ctx.db.prisma.webhookMessage.count({ where: { webhookId } });
}

/** Lists a webhook's messages, newest first. @throws NotFoundError */
export async function listWebhookMessages(
  ctx: Context,
  page: KeyPage<bigint> & { webhookId: number },
): Promise<ShownMessage[]> {
  allow(ctx, 'listWebhookMessages');
  await readWebhook(ctx, page.webhookId);
  const { conditions, order } = boundsOf(sql`m.id`, { ...page, descending: true });
  return await ctx.db.rows<ShownMessage>(
    sql`SELECT ${columnsOf(Prisma.WebhookMessageScalarFieldEnum, 'm')}
        FROM webhook_message m WHERE ${allOf([sql`m.webhook_id = ${page.webhookId}`, ...conditions])} ${order}`,
  );
}

const quotaOf = (user: string): Sql => sql`(SELECT q.id FROM quota q WHERE q."user" = ${user})`;

/** Removes a quota's webhooks. Also removes the messages about the quota from webhooks that report on all quotas. */
export async function removeWebhooksOf(tx: Transaction, user: string): Promise<number> {
  const rows = await tx.query(sql`DELETE FROM webhook w WHERE w.quota_id = ${quotaOf(user)} RETURNING w.id`);
  await tx.query(sql`DELETE FROM webhook_message m WHERE m.quota_id = ${quotaOf(user)}`);
  return rows.length;
}

/**
 * Removes the webhooks of a purged user's quota, the user's webhooks for other quotas, and all messages about the
 * user's requests. Disables the webhooks that the user created as an operator.
 */
export async function purgeWebhooks(
  tx: Transaction,
  { user, pseudonym, requests, now }: { user: string; pseudonym: string; requests: readonly string[]; now: string },
): Promise<number> {
  const removed = await removeWebhooksOf(tx, user);
  await tx.query(sql`DELETE FROM webhook_message m WHERE m.request_id = ANY(${requests.map(Number)}::int[])`);
  const authored = await tx.query(
    sql`DELETE FROM webhook w WHERE w.owner = ${userOwner(user)} AND w.quota_id IS NOT NULL RETURNING w.id`,
  );
  const disabled = await tx.query(
    sql`UPDATE webhook w SET made_by = ${pseudonym}, owner = replace(w.owner, ${user}, ${pseudonym}), note = '',
          disabled_at = coalesce(w.disabled_at, ${now}), disabled_reason = coalesce(w.disabled_reason, 'its author was purged')
        WHERE w.made_by = ${user} RETURNING w.id`,
  );
  return removed + authored.length + disabled.length;
}

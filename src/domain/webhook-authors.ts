/** Disables webhooks if their authors are no longer allowed to see the webhooks' events. */
import { userOwner } from '../core/caller.js';
import { type Sql, sql } from '../db/sql.js';
import type { MemberKind } from '../generated/prisma/enums.js';
import type { Context } from './context.js';

interface Manager {
  quota: string;
  kind: MemberKind;
  name: string;
}

/**
 * Disables a quota's webhooks after a user or group has stopped being a manager of the quota. If a user has stopped
 * being a manager, disables that user's own webhooks. If a group has, disables all webhooks whose authors are neither
 * the quota's user nor listed as managers. Tapegate does not know which users a group contains. A remaining manager can
 * enable the webhooks again.
 * @param lost SQL condition that is true if the user or group has stopped being a manager
 */
export function disableWebhooksOf(ctx: Context, { quota, kind, name }: Manager, lost: Sql): Sql {
  const isAuthor =
    kind === 'USER'
      ? sql`w.owner = ${userOwner(name)}`
      : sql`w.owner IN (w.made_by, 'user:' || w.made_by) AND w.made_by <> q."user" AND NOT EXISTS (
          SELECT FROM quota_member o WHERE o.quota_id = q.id AND o.kind = 'USER' AND o.name = w.made_by AND o.is_manager)`;
  return sql`UPDATE webhook w SET disabled_at = ${ctx.now()}, disabled_reason = ${LOST_RIGHTS}
    FROM quota q WHERE q.id = w.quota_id AND q."user" = ${quota} AND q.removed_at IS NULL
      AND w.disabled_at IS NULL AND ${isAuthor} AND ${lost}`;
}

const LOST_RIGHTS = 'the user who created the webhook may no longer receive its events';

/** Disables an operator's webhooks after a token was revoked, unless the operator has another valid token. */
export function disableWebhooksOfToken(ctx: Context, tokenId: number): Sql {
  return sql`UPDATE webhook w SET disabled_at = ${ctx.now()}, disabled_reason = ${LOST_RIGHTS}
    FROM api_token t WHERE t.id = ${tokenId} AND t.role = 'OPERATOR' AND NOT t.is_read_only
      AND w.owner = 'operator:' || t.name AND w.disabled_at IS NULL AND NOT EXISTS (
        SELECT FROM api_token o WHERE o.name = t.name AND o.role = 'OPERATOR' AND NOT o.is_read_only
          AND o.revoked_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > ${ctx.now()}))`;
}

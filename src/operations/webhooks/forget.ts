/** Webhooks of users whose quota is taken away, or who are forgotten. */
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';

const quotaOf = (user: string): Sql => sql`(SELECT q.id FROM quota q WHERE q."user" = ${user})`;

/** Those of the quota go, and what others were to be told of it. @returns how many webhooks there were */
export async function removeWebhooksOf(tx: Transaction, user: string): Promise<number> {
  const rows = await tx.query(sql`DELETE FROM webhook w WHERE w.quota_id = ${quotaOf(user)} RETURNING w.id`);
  await tx.query(sql`DELETE FROM webhook_message m WHERE m.quota_id = ${quotaOf(user)}`);
  return rows.length;
}

/** The same, and what was told of requests that the user made with other quotas; of those that the user made for others, name and note. */
export async function forgetWebhooks(
  tx: Transaction,
  { user, pseudonym, requests }: { user: string; pseudonym: string; requests: readonly string[] },
): Promise<number> {
  const removed = await removeWebhooksOf(tx, user);
  await tx.query(sql`DELETE FROM webhook_message m WHERE m.request_id = ANY(${requests.map(Number)}::int[])`);
  const renamed = await tx.query(
    sql`UPDATE webhook w SET made_by = ${pseudonym}, note = '' WHERE w.made_by = ${user} RETURNING w.id`,
  );
  return removed + renamed.length;
}

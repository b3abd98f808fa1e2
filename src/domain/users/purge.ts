/**
 * Removes a user's personal data: replaces the name with a pseudonym everywhere, and clears addresses and free texts.
 *
 * A purge first closes the quota and revokes the user's tokens. The purge then changes the audit log in steps, because
 * the log can contain many millions of rows. The last transaction changes the user's data in all other tables. If the
 * process dies before the last transaction commits, a second call continues the purge.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { InUseError, InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { lockAdvisory, lockCatalogue, lockQuotas, lockRequests } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { type AuditedAction, auditRow } from '../audit/audit.js';
import { type AuditEntry, audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { deleteKeysOf } from '../idempotency-keys.js';
import { checkText, isReserved } from '../input.js';
import { purgeWebhooks } from '../notifications/webhooks/webhooks.js';
import { withSlot } from '../turn.js';

/**
 * Milliseconds within which every other process stores its pending counts of rejected calls. Pending counts might
 * contain the user's name.
 */
const ON_ITS_WAY_MS = 500;

export interface PurgeResult {
  pseudonym: string;
  requests: number;
  emails: number;
  tokens: number;
  auditRows: number;
}

/**
 * Purges a user. The user's pseudonym is random, and is never stored together with the user's name.
 * @throws NotFoundError if Tapegate has no data about the user, for example after a purge; InUseError if the user has
 *   live requests
 */
export async function purgeUser(ctx: Context, given: string): Promise<PurgeResult> {
  // the audit row of the purge itself must not contain the user's name, even if the purge is rejected
  const pseudonym = `purged-${randomBytes(4).toString('hex')}`;
  const action = { operation: 'purgeUser', kind: 'USER', object: '' } as const;
  return await audited(ctx, action, async (auditEntry) => {
    const user = checkText('user', given);
    if (user === '') throw new InvalidInputError('user', 'must not be empty');
    if (isReserved(user)) {
      throw new InvalidInputError('user', `must be the name of a user, not the reserved name ${quote(user)}`);
    }
    // first store the pending counts of rejected calls, because they might contain the user's name
    await ctx.refusals.settle();
    await withSlot(ctx, 'catalogue', () => closeUser(ctx, user, { ...action, object: pseudonym }));
    await sleep(ON_ITS_WAY_MS);
    const person = await findPerson(ctx, user, pseudonym);
    const { changed: auditRows, newest } = await purgeInAudit(ctx, person);
    // finish the purge even if the caller disconnects
    const result = await withSlot({ ...ctx, reader: undefined }, 'catalogue', () =>
      transaction(ctx.db.pool, 'purgeUser', (tx) => purgePerson(ctx, tx, person, { auditRows, auditEntry })),
    );
    await purgeInAudit(ctx, person, newest + 1n); // replace the name in audit rows that were written during the purge
    return result;
  });
}

interface Person {
  user: string;
  /** Owner names that the user's requests can have: the user name, and one name for each role. */
  owners: readonly string[];
  /** Email address of the user's quota; null if the quota has no address, or another quota has the same address. */
  address: string | null;
  pseudonym: string;
  requests: readonly string[];
}

async function findPerson(ctx: Context, user: string, pseudonym: string): Promise<Person> {
  const rows = await ctx.db.rows<{ address: string | null; requests: string[] }>(
    sql`SELECT ARRAY(SELECT r.id::text FROM request r WHERE ${ownRequests(user)} ORDER BY r.id) AS requests,
          (SELECT q.email FROM quota q WHERE q."user" = ${user} AND q.email <> ''
             AND NOT EXISTS (SELECT FROM quota o WHERE o.email = q.email AND o.id <> q.id)) AS address`,
  );
  const { address = null, requests = [] } = rows[0] ?? {};
  return { user, owners: ownerNamesOf(user), address, pseudonym, requests };
}

/** Revokes the user's access and prevents new requests by the user. */
async function closeUser(ctx: Context, user: string, action: AuditedAction): Promise<void> {
  await transaction(ctx.db.pool, 'closeUser', async (tx) => {
    // wait until transactions that create requests have committed, because a new request might belong to the user
    await lockCatalogue(tx, 'alone');
    await lockQuotas(tx, sql`q."user" = ${user}`, 'quotaAlone');
    await refuseLive(ctx, tx, user);
    const [closed] = await tx.query<{ count: number }>(
      sql`WITH quotas AS (
            UPDATE quota q SET size = 0, removed_at = ${ctx.now()} WHERE q."user" = ${user} AND q.removed_at IS NULL RETURNING q.id
          ), tokens AS (
            UPDATE api_token t SET revoked_at = ${ctx.now()} WHERE t.name = ${user} AND t.revoked_at IS NULL RETURNING t.id
          ) SELECT (SELECT count(*) FROM quotas)::int + (SELECT count(*) FROM tokens)::int AS count`,
    );
    await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
    // other processes must remove the name from their pending counts of rejected calls
    await tx.query(sql`SELECT pg_notify('tapegate', 'purged')`);
    if (closed && closed.count > 0) await tx.query(auditRow(ctx.now(), ctx.caller, action, 'BEGUN'));
  });
}

async function purgePerson(
  ctx: Context,
  tx: Transaction,
  person: Person,
  { auditRows, auditEntry }: { auditRows: number; auditEntry: AuditEntry },
): Promise<PurgeResult> {
  const { user, pseudonym } = person;
  await lockAdvisory(tx, 'webhooks'); // wait until no engine is queueing webhook messages
  await lockCatalogue(tx, 'alone');
  await deleteKeysOf(tx, ownRequests(user));
  await lockRequests(tx, ofPerson(person));
  await lockQuotas(tx, sql`q."user" = ${user}`, 'quotaAlone');
  await refuseLive(ctx, tx, user);
  const emails = await purgeEmails(tx, person);
  const tokens = await purgeTokens(ctx, tx, person);
  const others = await purgeOthers(tx, person);
  const webhooks = await purgeWebhooks(tx, { ...person, now: ctx.now() });
  const requests = await purgeRequests(tx, person);
  const quotas = await purgeQuota(ctx, tx, person);
  if (quotas + requests + emails + tokens + others + webhooks + auditRows === 0) {
    throw new NotFoundError(`there is no data about user ${quote(user)}`);
  }
  await tx.query(auditEntry({ object: pseudonym, given: { requests, emails, tokens, auditRows } }));
  return { pseudonym, requests, emails, tokens, auditRows };
}

async function refuseLive(ctx: Context, tx: Transaction, user: string): Promise<void> {
  const [live] = await tx.query<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM request r JOIN quota q ON q.id = r.quota_id
        WHERE (q."user" = ${user} OR r.made_by = ANY(${ownerNamesOf(user)}::text[])) AND ${isLive} AND r.retention > ${ctx.now()}`,
  );
  if (!live || live.count === 0) return;
  throw new InUseError(
    `user ${quote(user)} has ${plural(live.count, 'live request')}: cancel ${live.count === 1 ? 'it' : 'them'} first`,
  );
}

function ofPerson({ user, owners, address }: Person): Sql {
  return sql`(${ownRequests(user)} OR r.ruled_by = ANY(${owners}::text[])
    OR ${address}::text IN (r.notify_on_first_file, r.notify_on_last_file))`;
}

/**
 * Replaces the user's name in requests. Patterns and paths stay unchanged, because they describe the archive. Labels of
 * the user's own requests are replaced, because labels are free text.
 */
async function purgeRequests(tx: Transaction, person: Person): Promise<number> {
  const { user, owners, pseudonym, address } = person;
  const isRuled = sql`r.ruled_by = ANY(${owners}::text[])`;
  const isOwn = ownRequests(user);
  const rows = await tx.query(
    sql`UPDATE request r SET label = CASE WHEN ${isOwn} THEN ${pseudonym} ELSE r.label END,
          made_by = CASE WHEN r.made_by = ANY(${owners}::text[]) THEN ${pseudonym} ELSE r.made_by END,
          ruled_by = CASE WHEN ${isRuled} THEN ${pseudonym} ELSE r.ruled_by END,
          ruled_groups = CASE WHEN (${quotaOf(user)} OR ${isRuled}) AND r.ruled_groups IS NOT NULL THEN '{}' ELSE r.ruled_groups END,
          notify_on_first_file = CASE WHEN ${isOwn} THEN NULL ELSE nullif(r.notify_on_first_file, ${address}) END,
          notify_on_last_file = CASE WHEN ${isOwn} THEN NULL ELSE nullif(r.notify_on_last_file, ${address}) END
        WHERE ${ofPerson(person)} RETURNING r.id`,
  );
  return rows.length;
}

async function purgeQuota(ctx: Context, tx: Transaction, { user, pseudonym }: Person): Promise<number> {
  const rows = await tx.query(
    sql`UPDATE quota q SET "user" = ${pseudonym}, email = '', notes = '', size = 0,
          removed_at = coalesce(q.removed_at, ${ctx.now()}) WHERE q."user" = ${user} RETURNING q.id`,
  );
  return rows.length;
}

/**
 * Removes the user's memberships, the members of the user's quota, the user's API usage counts and download links, and
 * any suspension of the user. Renames the user in path rules instead of deleting the rules, because a directory without rules is open to
 * all users. In reasons for other users' suspensions, replaces only the purged user's email address, because the user's
 * name might be an ordinary word.
 */
async function purgeOthers(tx: Transaction, { user, owners, pseudonym, address }: Person): Promise<number> {
  const [row] = await tx.query<{ count: number }>(
    sql`WITH members AS (
          DELETE FROM quota_member m WHERE m.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})
            OR (m.kind = 'USER' AND m.name = ${user}) RETURNING true
        ), rules AS (
          UPDATE path_rule p SET name = replace(p.name, ${user}, ${pseudonym})
          WHERE p.kind = 'USER' AND p.name = ANY(${owners}::text[]) RETURNING true
        ), uses AS (
          DELETE FROM legacy_use l WHERE l."user" = ${user} RETURNING true
        ), links AS (
          DELETE FROM download_link l WHERE l.owner = ANY(${owners}::text[])
        ), suspensions AS (
          DELETE FROM suspension s WHERE s.kind = 'USER' AND s.name = ${user} RETURNING true
        ), reasons AS (
          UPDATE suspension s SET reason = replace(s.reason, ${address}, ${pseudonym})
          WHERE strpos(s.reason, ${address}) > 0 AND NOT (s.kind = 'USER' AND s.name = ${user})
        ) SELECT count(*)::int AS count FROM (TABLE members UNION ALL TABLE rules UNION ALL TABLE uses UNION ALL TABLE suspensions) o`,
  );
  return row?.count ?? 0;
}

async function purgeEmails(tx: Transaction, { user, pseudonym, address }: Person): Promise<number> {
  const rows = await tx.query(
    sql`UPDATE notification n SET recipient = ${pseudonym}, subject = '', body = '', last_error = NULL,
          state = CASE WHEN n.state = 'PENDING' THEN 'REJECTED' ELSE n.state END
        WHERE n.recipient = ${address} OR n.request_id IN (SELECT r.id FROM request r WHERE ${ownRequests(user)})
        RETURNING n.id`,
  );
  return rows.length;
}

async function purgeTokens(ctx: Context, tx: Transaction, { user, pseudonym }: Person): Promise<number> {
  const isOwn = sql`t.name = ${user}`;
  const rows = await tx.query(
    sql`UPDATE api_token t SET
          revoked_at = CASE WHEN ${isOwn} THEN coalesce(t.revoked_at, ${ctx.now()}) ELSE t.revoked_at END,
          note = CASE WHEN ${isOwn} THEN '' ELSE t.note END,
          name = CASE WHEN ${isOwn} THEN ${pseudonym} ELSE t.name END,
          quotas = array_replace(t.quotas, ${user}, ${pseudonym}),
          made_by = CASE WHEN t.made_by = ${user} THEN ${pseudonym} ELSE t.made_by END
        WHERE ${isOwn} OR t.made_by = ${user} OR ${user} = ANY(t.quotas) RETURNING t.id`,
  );
  if (rows.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
  return rows.length;
}

/**
 * Returns the owner names that a user's requests can have: the user name, and one name for each role (`ownerOf` in
 * src/core/caller.ts).
 */
function ownerNamesOf(user: string): string[] {
  return [user, ...['user', 'service', 'operator'].map((role) => `${role}:${user}`)];
}

const quotaOf = (user: string): Sql => sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})`;

const ownRequests = (user: string): Sql => sql`(${quotaOf(user)} OR r.made_by = ANY(${ownerNamesOf(user)}::text[]))`;

const STEP = 10_000n;

/**
 * Replaces a user's name and email address in the audit log, beginning with the row whose id is `from`.
 * @returns the number of changed rows, and the id of the last row that was read
 */
async function purgeInAudit(
  ctx: Context,
  { user, address, pseudonym, requests }: Person,
  from = 1n,
): Promise<{ changed: number; newest: bigint }> {
  const rows = await ctx.db.rows<{ oldest: bigint; newest: bigint }>(
    sql`SELECT coalesce(min(a.id), 1) AS oldest, coalesce(max(a.id), 0) AS newest FROM audit a WHERE a.id >= ${from}`,
  );
  const { oldest, newest } = rows[0] ?? { oldest: 1n, newest: 0n };
  let changed = 0;
  for (let first = oldest; first <= newest; first += STEP) {
    const step = await ctx.db.pool.query<{ count: number }>(
      sql`SELECT purge_in_audit(${user}, ${address}::text, ${pseudonym}, ${requests}::text[], ${first}, ${first + STEP - 1n}) AS count`,
    );
    changed += step.rows[0]?.count ?? 0;
  }
  return { changed, newest: newest > from ? newest : from - 1n };
}

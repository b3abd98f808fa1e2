/**
 * Removes a user's personal data: replaces the name by a pseudonym everywhere, and clears addresses and free texts. The
 * audit is changed in steps between a first and a last transaction. Until the last one the name still identifies the
 * user's rows, so after a crash a second call continues.
 * Both transactions hold the catalogue lock exclusively, so that pending requests, which may be the user's, are created
 * or rejected before.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { auditRow } from '../../audit.js';
import type { Context } from '../../context.js';
import { lockCatalogue, lockQuotas, lockRequests } from '../../database/locks.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { plural } from '../../plural.js';
import { addSeconds } from '../../time.js';
import { isReserved, START_NAME } from '../access/tokens.js';
import { audited, type Note } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { takeTurn } from '../turn.js';
import { forgetWebhooks } from '../webhooks/webhooks.js';

/** Other processes have committed their pending writes by then. */
const ON_ITS_WAY_MS = 500;

/** Prefix by which `doctor` recognises removed users. */
export const FORGOTTEN = 'forgotten-';

export interface ForgetResult {
  pseudonym: string;
  /** Requests that belonged to the user, or mention the user. */
  requests: number;
  letters: number;
  tokens: number;
  auditRows: number;
}

/**
 * Draws a pseudonym and stores it nowhere with the name. Revokes the user's tokens, which ends their streams.
 * @throws NotFoundError if there is nothing of the user, as in a second call; InUseError with the figures, while
 *   requests of the user are live
 */
export async function forgetUser(ctx: Context, given: string): Promise<ForgetResult> {
  // the audit row, of success or rejection, must not contain the name
  const pseudonym = `${FORGOTTEN}${randomBytes(4).toString('hex')}`;
  const deed = { operation: 'forgetUser', kind: 'USER', object: '' } as const;
  return await audited(ctx, deed, async (note) => {
    allow(ctx, 'forgetUser');
    const user = checkText('user', given);
    if (user === '') throw new InvalidInputError('user', 'must not be empty');
    if (isReserved(user) || user === START_NAME) {
      throw new InvalidInputError(
        'user',
        `must be somebody, and ${quote(user)} is what Tapegate calls nobody in person`,
      );
    }
    await ctx.refusals.settle(); // counts contain the name as well
    const person = await findPerson(ctx, user, pseudonym);
    const begun = auditRow(ctx.now(), ctx.caller, { ...deed, object: pseudonym }, 'BEGUN');
    const traces = await takeTurn(ctx, 'catalogue', () =>
      transaction(ctx.db.pool, 'forgetTraces', (tx) => forgetTraces(ctx, tx, person, begun)),
    );
    const auditRows = await forgetInAudit(ctx, person);
    // work that has begun is completed, even if the caller is gone
    const result = await takeTurn({ ...ctx, reader: undefined }, 'catalogue', () =>
      transaction(ctx.db.pool, 'forgetUser', (tx) => forgetPerson(ctx, tx, person, { traces, auditRows, note })),
    );
    await forgetLatecomers(ctx, person);
    return result;
  });
}

/** Repeats it for counts that other processes were writing when they were notified. */
async function forgetLatecomers(ctx: Context, person: Person): Promise<void> {
  await sleep(ON_ITS_WAY_MS);
  await transaction(ctx.db.pool, 'forgetLatecomers', async (tx) => {
    await forgetUses(tx, person);
    await forgetWebhooks(tx, { ...person, user: person.pseudonym });
  });
  await forgetLateInAudit(ctx, person);
}

interface Traces {
  requests: number;
  letters: number;
  tokens: number;
  others: number;
}

/** Removes data that do not identify other rows, and access. @param begun the audit row, written if there are data */
async function forgetTraces(ctx: Context, tx: Transaction, person: Person, begun: Sql): Promise<Traces> {
  await lockCatalogue(tx, 'alone');
  await lockRequests(tx, ofPerson(person));
  await lockQuotas(tx, sql`q."user" = ${person.user}`, 'quotaAlone');
  await refuseLive(ctx, tx, person.user);
  const requests = await forgetAddresses(tx, person);
  const letters = await forgetLetters(tx, person);
  const tokens = await forgetTokens(ctx, tx, person);
  const closed = await closeQuota(ctx, tx, person);
  const others =
    (await forgetRights(tx, person)) +
    (await forgetSuspensions(tx, person)) +
    (await forgetUses(tx, person)) +
    (await forgetWebhooks(tx, person));
  await tx.query(sql`SELECT pg_notify('tapegate', 'forgotten')`); // counts of other processes contain the name as well
  if (requests + letters + tokens + closed + others > 0) await tx.query(begun);
  return { requests, letters, tokens, others };
}

/** Replaces the name in requests last, when nothing else contains it. */
async function forgetPerson(
  ctx: Context,
  tx: Transaction,
  person: Person,
  { traces, auditRows, note }: { traces: Traces; auditRows: number; note: Note },
): Promise<ForgetResult> {
  const { user, pseudonym } = person;
  const { letters, tokens, others } = traces;
  await lockCatalogue(tx, 'alone');
  await lockRequests(tx, ofPerson(person));
  await lockQuotas(tx, sql`q."user" = ${user}`, 'quotaAlone');
  await refuseLive(ctx, tx, user);
  await forgetWebhooks(tx, person); // an engine may have queued messages meanwhile
  const requests = traces.requests + (await forgetRequests(tx, person));
  const quotas = await forgetQuota(ctx, tx, person);
  if (quotas + requests + letters + tokens + others + auditRows === 0) {
    throw new NotFoundError(`there is nothing of user ${quote(user)}`);
  }
  await tx.query(note({ object: pseudonym, given: { requests, letters, tokens, auditRows } }));
  return { pseudonym, requests, letters, tokens, auditRows };
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

/** The requests `r` of any quota that mention the user. */
function ofPerson({ user, owners, quotaAddresses }: Person): Sql {
  return sql`(${ownRequests(user)} OR r.ruled_by = ANY(${owners}::text[])
    OR r.notify_on_first_file = ANY(${quotaAddresses}::text[]) OR r.notify_on_last_file = ANY(${quotaAddresses}::text[]))`;
}

/** Removes the user's addresses from requests of others. @returns the number of changed requests */
async function forgetAddresses(tx: Transaction, { user, quotaAddresses }: Person): Promise<number> {
  const [first, last] = ['first', 'last'].map((which) => raw(`r.notify_on_${which}_file`));
  const rows = await tx.query(
    sql`UPDATE request r SET notify_on_first_file = CASE WHEN ${first} = ANY(${quotaAddresses}::text[]) THEN NULL ELSE ${first} END,
          notify_on_last_file = CASE WHEN ${last} = ANY(${quotaAddresses}::text[]) THEN NULL ELSE ${last} END
        WHERE (${first} = ANY(${quotaAddresses}::text[]) OR ${last} = ANY(${quotaAddresses}::text[])) AND ${othersRequests(user)}
        RETURNING r.id`,
  );
  return rows.length;
}

/** Keeps patterns and paths, which belong to the archive. Clears labels, which are free text, of own requests. */
async function forgetRequests(tx: Transaction, person: Person): Promise<number> {
  const { user, owners, pseudonym, quotaAddresses } = person;
  const isMaker = sql`r.made_by = ANY(${owners}::text[])`;
  const isRuled = sql`r.ruled_by = ANY(${owners}::text[])`;
  const own = quotaOf(user);
  const isOwn = ownRequests(user);
  const rows = await tx.query(
    sql`UPDATE request r SET label = CASE WHEN ${isOwn} THEN ${pseudonym} ELSE r.label END,
          made_by = CASE WHEN ${isMaker} THEN ${pseudonym} ELSE r.made_by END,
          ruled_by = CASE WHEN ${isRuled} THEN ${pseudonym} ELSE r.ruled_by END,
          ruled_groups = CASE WHEN (${own} OR ${isRuled}) AND r.ruled_groups IS NOT NULL THEN '{}' ELSE r.ruled_groups END,
          notify_on_first_file = CASE WHEN ${isOwn} OR r.notify_on_first_file = ANY(${quotaAddresses}::text[]) THEN NULL ELSE r.notify_on_first_file END,
          notify_on_last_file = CASE WHEN ${isOwn} OR r.notify_on_last_file = ANY(${quotaAddresses}::text[]) THEN NULL ELSE r.notify_on_last_file END
        WHERE ${ofPerson(person)} RETURNING r.id`,
  );
  return rows.length;
}

/** Closes the quota like a removed one. @returns how many were open, at most one */
async function closeQuota(ctx: Context, tx: Transaction, { user }: Person): Promise<number> {
  const rows = await tx.query(
    sql`UPDATE quota q SET size = 0, removed_at = ${ctx.now()} WHERE q."user" = ${user} AND q.removed_at IS NULL RETURNING q.id`,
  );
  return rows.length;
}

/** Keeps the row for its requests, as for a removed quota. */
async function forgetQuota(ctx: Context, tx: Transaction, { user, pseudonym }: Person): Promise<number> {
  const rows = await tx.query(
    sql`UPDATE quota q SET "user" = ${pseudonym}, email = '', notes = '', size = 0,
          removed_at = coalesce(q.removed_at, ${ctx.now()}) WHERE q."user" = ${user} RETURNING q.id`,
  );
  return rows.length;
}

/** Removes memberships of and in the user's quota, and renames the user in path rules. */
async function forgetRights(tx: Transaction, { user, owners, pseudonym }: Person): Promise<number> {
  const members = await tx.query(
    sql`DELETE FROM quota_member m WHERE m.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})
          OR (m.kind = 'USER' AND m.name = ${user}) RETURNING m.quota_id`,
  );
  // rules stay, since all users may access a directory without rules
  const rules = await tx.query(
    sql`UPDATE path_rule p SET name = replace(p.name, ${user}, ${pseudonym})
        WHERE p.kind = 'USER' AND p.name = ANY(${owners}::text[]) RETURNING p.id`,
  );
  return members.length + rules.length;
}

async function forgetUses(tx: Transaction, { user }: Person): Promise<number> {
  return (await tx.query(sql`DELETE FROM legacy_use l WHERE l."user" = ${user} RETURNING true AS gone`)).length;
}

async function forgetLetters(tx: Transaction, { user, pseudonym, quotaAddresses }: Person): Promise<number> {
  const rows = await tx.query(
    sql`UPDATE notification n SET recipient = ${pseudonym}, subject = '', body = '', last_error = NULL,
          state = CASE WHEN n.state = 'PENDING' THEN 'REJECTED' ELSE n.state END
        WHERE n.recipient = ANY(${quotaAddresses}::text[])
          OR n.request_id IN (SELECT r.id FROM request r WHERE ${ownRequests(user)})
        RETURNING n.id`,
  );
  return rows.length;
}

/** Revokes tokens of any role with the user's name, and removes the user from service tokens. */
async function forgetTokens(ctx: Context, tx: Transaction, { user, pseudonym }: Person): Promise<number> {
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

/** Deletes a suspension of the user. In reasons of other suspensions only addresses are recognisable as personal. */
async function forgetSuspensions(tx: Transaction, { user, pseudonym, addresses }: Person): Promise<number> {
  const gone = await tx.query(
    sql`DELETE FROM suspension s WHERE s.kind = 'USER' AND s.name = ${user} RETURNING s.name`,
  );
  for (const address of addresses) {
    await tx.query(
      sql`UPDATE suspension s SET reason = replace(s.reason, ${address}, ${pseudonym}) WHERE strpos(s.reason, ${address}) > 0`,
    );
  }
  return gone.length;
}

/** Returns the names that `ownerOf` in src/caller.ts gives callers of this name, in any role. */
export function ownerNamesOf(user: string): string[] {
  return [user, ...['user', 'service', 'operator'].map((role) => `${role}:${user}`)];
}

export const quotaOf = (user: string): Sql => sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})`;

export const ownRequests = (user: string): Sql =>
  sql`(${quotaOf(user)} OR r.made_by = ANY(${ownerNamesOf(user)}::text[]))`;

/** All other requests, including those with an unknown maker. */
export const othersRequests = (user: string): Sql => sql`NOT coalesce(${ownRequests(user)}, false)`;

export async function findPerson(ctx: Context, user: string, pseudonym: string): Promise<Person> {
  const { rows } = await ctx.db.pool.query<{ id: string }>(
    sql`SELECT r.id::text AS id FROM request r WHERE ${ownRequests(user)} ORDER BY r.id`,
  );
  const known = { user, owners: ownerNamesOf(user), pseudonym, requests: rows.map(({ id }) => id) };
  return { ...known, ...(await readAddresses(ctx, known)) };
}

/** Addresses of the user's requests may belong to others. One of the quota does only if another quota has it. */
async function readAddresses(
  ctx: Context,
  known: Pick<Person, 'user' | 'requests'>,
): Promise<Pick<Person, 'quotaAddresses' | 'addresses'>> {
  const earlier = await readAuditAddresses(ctx, known);
  const current = await readCurrentAddresses(ctx, known.user);
  const ofQuota = new Set([...earlier.ofQuota, ...current.ofQuota]);
  const ofRequests = new Set([...earlier.ofRequests, ...current.ofRequests]);
  const quotas = await readAddressesOfQuotas(ctx, known.user, [...ofQuota, ...ofRequests]);
  const quotaAddresses = [...ofQuota].filter((address) => !quotas.has(address));
  const candidates = [...ofRequests].filter((address) => !quotas.has(address) && !ofQuota.has(address));
  const used = await readAddressesOfRequests(ctx, known.user, candidates);
  const unused = candidates.filter((address) => !used.has(address));
  const given = await readGivenByOthers(ctx, known, unused);
  return { quotaAddresses, addresses: [...quotaAddresses, ...unused.filter((address) => !given.has(address))] };
}

async function readCurrentAddresses(ctx: Context, user: string) {
  const quotas = await ctx.db.pool.query<{ address: string }>(
    sql`SELECT q.email AS address FROM quota q WHERE q."user" = ${user} AND q.email <> ''`,
  );
  const requests = await ctx.db.pool.query<{ address: string }>(
    sql`SELECT DISTINCT a.address FROM request r CROSS JOIN unnest(ARRAY[r.notify_on_first_file, r.notify_on_last_file]) AS a (address)
        WHERE ${ownRequests(user)} AND a.address <> ''`,
  );
  return { ofQuota: quotas.rows.map(addressIn), ofRequests: requests.rows.map(addressIn) };
}

const addressIn = ({ address }: { address: string }): string => address;

/** Returns those that another quota has as well. */
async function readAddressesOfQuotas(ctx: Context, user: string, addresses: readonly string[]): Promise<Set<string>> {
  const { rows } = await ctx.db.pool.query<{ address: string }>(
    sql`SELECT DISTINCT o.email AS address FROM quota o WHERE o.email = ANY(${addresses}::text[]) AND o."user" <> ${user}`,
  );
  return new Set(rows.map(addressIn));
}

/** Returns those in requests of others, or in mail about these. */
async function readAddressesOfRequests(ctx: Context, user: string, addresses: readonly string[]): Promise<Set<string>> {
  if (addresses.length === 0) return new Set();
  const { rows } = await ctx.db.pool.query<{ address: string }>(
    sql`SELECT a.address FROM request r CROSS JOIN unnest(ARRAY[r.notify_on_first_file, r.notify_on_last_file]) AS a (address)
        WHERE a.address = ANY(${addresses}::text[]) AND ${othersRequests(user)}
        UNION SELECT n.recipient FROM notification n JOIN request r ON r.id = n.request_id
        WHERE n.recipient = ANY(${addresses}::text[]) AND ${othersRequests(user)}`,
  );
  return new Set(rows.map(addressIn));
}

export interface Person {
  user: string;
  /** Names of the user as a maker of things. */
  owners: readonly string[];
  /** Mail addresses that the quota has or had. They are removed everywhere, including requests and mail of others. */
  quotaAddresses: readonly string[];
  /** These, and those only in the user's requests. They are removed from the audit and from reasons of suspensions. */
  addresses: readonly string[];
  pseudonym: string;
  /** Ids of the requests charged to the user, or made by the user. Audit rows about them may mention the user. */
  requests: readonly string[];
}

const STEP = 10_000n;

/** Older operations are written by then, and newer rows are not older than this. */
const LATE_SECONDS = 3600;

/** The audit rows `o` about the user's requests, made by the user or by others for the user. */
const isOfRequests = ({ user, requests }: Pick<Person, 'user' | 'requests'>): Sql =>
  sql`(o.who = ${user} OR o.given->>'quota' = ${user} OR (o.kind = 'REQUEST' AND o.object IN (SELECT unnest(${requests}::text[]))))`;

const isOfQuota = ({ user }: Pick<Person, 'user'>): Sql => sql`(o.object = ${user} AND o.kind IN ('QUOTA', 'USER'))`;

/** JSON paths of mail addresses given for requests, and for quotas. */
const ofRequests = sql`unnest(ARRAY['$.**.notifyOnFirstFile', '$.**.notifyOnLastFile']::jsonpath[])`;
const ofQuotas = sql`unnest(ARRAY['$.**.email']::jsonpath[])`;

/** Mail addresses given for the user's quota and requests. */
export async function readAuditAddresses(
  ctx: Context,
  person: Pick<Person, 'user' | 'requests'>,
): Promise<{ ofQuota: Set<string>; ofRequests: Set<string> }> {
  const ofQuota = await readAddressesIn(ctx, ofQuotas, isOfQuota(person));
  return { ofQuota, ofRequests: await readAddressesIn(ctx, ofRequests, isOfRequests(person)) };
}

/** Returns those that other callers gave for anything that is not the user's. */
export async function readGivenByOthers(
  ctx: Context,
  person: Pick<Person, 'user' | 'requests'>,
  addresses: readonly string[],
): Promise<Set<string>> {
  if (addresses.length === 0) return new Set();
  const isOthers = sql`NOT coalesce(${isOfRequests(person)} OR ${isOfQuota(person)}, false)`;
  return await readAddressesIn(
    ctx,
    sql`(SELECT * FROM ${ofRequests} UNION ALL SELECT * FROM ${ofQuotas})`,
    isOthers,
    addresses,
  );
}

/**
 * @param paths a table of JSON paths to addresses
 * @param which a condition on rows `o`
 * @param only limits the result to these addresses
 */
async function readAddressesIn(ctx: Context, paths: Sql, which: Sql, only?: readonly string[]): Promise<Set<string>> {
  const addresses = new Set<string>();
  for (const { first, last } of await stepsOf(ctx)) {
    const { rows } = await ctx.db.pool.query<{ address: string }>(
      sql`SELECT DISTINCT a.address FROM audit o CROSS JOIN ${paths} AS p (path)
            CROSS JOIN LATERAL (SELECT jsonb_path_query(o.given, p.path) #>> '{}') AS a (address)
          WHERE o.id BETWEEN ${first} AND ${last} AND ${which} AND a.address <> ''
            AND (${only ?? null}::text[] IS NULL OR a.address = ANY(${only ?? null}::text[]))`,
    );
    for (const { address } of rows) addresses.add(address);
  }
  return addresses;
}

/**
 * Replaces a person in the audit, in steps, since it may have many millions of rows. Rows that identify the user come
 * last, so that after a crash a second run continues.
 * @returns the number of changed rows
 */
export async function forgetInAudit(ctx: Context, person: Person): Promise<number> {
  // the user's own rows contain the addresses, so they come last
  const others = person.addresses.length > 0 ? await forgetSteps(ctx, person, await stepsOf(ctx), true) : 0;
  return others + (await forgetSteps(ctx, person, await stepsOf(ctx), false));
}

export async function forgetLateInAudit(ctx: Context, person: Person): Promise<void> {
  await forgetSteps(ctx, person, await stepsOf(ctx, addSeconds(ctx.now(), -LATE_SECONDS)), false);
}

interface Step {
  first: bigint;
  last: bigint;
}

async function forgetSteps(
  ctx: Context,
  { user, addresses, pseudonym, requests }: Person,
  steps: readonly Step[],
  isSparingOwn: boolean,
): Promise<number> {
  let count = 0;
  for (const { first, last } of steps) {
    const { rows } = await ctx.db.pool.query<{ count: number }>(
      sql`SELECT forget_in_audit(${user}, ${addresses}::text[], ${pseudonym}, ${requests}::text[], ${first}, ${last}, ${isSparingOwn}) AS count`,
    );
    count += rows[0]?.count ?? 0;
  }
  return count;
}

/** Returns steps over all rows, or over those since a time. */
async function stepsOf(ctx: Context, since?: string): Promise<Step[]> {
  const newer = sql`(SELECT a.id FROM audit a WHERE a.at >= ${since} ORDER BY a.at, a.id LIMIT 1)`;
  const { rows } = await ctx.db.pool.query<{ oldest: bigint | null; newest: bigint | null }>(
    sql`SELECT ${since === undefined ? sql`min(a.id)` : newer} AS oldest, max(a.id) AS newest FROM audit a`,
  );
  const [span] = rows;
  const steps: Step[] = [];
  if (!span || span.oldest === null || span.newest === null) return steps;
  for (let first = span.oldest; first <= span.newest; first += STEP) steps.push({ first, last: first + STEP - 1n });
  return steps;
}

/** Who is to be forgotten: what tells of a user, and which mail addresses are the user's alone. */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Person, readAuditAddresses, readGivenByOthers } from './forget-audit.js';

/** As `ownerOf` in src/caller.ts names callers of this name; tokens of a service or an operator of the name are forgotten, too. */
export function ownerNamesOf(user: string): string[] {
  return [user, ...['user', 'service', 'operator'].map((role) => `${role}:${user}`)];
}

export const quotaOf = (user: string): Sql => sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})`;

/** The requests `r` that are charged to the user, or that the user made. */
export const ownRequests = (user: string): Sql =>
  sql`(${quotaOf(user)} OR r.made_by = ANY(${ownerNamesOf(user)}::text[]))`;

/** The others, also those of which nobody knows who made them. */
export const othersRequests = (user: string): Sql => sql`NOT coalesce(${ownRequests(user)}, false)`;

export async function findPerson(ctx: Context, user: string, pseudonym: string): Promise<Person> {
  const { rows } = await ctx.db.pool.query<{ id: string }>(
    sql`SELECT r.id::text AS id FROM request r WHERE ${ownRequests(user)} ORDER BY r.id`,
  );
  const known = { user, owners: ownerNamesOf(user), pseudonym, requests: rows.map(({ id }) => id) };
  return { ...known, ...(await readAddresses(ctx, known)) };
}

/** What stood in a request of the user may be anybody's, such as that of a portal; what was the quota's is another's only as its quota's. */
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

/** Those of them that are another quota's as well. */
async function readAddressesOfQuotas(ctx: Context, user: string, addresses: readonly string[]): Promise<Set<string>> {
  const { rows } = await ctx.db.pool.query<{ address: string }>(
    sql`SELECT DISTINCT o.email AS address FROM quota o WHERE o.email = ANY(${addresses}::text[]) AND o."user" <> ${user}`,
  );
  return new Set(rows.map(addressIn));
}

/** Those of them that stand in a request that is not the user's, or in mail for one. */
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

/**
 * The audit's part in forgetting a user. It may have many millions of rows, so it is done in steps of a statement each, before the rows by
 * which a user is known go: whoever is killed on the way is done with by a second time.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';

/** Nobody else's, so that it is in place of one person only. */
export interface Person {
  user: string;
  /** By which what it has made is known to be its own. */
  owners: readonly string[];
  /** Of mail: what its quota has, or had. They go wherever they are, also from the requests and the mail of others. */
  quotaAddresses: readonly string[];
  /** These, and what only its requests have, or had, and nobody else uses. They go wherever the audit and reasons of suspensions have them. */
  addresses: readonly string[];
  pseudonym: string;
  /** Ids of the requests that are charged to the user, or that it made: whoever changed them, and whatever was said of the user then. */
  requests: readonly string[];
}

/** Ids of a step: a fraction of a second. */
const STEP = 10_000n;

/** What was begun before is written by then, and its row is not older. */
const LATE_SECONDS = 3600;

/** The rows `o` that are of the user's requests: what it asked for, or somebody for it. */
const isOfRequests = ({ user, requests }: Pick<Person, 'user' | 'requests'>): Sql =>
  sql`(o.who = ${user} OR o.given->>'quota' = ${user} OR (o.kind = 'REQUEST' AND o.object IN (SELECT unnest(${requests}::text[]))))`;

const isOfQuota = ({ user }: Pick<Person, 'user'>): Sql => sql`(o.object = ${user} AND o.kind IN ('QUOTA', 'USER'))`;

/** Addresses in what was given for mail about requests, and for that of quotas. */
const ofRequests = sql`unnest(ARRAY['$.**.notifyOnFirstFile', '$.**.notifyOnLastFile']::jsonpath[])`;
const ofQuotas = sql`unnest(ARRAY['$.**.email']::jsonpath[])`;

/** Mail addresses that were given for the user's quota, and for its requests. */
export async function readAuditAddresses(
  ctx: Context,
  person: Pick<Person, 'user' | 'requests'>,
): Promise<{ ofQuota: Set<string>; ofRequests: Set<string> }> {
  const ofQuota = await readAddressesIn(ctx, ofQuotas, isOfQuota(person));
  return { ofQuota, ofRequests: await readAddressesIn(ctx, ofRequests, isOfRequests(person)) };
}

/** Those of them that somebody else has given for what is none of the user's. */
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
 * @param only of these addresses, where they are given
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

/** @returns how many rows had something of the person */
export async function forgetInAudit(ctx: Context, person: Person): Promise<number> {
  // the user's own rows tell the addresses, so they go when these are nowhere else any more
  const others = person.addresses.length > 0 ? await forgetSteps(ctx, person, await stepsOf(ctx), true) : 0;
  return others + (await forgetSteps(ctx, person, await stepsOf(ctx), false));
}

/** What was written while a user was being forgotten. */
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

/** All rows that there are, or those from a time on. */
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

/**
 * The audit's part in forgetting a user. It may have many millions of rows, so it is done in steps of a statement each, before the rows by
 * which a user is known go: whoever is killed on the way is done with by a second time.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';

/** Nobody else's, so that it is in place of one person only. */
export interface Person {
  user: string;
  /** By which what it has made is known to be its own. */
  owners: readonly string[];
  /** Of mail. */
  addresses: readonly string[];
  pseudonym: string;
  /** Ids of the requests that are charged to the user, or that it made: whoever changed them, and whatever was said of the user then. */
  requests: readonly string[];
}

/** Ids of a step: a fraction of a second. */
const STEP = 10_000n;

/** What was begun before is written by then, and its row is not older. */
const LATE_SECONDS = 3600;

/** Mail addresses in what was done by the user, or for it, or to its requests. */
export async function readAuditAddresses(
  ctx: Context,
  { user, requests }: Pick<Person, 'user' | 'requests'>,
): Promise<Set<string>> {
  const addresses = new Set<string>();
  for (const { first, last } of await stepsOf(ctx)) {
    const { rows } = await ctx.db.pool.query<{ address: string | null }>(
      sql`SELECT DISTINCT jsonb_path_query(o.given, p.path) #>> '{}' AS address FROM audit o
            CROSS JOIN unnest(ARRAY['$.**.email', '$.**.notifyOnFirstFile', '$.**.notifyOnLastFile']::jsonpath[]) AS p (path)
          WHERE o.id BETWEEN ${first} AND ${last}
            AND (o.who = ${user} OR (o.object = ${user} AND o.kind IN ('QUOTA', 'USER')) OR o.given->>'quota' = ${user}
              OR (o.kind = 'REQUEST' AND o.object IN (SELECT unnest(${requests}::text[]))))`,
    );
    for (const { address } of rows) if (address) addresses.add(address);
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

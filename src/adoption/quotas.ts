/**
 * Adopts users and quotas. A quota keeps the id that it has in the source. If Tapegate cannot use this id, the quota
 * gets a new id.
 */
import type { PoolClient } from 'pg';
import { messageOf } from '../core/errors.js';
import { sql } from '../db/sql.js';
import { transaction } from '../db/transaction.js';
import type { Context } from '../domain/context.js';
import { checkAddress, checkBytes, checkText } from '../domain/input.js';
import { type Adopting, adoptedRow, digestOf } from './report.js';
import { LAST_ADOPTED_ID } from './tables.js';

interface SourceQuota {
  id: string;
  user: string | null;
  size: string | null;
  email: string | null;
  notes: string | null;
  here: number | null;
  hereSize: bigint | null;
  hereEmail: string | null;
  hereNotes: string | null;
  digest: string | null;
}

export async function adoptQuotas(ctx: Context, client: PoolClient, adopting: Adopting): Promise<void> {
  const { rows } = await client.query<SourceQuota>(
    sql`SELECT s.id, s."user", s.size, s.email_address AS email, s.notes, q.id AS here, q.size AS "hereSize", q.email AS "hereEmail",
          q.notes AS "hereNotes", a.digest
        FROM source_quota s LEFT JOIN quota q ON q."user" = s."user" AND q.removed_at IS NULL
          LEFT JOIN adopted a ON a.kind = 'QUOTA' AND a.id = q.id
        ORDER BY CASE WHEN s.id ~ '^[0-9]+$' THEN s.id::numeric END, s."user"`,
  );
  const seen = new Set<string>();
  for (const row of rows) {
    const quota = readQuota(row, adopting);
    if (!quota) continue;
    if (seen.has(quota.user)) {
      const here = 'only the first quota, with the requests of both quotas';
      adopting.report({ kind: 'quota-twice', object: quota.user, there: `another quota, ${row.id}`, here });
      continue;
    }
    seen.add(quota.user);
    await adoptQuota(ctx, row, quota, adopting);
  }
}

interface Quota {
  id: number | null;
  user: string;
  size: bigint;
  email: string;
  notes: string;
}

function readQuota(row: SourceQuota, { report }: Adopting): Quota | undefined {
  const object = row.user ?? `quota ${row.id}`;
  try {
    const user = checkText('user', row.user ?? '');
    if (user === '') throw new Error('the quota has no user');
    if (!/^\d{1,19}$/.test(row.size ?? ''))
      throw new Error(`the size of the quota must be a whole number of bytes, not ${JSON.stringify(row.size)}`);
    const size = checkBytes('size', BigInt(row.size ?? ''));
    const id = idOf(row.id);
    if (id === null) {
      const here = `a new id, because Tapegate accepts ids only up to ${LAST_ADOPTED_ID}`;
      report({ kind: 'quota-id', object: user, there: row.id, here });
    }
    const quota = { id, user, size, email: '', notes: (row.notes ?? '').replaceAll('\0', '') };
    return { ...quota, email: emailOf(row, report) };
  } catch (error) {
    report({
      kind: 'quota-refused',
      object,
      there: `a quota of ${row.size} bytes`,
      here: `nothing: ${messageOf(error)}`,
    });
    return undefined;
  }
}

function emailOf({ user, email }: SourceQuota, report: Adopting['report']): string {
  try {
    return email ? checkAddress('email', email) : '';
  } catch (error) {
    report({ kind: 'address-refused', object: user ?? '', there: email ?? '', here: `none: ${messageOf(error)}` });
    return '';
  }
}

function idOf(text: string | null): number | null {
  const id = /^\d{1,10}$/.test(text ?? '') ? Number(text) : Number.NaN;
  return id > 0 && id <= LAST_ADOPTED_ID ? id : null;
}

async function adoptQuota(ctx: Context, row: SourceQuota, quota: Quota, adopting: Adopting): Promise<void> {
  const { report, counts, isTrial } = adopting;
  const digest = digestOf([String(quota.size), quota.email, quota.notes]);
  if (row.here !== null && row.digest === digest) {
    counts.same++;
    return;
  }
  const isSame = row.hereSize === quota.size && row.hereEmail === quota.email && row.hereNotes === quota.notes;
  if (row.here !== null && row.digest === null && !isSame) {
    const there = `${quota.size} bytes, ${quota.email || 'no address'}`;
    const here = `${row.hereSize} bytes, ${row.hereEmail || 'no address'}, because this quota was created in Tapegate`;
    report({ kind: 'quota-differs', object: quota.user, there, here });
    return;
  }
  if (row.here !== null && quota.id !== null && row.here !== quota.id) {
    report({ kind: 'quota-id', object: quota.user, there: String(quota.id), here: String(row.here) });
  }
  if (row.here === null) counts.quotas++;
  else if (row.digest !== null) counts.changed++;
  if (isTrial) return;
  const id = await storeQuota(ctx, quota, digest);
  if (row.here === null && quota.id !== null && id !== quota.id) {
    const here = `${id}: another quota already has the source's id`;
    report({ kind: 'quota-id', object: quota.user, there: String(quota.id), here });
  }
}

async function storeQuota(ctx: Context, { id, user, size, email, notes }: Quota, digest: string): Promise<number> {
  return await transaction(ctx.db.pool, 'adoptQuota', async (tx) => {
    const [stored] = await tx.query<{ id: number }>(
      sql`INSERT INTO quota AS q (id, "user", size, email, notes)
          VALUES (coalesce((SELECT ${id}::int WHERE NOT EXISTS (SELECT FROM quota o WHERE o.id = ${id}::int)),
            nextval('quota_id_seq')::int), ${user}, ${size}, ${email}, ${notes})
          ON CONFLICT ("user") DO UPDATE SET size = excluded.size, email = excluded.email, notes = excluded.notes, removed_at = NULL
          RETURNING q.id`,
    );
    if (!stored) throw new Error(`the quota of ${user} was not stored`);
    await tx.query(adoptedRow({ kind: 'QUOTA', id: BigInt(stored.id), digest, now: ctx.now() }));
    await tx.query(
      sql`SELECT setval('quota_id_seq', greatest((SELECT max(id) FROM quota), (SELECT last_value FROM quota_id_seq)))`,
    );
    return stored.id;
  });
}

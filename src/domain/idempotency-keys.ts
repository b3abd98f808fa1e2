/**
 * Idempotency keys, with which a client can safely repeat a call that creates a request. The transaction that creates
 * the request also stores the key, so a key is stored only if its request was created. A concurrent call with the same
 * key waits at the table's primary key until this transaction ends.
 */
import { createHash } from 'node:crypto';
import { ownerOf } from '../core/caller.js';
import { InvalidInputError, quote, ReusedKeyError } from '../core/errors.js';
import { addSeconds } from '../core/time.js';
import { locking } from '../db/locks.js';
import { prepared } from '../db/prepared.js';
import { type Sql, sql } from '../db/sql.js';
import type { Transaction } from '../db/transaction.js';
import type { Context } from './context.js';

const KEPT_SECONDS = 24 * 3600;
const VISIBLE_ASCII = /^[!-~]{1,255}$/;

export interface IdempotencyKey {
  /**
   * The caller that owns the key. If Tapegate cannot tell callers apart, for example without authentication, each quota
   * has its own keys.
   */
  owner: string;
  key: string;
  /** Digest of the input, to recognize a call with the same input. */
  digest: string;
  /** Keys that were stored at this time or earlier have expired. */
  expiredAt: string;
}

/**
 * @param given the input as JSON values in a form that does not depend on the protocol
 * @throws InvalidInputError
 */
export function readIdempotencyKey(
  ctx: Context,
  { key, user, given }: { key: string; user: string; given: readonly unknown[] },
): IdempotencyKey {
  if (!VISIBLE_ASCII.test(key)) {
    throw new InvalidInputError('idempotencyKey', `must have 1 to 255 visible ASCII characters, not ${quote(key)}`);
  }
  const owner = ownerOf(ctx.caller);
  return {
    owner: owner.endsWith(':') ? `${owner}${user}` : owner,
    key,
    digest: createHash('sha256').update(JSON.stringify(given)).digest('hex'),
    expiredAt: expiredAt(ctx),
  };
}

/** While the database server's clock is implausible, no key expires. */
const expiredAt = (ctx: Context) => (ctx.db.clock.isPlausible ? addSeconds(ctx.now(), -KEPT_SECONDS) : '-infinity');

/**
 * Returns the request that an earlier call with the same key created, if the key has not expired.
 * @throws ReusedKeyError if the earlier call had another input
 */
export async function findFirstRequest(
  ask: (statement: Sql) => Promise<{ id: number; digest: string }[]>,
  { owner, key, digest, expiredAt }: IdempotencyKey,
): Promise<number | undefined> {
  const [first] = await ask(
    prepared(
      sql`SELECT i.request_id AS id, i.input_digest AS digest FROM idempotency_key i
          WHERE i.owner = ${owner} AND i.key = ${key} AND i.made_at > ${expiredAt}::timestamp`,
    ),
  );
  if (first && first.digest !== digest) throw new ReusedKeyError(key, first.id);
  return first?.id;
}

/**
 * Stores a key, before its request exists. If another transaction is storing the same key, waits until it ends. The
 * caller must call `setRequest` before the commit.
 * @returns undefined if the key was stored; otherwise the request that an earlier call created
 * @throws ReusedKeyError
 */
export async function claimKey(tx: Transaction, own: IdempotencyKey, now: string): Promise<number | undefined> {
  const claimed = await tx.query(
    sql`INSERT INTO idempotency_key AS i (owner, key, input_digest, made_at)
        VALUES (${own.owner}, ${own.key}, ${own.digest}, ${now}::timestamp)
        ON CONFLICT (owner, key) DO UPDATE
          SET input_digest = excluded.input_digest, made_at = excluded.made_at, request_id = NULL
          WHERE i.made_at <= ${own.expiredAt}::timestamp
        RETURNING true`,
  );
  if (claimed.length > 0) return undefined;
  const first = await findFirstRequest((statement) => tx.query(statement), own);
  // if an engine has pruned the key since the conflict, the key can be claimed
  return first ?? (await claimKey(tx, own, now));
}

export function setRequest(tx: Transaction, { owner, key }: IdempotencyKey, requestId: number): void {
  tx.send(sql`UPDATE idempotency_key SET request_id = ${requestId} WHERE owner = ${owner} AND key = ${key}`);
}

/**
 * Deletes the keys of requests.
 * @param which an SQL condition that selects requests; the table's alias is `r`
 */
export async function deleteKeysOf(tx: Transaction, which: Sql): Promise<void> {
  await tx.query(sql`DELETE FROM idempotency_key i USING request r WHERE r.id = i.request_id AND ${which}`);
}

const STEP = 1000;

/** Deletes expired keys. Several engines can prune at the same time. */
export async function pruneIdempotencyKeys(ctx: Context, stop: AbortSignal): Promise<void> {
  while (!stop.aborted) {
    const { rowCount } = await ctx.db.pool.query(
      sql`DELETE FROM idempotency_key WHERE (owner, key) IN (
            SELECT i.owner, i.key FROM idempotency_key i WHERE i.made_at <= ${expiredAt(ctx)}::timestamp
            LIMIT ${STEP} ${locking.freeIdempotencyKey})`,
    );
    if ((rowCount ?? 0) < STEP) return;
  }
}

/** Defines the SQL of each lock. lock-order.ts defines the order in which transactions take locks. */
import { raw, type Sql, sql } from './sql.js';
import type { Transaction } from './transaction.js';

/** Locking clauses for the end of a SELECT. Each clause contains the usual alias of the table to lock. */
export const locking = {
  /** Lock for removing a library. */
  library: sql`FOR UPDATE OF b`,
  libraryKept: sql`FOR KEY SHARE OF b`,
  /** Lock for changing a library without blocking imports. */
  libraryAlone: sql`FOR NO KEY UPDATE OF b`,
  /** Lock that prevents changes to a library. The query skips a library that another transaction is changing. */
  freeLibraryShared: sql`FOR SHARE OF b SKIP LOCKED`,
  volume: sql`FOR UPDATE OF v`,
  request: sql`FOR NO KEY UPDATE OF r`,
  requestNow: sql`FOR NO KEY UPDATE OF r NOWAIT`,
  freeRequest: sql`FOR NO KEY UPDATE OF r SKIP LOCKED`,
  quota: sql`FOR NO KEY UPDATE OF q`,
  /** Lock that prevents other changes to a quota, and new requests that charge the quota. */
  quotaAlone: sql`FOR UPDATE OF q`,
  /** Lock that prevents the removal of a request's quota until the commit, but no other change to the quota. */
  quotaKept: sql`FOR KEY SHARE OF q`,
  file: sql`FOR NO KEY UPDATE OF f`,
  fileShared: sql`FOR SHARE OF f`,
  freeFile: sql`FOR NO KEY UPDATE OF f SKIP LOCKED`,
  recall: sql`FOR UPDATE OF c`,
  freeRecall: sql`FOR UPDATE OF c SKIP LOCKED`,
  /** Lock that prevents other engines from claiming a drive, but does not block renewals of the drive's lease. */
  driveKept: sql`FOR KEY SHARE OF d`,
  drive: sql`FOR UPDATE OF d`,
  freeDriveToRenew: sql`FOR NO KEY UPDATE OF d SKIP LOCKED`,
  freeDrive: sql`FOR UPDATE OF d SKIP LOCKED`,
  /** Lock that prevents other engines from claiming a library, but does not block renewals of the library's lease. */
  stagerKept: sql`FOR KEY SHARE OF y`,
  staging: sql`FOR UPDATE OF g`,
  freeStaging: sql`FOR UPDATE OF g SKIP LOCKED`,
  freeStager: sql`FOR UPDATE OF y SKIP LOCKED`,
  freeProcess: sql`FOR UPDATE OF p SKIP LOCKED`,
  disk: sql`FOR NO KEY UPDATE OF k`,
  turns: sql`FOR UPDATE OF s`,
  freeEmail: sql`FOR UPDATE OF n SKIP LOCKED`,
  webhook: sql`FOR NO KEY UPDATE OF w`,
  freeWebhook: sql`FOR NO KEY UPDATE OF w SKIP LOCKED`,
  freeLink: sql`FOR UPDATE OF l SKIP LOCKED`,
  freeDownloadLink: sql`FOR UPDATE OF l SKIP LOCKED`,
  freeIdempotencyKey: sql`FOR UPDATE OF i SKIP LOCKED`,
  freeToken: sql`FOR NO KEY UPDATE OF t SKIP LOCKED`,
};

/**
 * @param which an SQL condition that selects libraries; the table's alias is `b`
 * @returns the locked libraries' ids, in ascending order
 */
export async function lockLibraries(tx: Transaction, which: Sql): Promise<number[]> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT b.id FROM library b WHERE ${which} ORDER BY b.id ${locking.library}`,
  );
  return rows.map((row) => row.id);
}

/** Prevents other transactions from removing any library until the commit. */
export async function lockLibrariesKept(tx: Transaction): Promise<void> {
  await lockAll(tx, sql`SELECT FROM library b ORDER BY b.id ${locking.libraryKept}`);
}

/**
 * @param which an SQL condition that selects requests; the table's alias is `r`
 * @returns the locked requests' ids, in ascending order
 */
export async function lockRequests(tx: Transaction, which: Sql): Promise<number[]> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT r.id FROM request r WHERE ${which} ORDER BY r.id ${locking.request}`,
  );
  return rows.map((row) => row.id);
}

/**
 * @param which an SQL condition that selects quotas; the table's alias is `q`
 * @param how the name of a locking clause in `locking`
 */
export async function lockQuotas(
  tx: Transaction,
  which: Sql,
  how: 'quota' | 'quotaAlone' | 'quotaKept' = 'quota',
): Promise<void> {
  await lockAll(tx, sql`SELECT FROM quota q WHERE ${which} ORDER BY q.id ${locking[how]}`);
}

export async function lockFiles(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM tape_file f WHERE ${which} ORDER BY f.id ${locking.file}`);
}

export async function lockRecalls(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM recall c WHERE ${which} ORDER BY c.file_id ${locking.recall}`);
}

export async function lockDisks(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM restore_disk k WHERE ${which} ORDER BY k.id ${locking.disk}`);
}

/** Locks the selected rows. Returns only their count, because the query might lock a million rows. */
async function lockAll(tx: Transaction, rows: Sql): Promise<void> {
  await tx.query(sql`SELECT count(*) FROM (${rows}) locked`);
}

/** First key of every Tapegate advisory lock in a database. */
export const ADVISORY_SPACE = 1413563205;

/** Advisory lock that every process using an embedded server holds in shared mode. */
export const PRESENCE_LOCK = ADVISORY_SPACE;

/**
 * Second keys of Tapegate's advisory locks; the first key is `ADVISORY_SPACE`. A periodic job skips its work if another
 * engine holds the job's lock.
 */
export const advisoryKeys = {
  /** Lock for numbering events. The function `number_events` takes this lock only if it is free. */
  eventNumbers: 1,
  /** Lock for adding files to the catalogue, and for matching requests against it. */
  catalogue: 2,
  /** Lock for allocating positions on volumes. */
  positions: 3,
  demo: 4,
  /** Lock for deleting events. The function `number_events` also takes this lock, if it is free. */
  history: 5,
  /** Lock for updating the site's activity counters. */
  curves: 6,
  /** Lock for adding a webhook or scanning events for webhooks, so that no webhook misses an event. */
  webhooks: 7,
  /** Lock for updating the blocks of paths. */
  pathBlocks: 8,
} as const;

type AdvisoryKey = keyof typeof advisoryKeys;

/** Prisma's advisory lock for migrations, which keeps Prisma from migrating at the same time as Tapegate. */
export const PRISMA_MIGRATE_LOCK = 72707369;

/**
 * Locks the catalogue until the commit. A transaction that matches a request against the catalogue takes the lock in
 * mode `shared`. A transaction that adds files takes the lock in mode `alone`, so that a file added at the same time
 * also joins the request.
 */
export async function lockCatalogue(tx: Transaction, mode: 'shared' | 'alone'): Promise<void> {
  const take = raw(mode === 'shared' ? 'pg_advisory_xact_lock_shared' : 'pg_advisory_xact_lock');
  await tx.query(sql`SELECT ${take}(${ADVISORY_SPACE}::int, ${advisoryKeys.catalogue}::int)`);
}

/**
 * SQL expression that tries to lock the catalogue in shared mode without waiting. The expression is true if the
 * catalogue was locked.
 */
export const triesCatalogue = sql`pg_try_advisory_xact_lock_shared(${ADVISORY_SPACE}::int, ${advisoryKeys.catalogue}::int)`;

/** SQL expression that tries to take an advisory lock until the commit without waiting. True if the lock was taken. */
export const triesAdvisory = (key: AdvisoryKey): Sql =>
  sql`pg_try_advisory_xact_lock(${ADVISORY_SPACE}::int, ${advisoryKeys[key]}::int)`;

/** Waits for an advisory lock, and holds the lock until the commit. */
export async function lockAdvisory(tx: Transaction, key: AdvisoryKey): Promise<void> {
  await tx.query(sql`SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}::int, ${advisoryKeys[key]}::int)`);
}

/**
 * Takes an advisory lock until the commit, unless another transaction holds the lock.
 * @returns whether this transaction took the lock
 */
export async function tryAdvisory(tx: Transaction, key: AdvisoryKey): Promise<boolean> {
  const [row] = await tx.query<{ isMine: boolean }>(
    sql`SELECT pg_try_advisory_xact_lock(${ADVISORY_SPACE}::int, ${advisoryKeys[key]}::int) AS "isMine"`,
  );
  return row?.isMine ?? false;
}

/** The SQL of each lock; lock-order.ts has their order. */
import { raw, type Sql, sql } from './sql.js';
import type { Transaction } from './transaction.js';

/** The end of a SELECT that locks rows, with the usual alias of their table. */
export const locking = {
  /** Removes the library. */
  library: sql`FOR UPDATE OF b`,
  libraryKept: sql`FOR KEY SHARE OF b`,
  /** Changes the library; imports continue. */
  libraryAlone: sql`FOR NO KEY UPDATE OF b`,
  /** Relies on the library as it is. */
  freeLibraryShared: sql`FOR SHARE OF b SKIP LOCKED`,
  volume: sql`FOR UPDATE OF v`,
  request: sql`FOR NO KEY UPDATE OF r`,
  requestNow: sql`FOR NO KEY UPDATE OF r NOWAIT`,
  freeRequest: sql`FOR NO KEY UPDATE OF r SKIP LOCKED`,
  quota: sql`FOR NO KEY UPDATE OF q`,
  /** Keeps requests from being created in the quota meanwhile. */
  quotaAlone: sql`FOR UPDATE OF q`,
  /**
   * Keeps a request's quota until the commit, while the request's row alone does not; no other writer of the quota
   * waits.
   */
  quotaKept: sql`FOR KEY SHARE OF q`,
  file: sql`FOR NO KEY UPDATE OF f`,
  /** Relies on a file staying at its stage. */
  fileShared: sql`FOR SHARE OF f`,
  freeFile: sql`FOR NO KEY UPDATE OF f SKIP LOCKED`,
  recall: sql`FOR UPDATE OF c`,
  freeRecall: sql`FOR UPDATE OF c SKIP LOCKED`,
  /** Relies on no other engine claiming the drive. The renewal of a lease does not conflict; other writes of drives do. */
  driveKept: sql`FOR KEY SHARE OF d`,
  drive: sql`FOR UPDATE OF d`,
  freeDriveToRenew: sql`FOR NO KEY UPDATE OF d SKIP LOCKED`,
  freeDrive: sql`FOR UPDATE OF d SKIP LOCKED`,
  /** Relies on no other engine claiming the library. As with drives, the renewal of the lease does not conflict. */
  stagerKept: sql`FOR KEY SHARE OF y`,
  staging: sql`FOR UPDATE OF g`,
  freeStaging: sql`FOR UPDATE OF g SKIP LOCKED`,
  freeStager: sql`FOR UPDATE OF y SKIP LOCKED`,
  freeProcess: sql`FOR UPDATE OF p SKIP LOCKED`,
  disk: sql`FOR NO KEY UPDATE OF k`,
  /** Chooses the next email to send. */
  turns: sql`FOR UPDATE OF s`,
  freeEmail: sql`FOR UPDATE OF n SKIP LOCKED`,
  webhook: sql`FOR NO KEY UPDATE OF w`,
  freeWebhook: sql`FOR NO KEY UPDATE OF w SKIP LOCKED`,
  freeLink: sql`FOR UPDATE OF l SKIP LOCKED`,
  freeToken: sql`FOR NO KEY UPDATE OF t SKIP LOCKED`,
};

/** @param which a condition on the library `b` @returns their ids, in order */
export async function lockLibraries(tx: Transaction, which: Sql): Promise<number[]> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT b.id FROM library b WHERE ${which} ORDER BY b.id ${locking.library}`,
  );
  return rows.map((row) => row.id);
}

/** Keeps all libraries from being removed until the commit. */
export async function lockLibrariesKept(tx: Transaction): Promise<void> {
  await lockAll(tx, sql`SELECT FROM library b ORDER BY b.id ${locking.libraryKept}`);
}

/** @param which a condition on the request `r` @returns their ids, in order */
export async function lockRequests(tx: Transaction, which: Sql): Promise<number[]> {
  const rows = await tx.query<{ id: number }>(
    sql`SELECT r.id FROM request r WHERE ${which} ORDER BY r.id ${locking.request}`,
  );
  return rows.map((row) => row.id);
}

/** @param which a condition on the quota `q` @param how see `locking` */
export async function lockQuotas(
  tx: Transaction,
  which: Sql,
  how: 'quota' | 'quotaAlone' | 'quotaKept' = 'quota',
): Promise<void> {
  await lockAll(tx, sql`SELECT FROM quota q WHERE ${which} ORDER BY q.id ${locking[how]}`);
}

/** @param which a condition on the file `f` */
export async function lockFiles(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM tape_file f WHERE ${which} ORDER BY f.id ${locking.file}`);
}

/** @param which a condition on the recall `c` */
export async function lockRecalls(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM recall c WHERE ${which} ORDER BY c.file_id ${locking.recall}`);
}

/** @param which a condition on the restore disk `k` */
export async function lockDisks(tx: Transaction, which: Sql): Promise<void> {
  await lockAll(tx, sql`SELECT FROM restore_disk k WHERE ${which} ORDER BY k.id ${locking.disk}`);
}

/** Counts in the database, so that it does not send a million locked rows. */
async function lockAll(tx: Transaction, rows: Sql): Promise<void> {
  await tx.query(sql`SELECT count(*) FROM (${rows}) locked`);
}

/** The space of all advisory locks in a database. */
export const ADVISORY_SPACE = 1413563205;

/** Each process that uses an embedded server holds it, shared. */
export const PRESENCE_LOCK = ADVISORY_SPACE;

/** Keys in the space. Periodic jobs only try theirs: one of several engines does the work. */
export const advisoryKeys = {
  /** Numbers events; the function `number_events` tries it. */
  eventNumbers: 1,
  /** See `lockCatalogue`. */
  catalogue: 2,
  /** Allocates positions on volumes. */
  places: 3,
  demo: 4,
  /** Deletes events; `number_events` tries it as well. */
  history: 5,
  /** Counts the site's activity. */
  curves: 6,
  /** Adds a webhook, or scans events for webhooks: no webhook misses an event. */
  webhooks: 7,
} as const;

type AdvisoryKey = keyof typeof advisoryKeys;

/** The lock of `prisma migrate`, which must not run at the same time as our migrations. */
export const PRISMA_MIGRATE_LOCK = 72707369;

/**
 * A transaction that matches a request with the catalogue holds it shared; one that adds to the catalogue holds it
 * alone. Both keep it until their commit. So no file can appear between a request's match and its commit without
 * joining it.
 */
export async function lockCatalogue(tx: Transaction, mode: 'shared' | 'alone'): Promise<void> {
  const take = raw(mode === 'shared' ? 'pg_advisory_xact_lock_shared' : 'pg_advisory_xact_lock');
  await tx.query(sql`SELECT ${take}(${ADVISORY_SPACE}::int, ${advisoryKeys.catalogue}::int)`);
}

/** Does the same, shared, as a column: whether the lock was free. */
export const triesCatalogue = sql`pg_try_advisory_xact_lock_shared(${ADVISORY_SPACE}::int, ${advisoryKeys.catalogue}::int)`;

/** Waits for an advisory lock, and keeps it until the commit. */
export async function lockAdvisory(tx: Transaction, key: AdvisoryKey): Promise<void> {
  await tx.query(sql`SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}::int, ${advisoryKeys[key]}::int)`);
}

/** Takes an advisory lock until the commit, unless another transaction has it. */
export async function tryAdvisory(tx: Transaction, key: AdvisoryKey): Promise<boolean> {
  const [row] = await tx.query<{ isMine: boolean }>(
    sql`SELECT pg_try_advisory_xact_lock(${ADVISORY_SPACE}::int, ${advisoryKeys[key]}::int) AS "isMine"`,
  );
  return row?.isMine ?? false;
}

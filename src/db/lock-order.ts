/**
 * Defines all locks, and the one order in which transactions take them, so that no two transactions wait for each
 * other.
 * - A transaction takes its locks in the order of `lockOrder`, and locks rows of one table in the order of their ids.
 * Locking a row again is harmless.
 * - A lock without waiting (`SKIP LOCKED`, `NOWAIT`) may be taken at any time, because it cannot cause a deadlock. A
 * transaction that must not wait for a locked row is run again (transaction.ts).
 * - A write also locks its row, unless the transaction has inserted the row.
 * - A request's lock covers its request files and unresolved paths. A file's lock covers the file's verification
 * results. (No lock covers the verifications that an import or `verifyAgain` removes.) A webhook's lock covers the
 * webhook's messages.
 * - The email sender and the pruning job lock emails without waiting. `purgeUser` locks emails after quotas. Claims of
 * removals are taken and returned as the last lock.
 * - Two transactions that insert the same path wait for each other at the unique index of paths. Imports insert paths
 * in sorted order, before they take the catalogue's lock. A rename of files to a path that an import is adding can
 * deadlock with the import. PostgreSQL then ends one transaction, which is run again.
 * - Settling requests takes shared locks on the files that the requests wait for. The doctor's repairs, and the jobs
 * for orphans and changed copies, settle requests after locking other files. Two transactions that settle requests may
 * deadlock. PostgreSQL then ends one transaction, which is run again.
 * - A trigger marks links at archive paths while the transaction has the files locked. The transaction that settles
 * links waits for no row.
 * - A single statement outside a transaction locks rows of one table, or does not wait. The only exception is a
 * statement that locks a disk and then the disk's suspension.
 */
/**
 * All locks, from first to last. `webhooks`: the set of webhooks, and how far events were scanned for webhooks.
 * `library`: an import holds this lock, so that no library is removed while the import adds volumes. `places`:
 * allocation of positions on volumes. `volume`: names of new volumes. `catalogue`: the set of files. `turns`: the
 * choice of the next email to send. Events are new rows, and writers of events wait for no lock.
 */
export const lockOrder = [
  'webhooks',
  'library',
  'places',
  'volume',
  'catalogue',
  'request',
  'quota',
  'file',
  'recall',
  'drive',
  'disk',
  'stager',
  'staging',
  'turns',
  'letter',
  'webhook',
] as const;

export type Lock = (typeof lockOrder)[number];

/**
 * Defines all locks, and the order in which transactions take them, to prevent deadlocks.
 * - A transaction takes its locks in the order of `lockOrder`, and locks rows of one table in id order.
 * - A transaction may lock a row at any time if it does not wait (`SKIP LOCKED`, `NOWAIT`).
 * - A statement that changes a row also locks the row.
 * - A request's lock covers its request files and unresolved paths. A file's lock covers the file's rows in the table
 *   `verification`, except rows that an import or `verifyFiles` deletes. A webhook's lock covers its messages.
 * - The email sender and the pruning job lock emails without waiting. `purgeUser` locks emails after quotas. An engine
 *   claims a copy before it removes the copy. A transaction that creates or deletes such a claim locks the claim last.
 * - Two transactions that insert the same paths might wait for each other at the unique index on paths. Imports
 *   therefore insert paths in sorted order, before they take the catalogue's lock. A transaction that renames a file to
 *   a path that an import is adding can deadlock with the import.
 * - `settleRequests` takes shared locks on the files that the requests wait for. The doctor's repairs, and the jobs for
 *   orphans and changed copies, lock other files before they call `settleRequests`. Two of these transactions might
 *   deadlock.
 * - After a deadlock or a failed `NOWAIT`, the transaction is run again (transaction.ts).
 * - While a transaction holds locks on files, a trigger marks the links at the files' archive paths. The transaction
 *   that later updates the marked links does not wait for any row.
 * - A single statement outside a transaction locks rows of only one table, or does not wait. The only exception is a
 *   statement that locks a disk and then the disk's suspension.
 */
/**
 * All locks, in the order in which transactions take them.
 * - `webhooks`: the set of webhooks, and the last event that was scanned for webhooks
 * - `library`: an import holds this lock, so that no library is removed while the import adds volumes
 * - `positions`: allocation of positions on volumes
 * - `volume`: names of new volumes
 * - `catalogue`: the set of files
 * - `idempotencyKey`: a call that creates a request holds this lock, so that a repetition of the call waits
 * - `sender`: the choice of the next email to send
 */
export const lockOrder = [
  'webhooks',
  'library',
  'positions',
  'volume',
  'catalogue',
  'idempotencyKey',
  'request',
  'quota',
  'file',
  'recall',
  'drive',
  'disk',
  'stager',
  'staging',
  'sender',
  'email',
  'webhook',
] as const;

export type Lock = (typeof lockOrder)[number];

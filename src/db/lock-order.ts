/**
 * All locks, and the one order in which transactions take them, so that no two wait for each other.
 * - A transaction takes its locks in the order of `lockOrder`, and rows of one kind by id. Locking a row again is
 * harmless.
 * - A lock without waiting (`SKIP LOCKED`, `NOWAIT`) may be taken at any time: it closes no circle. A transaction that
 * needs a locked row and may not wait is run again (transaction.ts).
 * - A write locks its row as well, unless the transaction has inserted the row.
 * - A request's lock covers its request files and unresolved paths. A file's lock covers its
 * verification results. (No lock covers the verifications that an import or `verifyAgain` removes.) A webhook's lock
 * covers its messages.
 * - The sender of an email and pruning lock it without waiting, and `purgeUser` after its quotas. Claims of removals are taken and returned as the last lock.
 * - Two transactions that insert the same path wait for each other at its unique index. Imports insert in order of the
 * paths, before they take the catalogue's lock. If files are renamed to a path that an import just adds, the two
 * deadlock; PostgreSQL ends one, which is run again.
 * - Settling requests locks the files that they wait for, shared. The doctor's repairs and the jobs for orphans and
 * changed copies do so after locking other files. Two of these may deadlock; PostgreSQL ends one, which is run again.
 * - A trigger marks links at archive paths, with their files locked; the transaction that settles links waits for no
 * row.
 * - A single statement outside a transaction locks rows of one kind, or does not wait. Only a disk and its suspension
 * are locked together, in this order.
 */
/**
 * From first to last.
 * `webhooks`: the set of webhooks, and how far events were scanned for them. `library`: an import keeps it, so that no
 * library is removed while the import adds volumes. `places`: allocation of positions on volumes. `volume`: names of
 * new ones. `catalogue`: the set of files. `turns`: the next email to send.
 * Events are new rows, and their writers wait for no lock.
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

/**
 * All locks, and the one order in which transactions take them, so that no two wait for each other.
 * - A transaction takes the locks in its line of `transactionLocks` in the order of `lockOrder`, and rows of one kind
 * by id. Locking a row again is harmless.
 * - A lock without waiting (`SKIP LOCKED`, `NOWAIT`) may be taken at any time: it closes no circle. A transaction that
 * needs a locked row and may not wait is run again (transaction.ts).
 * - A write locks its row as well, unless the transaction has inserted the row.
 * - A request's lock covers its request files and unresolved paths, in rows and in bundles. A file's lock covers its
 * verification results. (No lock covers the verifications that an import or `verifyAgain` removes.) A webhook's lock
 * covers its messages.
 * - Only its sender locks an email of the outbox. Claims of removals are taken and returned as the last lock.
 * - Two transactions that insert the same path wait for each other at its unique index. Imports insert in order of the
 * paths, before they take the catalogue's lock. If files are renamed to a path that an import just adds, the two
 * deadlock; PostgreSQL ends one, which is run again.
 * - Settling requests locks the files that they wait for, shared. The doctor's repairs and the jobs for orphans and
 * changed copies do so after locking other files. Two of these may deadlock; PostgreSQL ends one, which is run again.
 * - A trigger marks links at archive paths, with their files locked; the transaction that settles links waits for no
 * row.
 * - A single statement outside a transaction locks rows of one kind, or does not wait.
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

/** Locks that a transaction may take, by the name that `transaction()` gets. */
export const transactionLocks: Record<string, readonly Lock[]> = {
  // requests
  createRequest: ['catalogue', 'request', 'quota', 'file', 'recall'],
  updateRequest: ['catalogue', 'request', 'quota', 'file', 'recall'],
  cancelRequest: ['request', 'quota', 'recall'],
  expireRequests: ['request', 'quota', 'recall'],
  endOverdue: ['request', 'quota', 'recall'],
  releaseFiles: ['request', 'quota', 'recall'],
  retryRequest: ['request', 'file', 'recall'],
  setPriority: ['request'],
  adoptRequest: ['catalogue', 'request', 'quota', 'file', 'recall'],
  joinAwaited: ['catalogue', 'request', 'quota', 'file', 'recall'],
  compactRequest: ['request'],
  pruneEvents: [],
  writeHistory: [],
  // recalls
  startRecalls: ['request', 'file', 'recall', 'drive', 'disk'],
  finishRecalls: ['request', 'file', 'recall', 'disk'],
  dropIdle: ['request', 'file', 'recall'],
  failUnplaced: ['request', 'file', 'recall'],
  failWithdrawnRecalls: ['request', 'file', 'recall'],
  leaveUnreadable: ['file', 'recall'],
  returnOrphans: ['request', 'file', 'recall'],
  chargeDriveTime: ['quota'],
  intendStaging: ['recall', 'stager', 'staging'],
  failStaged: ['request', 'file', 'recall', 'staging'],
  // quotas
  setQuota: ['quota'],
  adoptQuota: ['quota'],
  removeQuota: ['quota', 'webhook'],
  forgetTraces: ['catalogue', 'request', 'quota', 'letter', 'webhook'],
  forgetUser: ['catalogue', 'request', 'quota', 'webhook'],
  // sign-in and tokens
  forgetLatecomers: ['webhook'],
  createToken: [],
  revokeToken: [],
  // the restore area; waking recalls that wait for room takes no lock that waits
  letGo: ['file', 'disk'],
  settleChanged: ['request', 'file', 'recall'],
  markCleared: ['request'],
  forgetGone: ['file', 'disk'],
  forgetDisk: ['disk'],
  changeDisk: ['disk'],
  // the catalogue
  importRows: ['library', 'volume', 'catalogue', 'request', 'quota', 'file', 'recall'],
  withdrawFiles: ['catalogue', 'request', 'quota', 'file', 'recall'],
  reinstateFiles: ['catalogue', 'request', 'quota', 'file', 'recall'],
  checkRenames: [],
  renameFiles: ['catalogue', 'request', 'quota', 'file', 'recall'],
  readTold: [],
  forgetFiles: ['catalogue', 'file'],
  moveVolume: ['library', 'places', 'volume', 'catalogue', 'request', 'quota', 'file', 'recall'],
  retireVolume: ['volume', 'catalogue', 'request', 'quota', 'file', 'recall'],
  placeFiles: ['places', 'volume'],
  endVerification: ['file'],
  // tape systems
  addLibrary: ['library'],
  setLibrary: ['library', 'drive', 'stager'],
  removeLibrary: ['library', 'volume', 'drive', 'staging'],
  // mail
  queueExpiring: ['request', 'letter'],
  claimMail: ['turns', 'letter'],
  // webhooks
  createWebhook: ['webhooks'],
  setWebhook: ['webhook'],
  rotateWebhookSecret: ['webhook'],
  testWebhook: ['webhook'],
  removeWebhook: ['webhook'],
  queueWebhooks: [],
  noteWebhook: ['webhook'],
  // the doctor's repairs, and a restored database
  settlePutBack: [],
  returnMissing: ['request', 'file', 'recall', 'disk'],
  adoptCopies: ['request', 'file', 'recall', 'disk'],
  takeOverCopies: ['request', 'file', 'recall', 'disk'],
  repairUsed: ['quota'],
  repairQuotaCounts: ['quota'],
  repairForgotten: ['request', 'quota', 'letter'],
  repairDisk: ['disk'],
  repairCounts: ['request'],
  repairState: ['request'],
  repairForm: ['request'],
  repairLost: ['request', 'file', 'recall', 'disk'],
  repairAstray: ['request', 'file', 'recall'],
  repairUncopied: ['request', 'file', 'recall'],
  repairMisplaced: ['file', 'recall'],
  repairUnheld: ['recall'],
  repairAhead: ['request', 'file', 'recall'],
  repairUnserved: ['request', 'file', 'recall'],
  repairStaging: ['staging'],
};

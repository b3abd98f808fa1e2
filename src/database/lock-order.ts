/**
 * Every lock, and the one order in which all transactions take them, so that two do not wait for each other.
 *
 * - A transaction takes the locks of its line in `transactionLocks`, each kind after the ones above it in `lockOrder`, and
 *   the rows of a kind in order of their ids. What it locks a second time it has already.
 * - A lock that is not waited for (`SKIP LOCKED`, `NOWAIT`) may be taken at any time: who does not wait closes no circle.
 *   A transaction that finds a row locked which it must have, and may not wait for, is run again (transaction.ts).
 * - A write of a row locks it as well, unless the transaction has made the row itself.
 * - Holds and awaited paths, in rows and in bundles, go with their request, and what came of verifying a file with the file: who changes them has
 *   locked that one. (What an import or `verifyAgain` takes away of verifications is locked by nothing else.)
 *   Messages of a webhook go with it, too.
 *   A letter of the outbox is locked by whoever sends it, and by nobody else. Claims of removals are taken and given back
 *   with nothing else locked behind them.
 * - Two that make the same path wait for each other by its unique index: imports, all of them in order of the paths, and
 *   before they take the catalogue's lock. Where files are renamed to what an import just adds, the two wait in a circle; PostgreSQL ends
 *   one, which is run again.
 * - Settling requests looks at the files that they wait for, locked for reading. The doctor's repairs and the passes for orphans and for changed copies do so
 *   after they have locked other files, so that two of these may wait in a circle; PostgreSQL ends one, which is run again.
 * - Links at archive paths are marked by a trigger, with their files locked; who settles them waits for no row.
 * - A single statement outside of a transaction locks rows of one kind, or does not wait.
 */
/**
 * From first to last. `webhooks`: who says which there are, and how far events were looked through for them. `library`: kept by an import, so that none goes of which it adds volumes. `places`: who gives out places on volumes. `volume`: names of new ones. `catalogue`: which files there
 * are. `turns`: whose letter is sent next. Events are new rows, and whoever writes them waits for nobody.
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

/** Which locks a transaction may take, by its name; `transaction()` is given the name. */
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
  // who comes in
  forgetLatecomers: ['webhook'],
  createToken: [],
  revokeToken: [],
  // the restore area; recalls that wait for room are woken without waiting for any
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
  // the doctor's repairs, and a database that was put back
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

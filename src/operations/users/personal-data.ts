/**
 * What every text of the database may hold of a person, and what becomes of it when a user is forgotten (forget.ts). A test holds
 * the list against prisma/schema.prisma: a new column says what it is before it is there. Why and for how long each is kept is in
 * PERSONAL-DATA.md.
 */

/**
 * - `name`: of a user. A pseudonym stands in its place.
 * - `address`: of mail, or of the network. It goes.
 * - `text`: free, and may say anything. It goes where the row is the user's own; elsewhere the mail address in it goes.
 * - `path`: what the archive calls its files. It stays: it is the catalogue's.
 * - `nobody`: names of things, states and errors of machines. It stays.
 */
export type Holds = 'name' | 'address' | 'text' | 'path' | 'nobody';

/** By model and field of the schema. */
export const personalData: Readonly<Record<string, Holds>> = {
  'TapeFile.path': 'path',
  'TapeFile.checksum': 'nobody',
  'TapeFile.spotName': 'nobody',
  'TapeFile.diskChecksum': 'nobody',
  'Volume.name': 'nobody',
  'Volume.medium': 'nobody',
  'Volume.problem': 'nobody',
  'Drive.name': 'nobody',
  'Drive.engineId': 'nobody',
  'Quota.user': 'name',
  'Quota.email': 'address',
  'Quota.notes': 'text',
  'Request.pattern': 'path',
  'Request.label': 'text',
  'Request.notifyOnFirstFile': 'address',
  'Request.notifyOnLastFile': 'address',
  'Request.madeBy': 'name',
  'Request.ruledBy': 'name',
  'Request.ruledGroups': 'name',
  'Hold.error': 'nobody',
  'AwaitedPath.path': 'path',
  'HoldBundle.errors': 'nobody',
  'PathBundle.paths': 'path',
  'Library.name': 'nobody',
  'Library.kind': 'nobody',
  'Library.settings': 'nobody',
  'Stager.engineId': 'nobody',
  'Stager.problem': 'nobody',
  'Stager.readProblem': 'nobody',
  'LibraryUsage.request': 'nobody',
  'Staging.batch': 'nobody',
  'Staging.remoteId': 'nobody',
  'Bulk.id': 'nobody',
  'BulkFile.bulkId': 'nobody',
  'BulkFile.path': 'path',
  'BulkFile.given': 'path',
  'Recall.checksum': 'nobody',
  'LeftBehind.checksum': 'nobody',
  'MadeFolder.path': 'path',
  'LegacyUse.endpoint': 'nobody',
  'LegacyUse.address': 'address',
  'LegacyUse.user': 'name',
  'Recall.error': 'nobody',
  'Verification.error': 'nobody',
  'RestoreDisk.mountpoint': 'nobody',
  'RestoreDisk.markedAs': 'nobody',
  'RestoreDisk.fullReason': 'nobody',
  'DiskMeasurement.host': 'nobody',
  'DiskMeasurement.problem': 'nobody',
  'EngineProcess.id': 'nobody',
  'EngineProcess.engineId': 'nobody',
  'EngineProcess.host': 'nobody',
  'Notification.recipient': 'address',
  'Notification.subject': 'text',
  'Notification.body': 'text',
  'Notification.messageId': 'nobody',
  'Notification.lastError': 'text',
  'Suspension.name': 'name',
  'Suspension.reason': 'text',
  'OldestProgram.migration': 'nobody',
  'OldestProgram.program': 'nobody',
  'ApiToken.name': 'name',
  'ApiToken.quotas': 'name',
  'ApiToken.note': 'text',
  'ApiToken.madeBy': 'name',
  'QuotaMember.name': 'name',
  'PathRule.prefix': 'path',
  'PathRule.name': 'name',
  'Audit.who': 'name',
  'Audit.way': 'nobody',
  'Audit.address': 'address',
  'Audit.operation': 'nobody',
  'Audit.kind': 'nobody',
  'Audit.object': 'name',
  'Audit.given': 'text',
  'Audit.result': 'nobody',
};

/** What the checker can find: each kind, and what it means. */
export const violationKinds = {
  unsettled: 'work is left that nobody does',
  doctor: 'the doctor finds a fault where the checker finds none',
  'hold-open': 'a hold of a live request is neither ON_DISK nor FAILED',
  'hold-unexplained': 'a failed hold has no error class or no text',
  'hold-without-copy': 'a hold says ON_DISK, and its file is not on disk',
  'hold-not-satisfied': 'a hold says FAILED, and its file is on disk',
  'hold-size': 'a hold is charged another size than its file has',
  'hold-lost': 'a request does not have a file that moved for it, in rows or in bundles, or has it twice',
  'join-missed': 'a live request neither holds nor awaits a file that it asked for, or awaits one that could join',
  'request-lost': 'a request that was answered with its id is not there',
  'request-counts': 'the counts of a request are not those of its holds',
  'request-form': 'a request is kept in another form than it says',
  'request-state': 'the state of a request does not follow from its holds',
  'request-early': 'a request has expired before its retention',
  'request-times': 'the times of a request contradict each other or its state',
  'request-unreleased': 'an ended request has not let go of its files',
  'audit-missing': 'a change of a request that was confirmed, or a request that is there, has no row in the audit',
  'audit-twice': 'a change of a request has more rows in the audit than it was asked for',
  'quota-used': 'a quota is charged another sum than its live requests hold',
  'quota-counts': 'a quota counts other requests, patterns or paths than its live requests are, have and wait for',
  'copy-missing': 'a restored file is not at its place',
  'copy-bytes': 'a restored file has other bytes than were archived',
  'copy-time': 'a restored file has another modification time than was noted',
  'copy-inode': 'a restored file is another one than was noted',
  'copy-unknown': 'a file stands in the restore area, and the catalogue does not know of it',
  'copy-partial': 'a partial file is left',
  'copy-unseen': 'what recalls left on a disk that could not be looked at was not looked at since',
  'copy-left': 'the catalogue notes a copy of a file that is not restored',
  'file-doubted': 'a file has become UNVERIFIED, and nobody has touched what stands in its place',
  'file-restoring': 'a file is at RESTORING',
  'file-unheld': 'a restored file is held by no live request',
  'recall-running': 'a recall runs',
  'recall-unheld': 'a recall has no hold of a live request that waits for it',
  'disk-used': 'what a disk has in use is not the sum of its copies',
  'disk-reserved': 'what a disk has reserved is not the sum of the recalls that run',
  'mail-missing': 'mail is due and was not queued',
  'mail-unsent': 'mail was queued and not sent',
  'mail-unseen': 'mail is said to be sent, and the SMTP server has not seen it',
  'mail-unknown': 'the SMTP server has seen a mail that the outbox does not know, or another recipient',
  'mail-unasked': 'mail was queued for a request that has no address for it',
  'mail-hurried': 'more letters were sent than their rates let out',
  'progress-back': 'the progress of a request went back within one life of it',
  'progress-last': 'the last progress event of a request tells something else than the request',
  'event-unnumbered': 'an event is committed, and has no number by which anybody is told of it',
  'stage-chain': 'the stage events of a file do not follow from each other',
  'stage-illegal': 'a stage event tells a move that does not exist',
  'stage-last': 'the last stage event of a file leads to another stage than it has',
  'verify-missed': 'a tape copy that could be confirmed is not, and nothing says why',
  'verify-wrong': 'a tape copy with other bytes counts as confirmed',
  'watch-cut': 'a subscription was completed before its request had finished',
  'watch-missed': 'a subscription has not told of an event',
  'watch-order': 'a subscription has told of an event again, or after a later one',
  'watch-unknown': 'a subscription has told of an event that does not exist, or is none of its own',
} as const;

export type ViolationKind = keyof typeof violationKinds;

export interface Violation {
  kind: ViolationKind;
  /** A sentence with the ids. */
  text: string;
}

export type Report = (kind: ViolationKind, text: string) => void;

/**
 * Compares the facts of a settled Tapegate with its promises. In a settled Tapegate, nothing fails any more,
 * an engine runs, and all retries are done. The function has no side effects.
 */
import { checkEvents, checkWatches } from './check-events.js';
import { checkCopies, checkDirectories, checkLinks, checkTapeCopies } from './check-files.js';
import { checkMail, checkWebhooks } from './check-messages.js';
import { checkRequests } from './check-requests.js';
import { checkStageRequests, checkStaging } from './check-staging.js';
import { type Facts, indexFacts } from './facts.js';

/** All kinds of violations. `checker.test.ts` produces each kind. */
export const violationKinds = {
  unsettled: 'work remains that nobody does',
  doctor: 'the doctor has a finding, and the checker has none',
  'request-file-open': 'a file of a request of a live request is neither ON_DISK nor FAILED',
  'request-file-unexplained': 'a failed file of a request has no error class or no text',
  'request-file-unnamed': 'a file of a request failed because of something on a disk, and its error does not name it',
  'request-file-without-copy': 'a file of a request is ON_DISK, and its file is not on disk',
  'request-file-not-satisfied': 'a file of a request is FAILED, and its file is on disk',
  'request-file-size': 'a file of a request is charged another size than that of its file',
  'request-file-lost':
    'a request lacks a file that moved for it, or a live request has a file that is marked as one of an ended request',
  'join-missed': 'a live request neither contains nor waits for a requested file, or awaits one that could join',
  'copy-untried': 'a file failed that has a second copy on tape, and that copy was not tried',
  'volume-left': 'a retired volume has files',
  'withdrawn-wanted': 'a withdrawn file is awaited as one that could join, or is recalled',
  'withdrawn-never': 'a file of a request says that its file was withdrawn, and nobody did that',
  'request-lost': 'a request whose id was returned does not exist',
  'request-counts': 'the counts of a request are not those of its files',
  'request-state': 'the state of a request does not follow from its files',
  'request-early': 'a request expired before its retention',
  'request-times': 'the times of a request contradict each other or its state',
  'request-unreleased': 'an ended request has not released its files',
  'stage-request-lost': 'a stage request whose id was returned does not exist, and a request for it lives',
  'stage-request-open': 'a client sees that a stage request is not complete',
  'stage-request-file': 'a file of a stage request is not in its request, or its client sees another state',
  'audit-missing': 'a confirmed change, or a request that exists, has no row in the audit',
  'audit-twice': 'a change has more rows in the audit than it was requested',
  'quota-used': 'a quota is charged another sum than the files of its live requests',
  'quota-counts': 'a quota counts other unresolved paths than its live requests have',
  'copy-missing': 'a restored file is not at its path',
  'copy-bytes': 'a restored file has other bytes than were archived',
  'copy-time': 'a restored file has another modification time than was recorded',
  'copy-inode': 'a restored file has another inode than was recorded',
  'checksum-missing': 'a file was restored, and has no checksum',
  'checksum-wrong': 'the checksum that a file got at its first restore is not that of its bytes',
  'copy-unknown': 'a file is on a restore disk, and the catalogue does not know it',
  'copy-partial': 'a stale partial file remains',
  'copy-unchecked': 'stale partial files on a disk that was away were not looked for since',
  'copy-recorded': 'the catalogue records a copy of a file that is not restored',
  'link-missing': 'a restored file has no link at its archive path, or one to another target',
  'link-left': 'a link at the archive path of a file that is not restored leads to a copy',
  'link-foreign': 'something that another user had at an archive path is gone, or replaced',
  'file-doubted': 'a file became UNVERIFIED, and nobody changed what is at its path',
  'file-restoring': 'a file is RESTORING',
  'file-unheld': 'no live request contains a restored file',
  'directory-empty': 'a directory that was made for copies is empty',
  'clone-acts': 'a copy of the database is not fenced, or has used a library or sent something',
  'drive-twice': 'two engines had a drive at the same time',
  'process-stuck': 'a process did not end when asked to',
  'answer-internal': 'a call returned an internal error',
  'token-refused': 'a valid token was rejected',
  'token-revived': 'a token was accepted more than 5 s after its revocation was confirmed',
  'recall-running': 'a recall runs',
  'recall-unheld': 'no file of a request of a live request waits for a recall',
  'disk-used': 'the used bytes of a disk are not the sum of its copies',
  'disk-reserved': 'the reserved bytes of a disk are not the sum of its running recalls',
  'mail-missing': 'mail was due and was not queued',
  'mail-unsent': 'mail was queued and not sent',
  'mail-unseen': 'mail counts as sent, and the SMTP server has not received it',
  'mail-unknown': 'the SMTP server received an email that was not queued, or for another recipient',
  'mail-unasked': 'mail was queued for a request without an address for it',
  'webhook-missing': 'something happened to a request, and a webhook has no message of it, or another one',
  'webhook-twice': 'a webhook has more messages of a request than are due',
  'webhook-unsent': 'a webhook message was not sent',
  'webhook-unseen': 'a webhook message counts as sent, and never arrived',
  'webhook-unknown': 'a webhook message arrived that was not written',
  'webhook-unsigned': 'a webhook message is not signed with the secret of its webhook',
  'webhook-off': 'a webhook was switched off although its receiver was up at times',
  'progress-back': 'the progress of a request went back within one of its lives',
  'progress-last': 'the last progress event of a request differs from the request',
  'event-unnumbered': 'a committed event has no number, and is never published',
  'stage-chain': 'the stage events of a file do not follow from each other',
  'stage-illegal': 'a stage event reports a move that does not exist',
  'stage-last': 'the last stage event of a file leads to another stage than it has',
  'staging-open': 'a file is still requested from a staging library, and no request waits for it',
  'staging-left': 'the system behind a staging library keeps a file for Tapegate, which does not know that',
  'staging-kept': 'a staging library keeps a file until another time than recorded',
  'verify-missed': 'a tape copy could be confirmed and is not, without a recorded reason',
  'verify-wrong': 'a tape copy with other bytes counts as confirmed',
  'watch-cut': 'a subscription was completed before its request had finished',
  'watch-missed': 'a subscription skipped an event',
  'watch-order': 'a subscription repeated an event, or sent it after a later one',
  'watch-unknown': 'a subscription sent an event that does not exist, or of another request',
} as const;

export type ViolationKind = keyof typeof violationKinds;

export interface Violation {
  kind: ViolationKind;
  text: string;
}

export type Report = (kind: ViolationKind, text: string) => void;

export function check(facts: Facts): Violation[] {
  const violations: Violation[] = [];
  const report: Report = (kind, text) => violations.push({ kind, text });
  const index = indexFacts(facts);
  checkRequests(facts, index, report);
  checkStageRequests(facts, index, report);
  checkCopies(facts, index, report);
  checkTapeCopies(facts, report);
  checkDirectories(facts, index, report);
  checkLinks(facts, index, report);
  checkMail(facts, index, report);
  checkWebhooks(facts, index, report);
  checkEvents(facts, index, report);
  checkWatches(facts, index, report);
  checkStaging(facts, report);
  const { wrongResponses, stuck, doubleClaims, earlyEnds, cloneActions } = facts.observed;
  for (const { kind, text } of wrongResponses) report(kind, text);
  for (const text of stuck) report('process-stuck', text);
  for (const text of doubleClaims) report('drive-twice', text);
  for (const text of earlyEnds) report('request-early', text);
  for (const text of cloneActions) report('clone-acts', text);
  return violations;
}

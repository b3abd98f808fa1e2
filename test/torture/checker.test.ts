/** Adds each kind of violation separately to a settled system, and expects the checker to find it. */
import { symlinkSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { makeTempDir } from '../support/temp-dir.js';
import type { ViolationKind } from './checker.js';
import {
  ADD_LIBRARY,
  act,
  addEvent,
  addMessage,
  addRecall,
  addSecondCopy,
  addStageRequest,
  addStaging,
  addTapeCopy,
  app,
  bytesOf,
  change,
  changeLinks,
  DEMAND,
  deleteAudit,
  exclude,
  FORGET,
  findPlanted,
  forget,
  ids,
  LEAVES,
  library,
  loseCopy,
  moveGone,
  OTHER,
  observe,
  placeOf,
  publish,
  readEvents,
  receive,
  STAGE_REQUEST,
  type Steps,
  set,
  setComplete,
  setFailed,
  setFile,
  setMessage,
  showStageRequest,
  stage,
  useSettledSystem,
  VERSION,
  waitAgain,
  watch,
  wrong,
  ZEROS,
} from './planting.js';
import { READ_DOUBLE_CLAIMS, WATCH_CLAIMS } from './processes.js';

useSettledSystem();

/**
 * Violations by kind and description. Each test has a system with one violation only.
 * The doctor's own tests cover the doctor's findings.
 */
const faults: Record<Exclude<ViolationKind, 'unsettled' | 'doctor'>, Record<string, Steps>> = {
  'request-file-open': {
    'a file of a request of a live request waits': [
      `UPDATE request_file SET state = 'WAITING' WHERE request_id = :complete`,
      change('complete', 'files_on_disk = 0, bytes_on_disk = 0'),
      ({ observed }) => observed.revivals.set(ids.complete, 1),
    ],
  },
  'request-file-unexplained': {
    'a failed file of a request has no text': setFailed('error = NULL'),
    'a failed file of a request has no class': setFailed('error_class = NULL'),
  },
  'request-file-without-copy': {
    'a file of a request is ON_DISK of a file on tape': [
      setFailed(`state = 'ON_DISK', error_class = NULL, error = NULL`),
      change('partial', `state = 'COMPLETED', files_on_disk = 2, files_failed = 0, bytes_on_disk = bytes_total`),
    ],
  },
  'request-file-not-satisfied': {
    'a file of a request is FAILED of a file on disk': [
      `UPDATE request_file SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' WHERE request_id = :complete`,
      change('complete', `state = 'PARTIAL', files_on_disk = 0, files_failed = 1, bytes_on_disk = 0`),
    ],
  },
  'request-file-size': {
    'a file of a request is charged a byte more than its file has': [
      'UPDATE request_file SET size = size + 1 WHERE request_id = :complete',
      setComplete('bytes_total = bytes_total + 1, bytes_on_disk = bytes_on_disk + 1'),
      `UPDATE quota SET used = used + 1 WHERE "user" = 'alice'`,
      publish('complete'),
    ],
  },
  'join-missed': {
    'a path of the catalogue is awaited as unknown': `UPDATE unresolved_path SET path = '/s/gone'`,
    'a path is excluded although the quota has room': exclude('QUOTA_FULL'),
    'a pattern matches a file that its request does not contain': setComplete(`pattern = '/s/'`),
    'a file was excluded from a pattern, and there is room': setComplete(`pattern = '/s/', excluded_size = 1`),
    'a path is excluded although the request has no limit': exclude('LIMIT'),
    'a path is excluded by a limit that is not reached': [
      exclude('LIMIT'),
      'UPDATE request SET max_files = files_total + 1',
    ],
  },
  'withdrawn-wanted': {
    'a withdrawn path waits for room in the quota': [exclude('QUOTA_FULL'), setFile('/s/gone', 'withdrawn_at = now()')],
  },
  'copy-untried': { 'a failed file has a second copy': addSecondCopy('/s/bad') },
  'volume-left': {
    'a file is on a retired volume': 'UPDATE volume SET retired_at = now()',
    'a second copy is on a retired volume': addSecondCopy('/s/a', 'now()'),
  },
  'withdrawn-never': {
    'a file of a request says that a file was withdrawn': setFailed(
      `error_class = 'POLICY', error = 'withdrawn from the archive'`,
    ),
  },
  'request-file-lost': {
    'a request has another file than the one that moved for it': `UPDATE request_file SET file_id = (SELECT id FROM tape_file WHERE path = '/s/bad') WHERE request_id = :cancelled`,
    'a file of a live request is marked as one of an ended request': 'UPDATE request_file SET is_ended = true',
  },
  'request-early': {
    'a request expired days before its retention': change(
      'cancelled',
      `state = 'EXPIRED', retention = now() + interval '3 days'`,
    ),
    'the database recorded one while its clock was wrong': observe({ earlyEnds: ['request 1 expired early'] }),
  },
  'request-times': {
    'a request has its last file in a year': setComplete(`last_files_on_disk = now() + interval '1 year'`),
    'a request ends before it starts': setComplete(
      `tapestore_request_end = tapestore_request_start - interval '1 microsecond'`,
    ),
    'a request starts before it is made': setComplete(
      `request_date = tapestore_request_start + interval '1 microsecond'`,
    ),
    'a done request has not ended': setComplete('tapestore_request_end = NULL'),
    'a request ends without a start': setComplete('tapestore_request_start = NULL'),
    'the last file comes before the first': setComplete(
      `last_files_on_disk = first_files_on_disk - interval '1 microsecond'`,
    ),
    'there is a last file and no first': setComplete('first_files_on_disk = NULL'),
    'a done request has no last file': setComplete('last_files_on_disk = NULL'),
  },
  'copy-bytes': {
    'a moved file has the bytes of its old position': observe({ versions: new Map([['/s/a', [VERSION]]]) }),
    'a restored file has one other bit, and its own time': async ({ run, replace }) => {
      const bytes = bytesOf('/s/a');
      bytes[500] = (bytes[500] ?? 0) ^ 1;
      const { ino, mtimeNs } = replace('/s/a', bytes);
      await run(setFile('/s/a', `disk_ino = ${ino}, disk_mtime_ns = ${mtimeNs}`));
    },
  },
  'checksum-missing': { 'a restored file has no checksum': setFile('/s/a', 'checksum = NULL') },
  'checksum-wrong': {
    'a first restore recorded the checksum of other bytes': setFile(
      '/s/a',
      `checksum = 'sha256:00', checksum_taken = true`,
    ),
  },
  'request-lost': { 'an acknowledged request does not exist': observe({ acknowledged: new Set([999_999]) }) },
  'request-counts': {
    'an ended request counts a file more than it contains': change('cancelled', 'files_total = files_total + 1'),
    'a live request counts a byte more than it contains': change('complete', 'bytes_total = bytes_total + 1'),
  },
  'request-state': {
    'a request without failed files is PARTIAL': change('complete', `state = 'PARTIAL'`),
  },
  'request-unreleased': { 'an ended request is not released': set('cancelled', 'is_released = false') },
  'audit-missing': {
    'the creation of a request has no row': deleteAudit('createRequest', 'complete'),
    'the cancellation of a request has no row': deleteAudit('cancelRequest', 'cancelled'),
    'a change that was confirmed twice has one row': act('createRequest', 'cancelled', 2),
    'a confirmed change has no row': act('revokeToken', 'complete', 1),
  },
  'audit-twice': {
    'a change that was requested once has two rows': [
      act('cancelRequest', 'cancelled', 1),
      `INSERT INTO audit (at, who, way, operation, kind, object, result)
       SELECT at, who, way, operation, kind, object, result FROM audit WHERE operation = 'cancelRequest'`,
    ],
  },
  'quota-used': { 'a quota is charged a byte too much': 'UPDATE quota SET used = used + 1 WHERE id = 1' },
  'quota-counts': {
    'a quota counts a path that is no longer awaited': `DELETE FROM unresolved_path WHERE path = '/s/never'`,
  },
  'copy-missing': { 'a restored file is gone': ({ replace }) => replace('/s/a') },
  'copy-inode': {
    'a restored file is another one with the same bytes and time': async ({ run, replace }) => {
      const { mtimeNs } = replace('/s/a', bytesOf('/s/a'));
      await run(setFile('/s/a', `disk_mtime_ns = ${mtimeNs}`));
    },
  },
  'copy-time': { 'a restored file was written again': ({ replace }) => replace('/s/a', bytesOf('/s/a')) },
  'copy-unknown': {
    'a file is on the restore disk that is not in the catalogue': ({ replace }) => replace('/s/x', OTHER),
    'a file on tape is there': ({ replace }) => replace('/s/gone', OTHER),
  },
  'copy-partial': { 'a partial file remains': ({ replace }) => replace('/s/.tapegate-4-1.part', OTHER) },
  'copy-unchecked': {
    'a disk was not checked for stale partial files': `INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size)
        SELECT id, 1, 1, 1, size FROM tape_file WHERE path = '/s/gone'`,
  },
  'copy-recorded': {
    'a copy of a file on tape is recorded': [
      setFile('/s/gone', 'disk_id = 1'),
      'UPDATE restore_disk SET used = used + 1000',
    ],
  },
  'link-missing': {
    'there is no link at an archive path': observe({ archivePaths: { root: makeTempDir(), losses: [] } }),
  },
  'link-left': {
    'a link leads to where a copy was': changeLinks((root) =>
      symlinkSync(placeOf('s/gone'), path.join(root, 's/gone')),
    ),
  },
  'link-foreign': {
    "another user's file is gone": ({ observed }) =>
      observed.archivePaths.losses.push('/archive/s/own was file own, and is nothing'),
  },
  'file-doubted': {
    'a file that nobody changed went through UNVERIFIED': moveGone('TA', 'AR', 'RU', 'UD', 'DT'),
    'a file became UNVERIFIED while it was being restored': moveGone('TA', 'AU', 'UT'),
    'a file became UNVERIFIED while its copy was being removed': moveGone('TA', 'AR', 'RT', 'TU', 'UT'),
  },
  'file-restoring': {
    'a file is RESTORING without a recall': [setFile('/s/gone', `stage = 'RESTORING'`), moveGone('TA')],
  },
  'file-unheld': {
    'only an ended request holds a restored file': [
      observe({ archivePaths: { root: undefined, losses: [] } }),
      async ({ run, replace }) => {
        const { ino, mtimeNs } = replace('/s/gone', library.volumes.get('V00001')?.get(4n));
        await run(setFile('/s/gone', `stage = 'RESTORED', disk_id = 1, disk_ino = ${ino}, disk_mtime_ns = ${mtimeNs}`));
      },
      'UPDATE restore_disk SET used = used + 1000',
      moveGone('TA', 'AR'),
    ],
    'a restored file was released early': [
      `UPDATE request_file SET state = 'RELEASED' WHERE request_id = :complete`,
      setComplete('files_total = 0, files_on_disk = 0, bytes_total = 0, bytes_on_disk = 0'),
      `UPDATE quota SET used = 0 WHERE "user" = 'alice'`,
      publish('complete'),
    ],
  },
  'request-file-unnamed': {
    'an error does not name a path': setFailed(`error_class = 'POLICY', error = 'EACCES: permission denied'`),
    'an error names a path by a number': async ({ run }) =>
      run(setFailed(`error_class = 'POLICY', error = 'EEXIST: /proc/self/fd/7/a, in ${app.restoreDir}'`)),
  },
  'directory-empty': { 'a directory that was made is empty': ({ makeDirectory }) => makeDirectory('/s/empty') },

  'drive-twice': {
    'two engines claim a drive': [
      WATCH_CLAIMS,
      'UPDATE drive SET engine_id = NULL, lease_until = NULL',
      ...[1, 2].map(
        (n) => `UPDATE drive SET engine_id = '00000000-0000-4000-8000-00000000000${n}', epoch = epoch + 1,
          lease_until = timezone('utc', clock_timestamp()) + interval '10 minutes' WHERE name = 'drive-1'`,
      ),
      async ({ run, observed }) => {
        observed.doubleClaims = (await run<{ text: string }>(READ_DOUBLE_CLAIMS)).map(({ text }) => text);
      },
    ],
  },
  'staging-open': Object.fromEntries(
    ['INTENDED', 'ASKED', 'READY', 'RELEASING'].map((state) => [
      `a file is ${state} without a need`,
      [ADD_LIBRARY, addStaging(state)],
    ]),
  ),
  'staging-left': {
    'a named demand was forgotten': stage('demanded', [addStaging('ASKED', DEMAND), FORGET]),
    'a demand whose name came late was forgotten': stage('demanded', [
      addStaging('INTENDED'),
      `UPDATE staging SET remote_id = 'demand-1'`,
      FORGET,
    ]),
    'a demand of a system without names was forgotten': stage('demanded', [addStaging('ASKED'), FORGET], {
      ids: false,
    }),
    'a file is recorded as kept that is still demanded': stage('demanded', [
      addStaging('KEPT', { ...DEMAND, until: 'now()' }),
    ]),
    'a kept file was forgotten': stage('kept', []),
  },
  'staging-kept': {
    'a file is kept until another time': stage('kept', [addStaging('KEPT', { until: `'2100-01-01T00:00:00'` })]),
    'a file is kept until an unknown time': stage('kept', [addStaging('KEPT')]),
  },
  'stage-request-lost': {
    'a request lives for an unknown stage request': [
      setComplete(`label = 'stage ${STAGE_REQUEST}'`),
      observe({ stageRequests: new Set([STAGE_REQUEST]) }),
    ],
  },
  'stage-request-open': {
    'a file is still to come': showStageRequest(false, 'SUBMITTED'),
    'all files have ended, and the stage request has not': showStageRequest(false, 'COMPLETED'),
  },
  'stage-request-file': {
    'a file is not in its request': addStageRequest('/s/gone'),
    'a file on disk is shown as failed': [addStageRequest('/s/a'), showStageRequest(true, 'FAILED')],
  },
  'clone-acts': { 'a copy of the database sent an email': observe({ cloneActions: ['clone-1: it sent an email'] }) },
  'process-stuck': { 'an engine does not end': observe({ stuck: ['engine-1 has not ended'] }) },
  'token-refused': wrong('token-refused'),
  'token-revived': wrong('token-revived'),
  'answer-internal': wrong('answer-internal'),
  'recall-running': { 'a recall runs': addRecall('/s/gone', 'RUNNING') },
  'recall-unheld': {
    'a recall waits for an ended request': addRecall('/s/gone', 'WAITING'),
    'a recall waits for a failed file of a request': addRecall('/s/bad', 'WAITING'),
  },
  'disk-used': { 'a disk uses a byte too much': 'UPDATE restore_disk SET used = used + 1' },
  'disk-reserved': { 'a disk reserves a byte': 'UPDATE restore_disk SET reserved = 1' },
  'mail-missing': {
    'mail was not queued': forget('notification', 'mails'),
  },
  'mail-unsent': { 'mail is PENDING': `UPDATE notification SET state = 'PENDING' WHERE id = 1` },
  'mail-unseen': { 'sent mail never arrived': ({ observed }) => observed.mails.shift() },
  'mail-unknown': {
    'a second email came under another Message-ID': ({ observed }) =>
      observed.mails.push({ messageId: '<another@localhost>', to: 'a@example.org' }),
    'an email came to another recipient as well': ({ observed }) =>
      observed.mails.push(...observed.mails.map((sent) => ({ ...sent, to: 'x@example.org' }))),
  },
  'mail-unasked': {
    'mail was sent for a request without an address': [
      `INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, state, next_try_at, created_at)
       VALUES (:partial, 'FIRST_FILE', 'b@example.org', '', '', '<unasked@localhost>', 'SENT', now(), now())`,
      ({ observed }) => observed.mails.push({ messageId: '<unasked@localhost>', to: 'b@example.org' }),
    ],
  },
  'webhook-missing': {
    'a message was not written': forget('webhook_message', 'messages'),
    'a failed request is reported as finished': `UPDATE webhook_message SET type = 'request.completed' WHERE type = 'request.partial'`,
  },
  'webhook-twice': {
    'a message was written twice': [
      addMessage(
        1,
        'again',
        `type, request_id, '{}', 'SENT', now(), now() FROM webhook_message
        WHERE webhook_id = 1 AND type = 'request.started' ORDER BY id LIMIT 1`,
      ),
      ({ observed }) => observed.messages.push({ webhookId: 1, messageId: 'again', body: '{}', isSigned: true }),
    ],
    'a webhook of alice has a message on bob': [
      addMessage(2, 'bob', `'request.completed', :partial, '{}', 'SENT', now(), now()`),
      ({ observed }) => observed.messages.push({ webhookId: 2, messageId: 'bob', body: '{}', isSigned: true }),
    ],
  },
  'webhook-unsent': {
    'a message is PENDING': setMessage(`state = 'PENDING'`),
    'a message was given up': setMessage(`state = 'GIVEN_UP'`),
  },
  'webhook-unseen': { 'a sent message never arrived': ({ observed }) => observed.messages.shift() },
  'webhook-unknown': {
    'an unknown message arrived': ({ observed }) =>
      observed.messages.push({ webhookId: 1, messageId: 'x', body: '{}', isSigned: true }),
    'a message has another body than was written': receive({ body: '{"other":1}' }),
  },
  'webhook-unsigned': { 'a message has a wrong signature': receive({ isSigned: false }) },
  'webhook-off': { 'a webhook is off': 'UPDATE webhook SET disabled_at = now() WHERE id = 1' },
  'progress-back': {
    'a failed file waits again without a reason': waitAgain({ isMoved: false }),
    'a restored file waits again, and nobody removed its copy': loseCopy({ times: 1, removals: 0 }),
    'a restored file waits again twice, and its copy was removed once': loseCopy({ times: 2, removals: 1 }),
    'an event reports fewer files than the one before': [
      change('complete', 'files_on_disk = 0, bytes_on_disk = 0'),
      change('complete', 'files_on_disk = 1, bytes_on_disk = bytes_total'),
    ],
  },
  'progress-last': {
    'the last event reports fewer bytes than there are': [
      change('complete', 'bytes_on_disk = 0'),
      setComplete('bytes_on_disk = bytes_total'),
    ],
  },
  'event-unnumbered': { 'an event is never published': addEvent('complete') },
  'stage-chain': { 'a file leaves a stage that it did not have': moveGone('AR', 'RT') },
  'stage-illegal': { 'a file is RESTORED without RESTORING': moveGone('TR', 'RT') },
  'stage-last': { 'a file has a stage without an event': setFile('/s/gone', `stage = 'ONDISK'`) },
  'verify-missed': {
    'a tape copy is not confirmed': addTapeCopy('UNVERIFIED', 'NULL'),
    'a tape copy waits for a retry': [
      addTapeCopy('UNVERIFIED', 'NULL'),
      `INSERT INTO verification (file_id, attempts, error_class, error, at, not_before)
        SELECT id, 1, 'MEDIA', 'torn', now(), now() FROM tape_file WHERE path = '/u/copy'`,
    ],
  },
  'verify-wrong': {
    'a tape copy with other bytes is confirmed': [
      addTapeCopy('ONDISK', 'now()'),
      observe({ miswritten: new Set(['/u/copy']) }),
    ],
  },
  'watch-cut': { 'a watch is completed before its request': watch((all) => all, 'complete', true) },
  'watch-missed': {
    'an event in the middle is skipped': watch((all) => all.toSpliced(1, 1)),
    'the last event of a request is skipped': watch((all) => all.slice(0, -1), 'complete'),
  },
  'watch-order': {
    'an event is repeated': watch((all) => [...all, ...all.slice(-1)]),
    'events come in another order': watch((all) => all.toReversed()),
  },
  'watch-unknown': {
    'an event of another request is received': watch(async (own, soil) => {
      return [...own, ...(await readEvents(soil, ids.partial))].sort((a, b) => Number(a - b));
    }, 'complete'),
  },
};

const all = Object.entries(faults).flatMap(([kind, each]) =>
  Object.entries(each).map(([what, steps]) => ({ kind: kind as ViolationKind, what, steps })),
);

test.each(all)('$kind is found, and nothing else, if $what', async ({ kind, steps }) => {
  expect(await findPlanted(steps, { keepsWebhooks: kind.startsWith('webhook') })).toEqual([kind]);
});

/** Situations that look like violations but are allowed. */
const harmless: Record<string, Steps> = {
  'the system has settled': [
    watch((all) => all),
    // the request was complete when its watch ended, and was cancelled later
    watch((all) => all.slice(0, -1), 'cancelled'),
    ({ observed }) => Object.assign(observed.watches[1] ?? {}, { isOver: true }),
  ],
  'an interrupted retirement is not confirmed': [
    'UPDATE volume SET retired_at = now()',
    observe({ openRetirements: new Set(['V00001']) }),
  ],
  'a copy has the bytes of a version whose volume was retired': [
    ({ observed }) => {
      const source = observed.sources.get('/s/a') ?? VERSION;
      observed.versions.set('/s/a', [{ ...VERSION, ...source }]);
      observed.sources.set('/s/a', { ...source, sha256: ZEROS });
      observed.withdrawn.add('/s/a');
    },
    setFile('/s/a', 'volume_id = NULL, position = NULL, withdrawn_at = now()'),
  ],
  'a directory is empty because its copy was removed outside Tapegate': [
    ({ makeDirectory }) => makeDirectory('/s/emptied'),
    ({ replace }) => replace('/s/a'),
    setFile('/s/a', `path = '/s/emptied/a'`),
    ({ observed }) => observed.changedPaths.add(placeOf('s/emptied/a')),
    observe({ archivePaths: { root: undefined, losses: [] } }),
  ],
  'a demand with an unknown name ends with its lifetime': stage('demanded', []),
  'a demand was recorded for another file': stage('demanded', [addStaging('ASKED', { name: `'demand-2'` }), FORGET]),
  'a copy that was removed outside Tapegate is recalled': loseCopy({ times: 2, removals: 2 }),
  'a failed file of a moved volume waits again': waitAgain({ isMoved: true }),
  'a failed file of a moved volume waits again, and is released later': waitAgain({ isMoved: true, isReleased: true }),
  'a file is kept until the recorded time': stage('kept', [
    addStaging('KEPT', { until: `'${LEAVES.toISOString().slice(0, -1)}'` }),
  ]),
};

test.each(Object.entries(harmless))('%s: no violation is found', async (_what, steps) => {
  expect(await findPlanted(steps)).toEqual([]);
});

/** Requests, their holds, what they are charged, and the recalls that serve them. */
import { onDiskStages } from '../../src/stages.js';
import { isBefore } from '../../src/time.js';
import { groupBy, type Index, isLive, sumOf } from './fact-index.js';
import type { Facts, FileFact, HoldFact, RequestFact } from './facts.js';
import type { Report } from './violations.js';

export function checkRequests(facts: Facts, index: Index, report: Report): void {
  for (const request of facts.requests) {
    const holds = index.holdsOf.get(request.id) ?? [];
    if (isLive(request)) for (const hold of holds) checkHold(hold, index.files.get(hold.fileId), report);
    if (isLive(request)) checkJoined(facts, index, request, report);
    checkCounts(request, holds, report);
    checkForm(request, report);
    checkState(request, report);
    checkTimes(request, report);
    checkClock(facts, request, report);
    if (!request.isReleased && !isLive(request)) {
      report('request-unreleased', `request ${request.id} has ended as ${request.state} and is not released`);
    }
  }
  for (const id of facts.outside.acknowledged) {
    if (!index.requests.has(id)) report('request-lost', `request ${id} was answered and does not exist`);
  }
  checkWithdrawn(facts, index, report);
  checkHeld(facts, report);
  checkQuotas(facts, index, report);
  checkRecalls(facts, index, report);
}

function checkHold(hold: HoldFact, file: FileFact | undefined, report: Report): void {
  if (!file) return; // the database does not let that happen
  const name = `the hold of request ${hold.requestId} on file ${hold.fileId}`;
  const isOnDisk = onDiskStages.includes(file.stage);
  if (hold.size !== file.size) report('hold-size', `${name} is charged ${hold.size} bytes, the file has ${file.size}`);
  if (hold.state === 'ON_DISK') {
    if (!isOnDisk) report('hold-without-copy', `${name} is ON_DISK, and the file is ${file.stage}`);
  } else if (hold.state === 'FAILED') {
    if (!hold.errorClass || !hold.error) report('hold-unexplained', `${name} is FAILED without a reason`);
    if (file.hasOther && !file.isWithdrawn && ['MEDIA', 'PERMANENT', 'TRANSIENT'].includes(hold.errorClass ?? '')) {
      report('copy-untried', `${name} is FAILED (${hold.error}), and the other copy was not tried`);
    }
    if (isOnDisk) report('hold-not-satisfied', `${name} is FAILED (${hold.error}), and the file is ${file.stage}`);
  } else report('hold-open', `${name} is ${hold.state}, the file is ${file.stage}`);
}

/**
 * A pattern takes each file that it matches; a path that is awaited as unknown is not in the catalogue. LIMIT is said where what
 * the request holds comes to its limit, and not where a full quota keeps files out before that.
 */
function checkJoined(facts: Facts, index: Index, request: RequestFact, report: Report): void {
  const awaited = facts.awaited.filter((path) => path.requestId === request.id);
  const holds = [...(index.holdsOf.get(request.id) ?? []), ...(index.releasedOf.get(request.id) ?? [])];
  const known = new Set(holds.map((hold) => index.files.get(hold.fileId)?.path));
  for (const { path } of awaited) known.add(path);
  for (const { path, reason } of awaited) {
    if (reason === 'UNKNOWN' && index.filesByPath.get(path)?.isWithdrawn === false) {
      report('join-missed', `request ${request.id} awaits ${path} as unknown, and the catalogue has it`);
    }
  }
  const beyond = awaited.filter(({ path, reason }) => reason === 'LIMIT' && index.filesByPath.has(path));
  const first = index.filesByPath.get(beyond.map(({ path }) => path).sort()[0] ?? '');
  if (first && isWithinLimits(request, first)) {
    report('join-missed', `request ${request.id} has no room for ${first.path}, which is within its limits`);
  }
  if (request.pattern === '') return;
  if (request.leftOutSize !== null) {
    checkLeftOut(facts, { ...request, size: request.leftOutSize }, report);
    return;
  }
  for (const { path, isWithdrawn } of facts.files) {
    if (!isWithdrawn && path.includes(request.pattern) && !known.has(path)) {
      report('join-missed', `request ${request.id} matches ${path} and neither holds nor awaits it`);
    }
  }
}

/** What stands before the path that a forgotten file had. */
const FORGOTTEN = /^\/\.tapegate-forgotten\/\d+/;

function checkWithdrawn(facts: Facts, index: Index, report: Report): void {
  for (const { requestId, path, reason } of facts.awaited) {
    const isOfLive = isLive(index.requests.get(requestId));
    if (!isOfLive || reason === 'UNKNOWN' || !index.filesByPath.get(path)?.isWithdrawn) continue;
    report('withdrawn-wanted', `request ${requestId} awaits ${path}, which is withdrawn, as ${reason}`);
  }
  for (const { fileId } of facts.recalls) {
    if (index.files.get(fileId)?.isWithdrawn)
      report('withdrawn-wanted', `file ${fileId} is withdrawn, and is recalled`);
  }
  for (const { requestId, fileId, error } of facts.holds) {
    const path = (index.files.get(fileId)?.path ?? '').replace(FORGOTTEN, '');
    if (!error?.startsWith('withdrawn from') || facts.outside.withdrawn.has(path)) continue;
    report('withdrawn-never', `the hold of request ${requestId} on ${path} has failed: ${error}`);
  }
}

/** What was left out without being noted is looked for when there is room, whatever is noted and has none. */
function checkLeftOut(facts: Facts, request: RequestFact & { size: bigint }, report: Report): void {
  const quota = facts.quotas.find(({ user }) => user === request.user);
  if (!quota || quota.used + request.size > quota.size || !isWithinLimits(request, request)) return;
  report(
    'join-missed',
    `request ${request.id} was left out of files of ${request.size} bytes, for which there is room`,
  );
}

function checkForm({ id, form, hasRows, hasBundles }: RequestFact, report: Report): void {
  if (form === 'ROWS' && hasBundles) report('request-form', `request ${id} is kept in rows, and has bundles`);
  if (form === 'COMPACT' && hasRows) report('request-form', `request ${id} is compact, and has rows`);
}

/** Whatever form it is in: a request has each file that came or went for it, and each once. */
function checkHeld(facts: Facts, report: Report): void {
  const held = new Set<string>();
  for (const { requestId, fileId } of facts.holds) {
    if (held.has(`${requestId}/${fileId}`)) report('hold-lost', `request ${requestId} has file ${fileId} twice`);
    held.add(`${requestId}/${fileId}`);
  }
  const lost = new Set(
    facts.stageEvents
      .flatMap(({ fileId, requestIds }) => requestIds.map((requestId) => `${requestId}/${fileId}`))
      .filter((key) => !held.has(key)),
  );
  for (const key of lost) report('hold-lost', `a file moved for a request that does not have it: ${key}`);
}

function isWithinLimits(
  { filesTotal, bytesTotal, maxFiles, maxBytes }: RequestFact,
  file: Pick<FileFact, 'size'>,
): boolean {
  return (maxFiles === null || filesTotal < maxFiles) && (maxBytes === null || bytesTotal + file.size <= maxBytes);
}

function checkCounts(request: RequestFact, holds: readonly HoldFact[], report: Report): void {
  const at = (state: HoldFact['state']) => holds.filter((hold) => hold.state === state);
  const figures = {
    filesTotal: holds.length,
    filesOnDisk: at('ON_DISK').length,
    filesFailed: at('FAILED').length,
    bytesTotal: sumOf(holds, (hold) => hold.size),
    bytesOnDisk: sumOf(at('ON_DISK'), (hold) => hold.size),
  };
  for (const [name, expected] of Object.entries(figures)) {
    const stored = request[name as keyof typeof figures];
    if (stored === expected) continue;
    report(
      'request-counts',
      `request ${request.id} (${request.state}) has ${name} ${stored}, its holds say ${expected}`,
    );
  }
}

/** A settled live request has nothing left to do. */
function checkState(request: RequestFact, report: Report): void {
  if (!isLive(request)) return;
  const expected = request.filesFailed > 0 ? 'PARTIAL' : 'COMPLETED';
  if (request.state !== expected) {
    const counts = `${request.filesOnDisk} on disk and ${request.filesFailed} failed of ${request.filesTotal}`;
    report('request-state', `request ${request.id} is ${request.state}, with ${counts}`);
  }
}

function checkTimes(request: RequestFact, report: Report): void {
  const { start, end, firstFiles, lastFiles } = request;
  const fault = (text: string) => report('request-times', `request ${request.id} (${request.state}) ${text}`);
  if (start !== null && isBefore(start, request.requestDate))
    fault(`starts at ${start}, before ${request.requestDate}`);
  if (end !== null && start === null) fault(`ends at ${end} and has never started`);
  if (end !== null && start !== null && isBefore(end, start)) fault(`ends at ${end}, before its start at ${start}`);
  if (lastFiles !== null && firstFiles === null) fault(`has its last file at ${lastFiles}, and never a first`);
  if (lastFiles !== null && firstFiles !== null && isBefore(lastFiles, firstFiles)) {
    fault(`has its last file at ${lastFiles}, before its first at ${firstFiles}`);
  }
  if (request.filesOnDisk > 0 && firstFiles === null) fault('has files on disk, and never a first one');
  if (!isLive(request)) return;
  if (request.filesOnDisk > 0 && lastFiles === null) fault('is done, and has no last file');
  if (start !== null && end === null) fault(`is done, started at ${start}, and has not ended`);
}

/** However wrong the clocks of the engines were. */
function checkClock({ now }: Facts, request: RequestFact, report: Report): void {
  const { id, state, retention, requestDate, start, end, firstFiles, lastFiles } = request;
  if (state === 'EXPIRED' && isBefore(now, retention)) {
    report('request-early', `request ${id} is EXPIRED at ${now}, and is to be kept until ${retention}`);
  }
  const future = [requestDate, start, end, firstFiles, lastFiles].find((time) => time !== null && isBefore(now, time));
  if (future) report('request-times', `request ${id} has the time ${future}, and it is ${now}`);
}

function checkQuotas(facts: Facts, index: Index, report: Report): void {
  const live = facts.requests.filter(isLive);
  const awaiting = facts.awaited
    .filter(({ requestId }) => isLive(index.requests.get(requestId)))
    .map((path) => ({ ...path, file: index.filesByPath.get(path.path) }))
    .map(({ file, ...path }) => ({ ...path, file: file?.isWithdrawn ? undefined : file }))
    .sort((a, b) => a.requestId - b.requestId || (a.path < b.path ? -1 : 1));
  for (const quota of facts.quotas) {
    const ids = new Set(live.filter((request) => request.user === quota.user).map((request) => request.id));
    const held = sumOf(
      [...ids].flatMap((id) => index.holdsOf.get(id) ?? []),
      (hold) => hold.size,
    );
    if (quota.used !== held) {
      report('quota-used', `the quota of ${quota.user} has ${quota.used} bytes in use, its live requests hold ${held}`);
    }
    const own = live.filter(({ id }) => ids.has(id));
    const counts = {
      openRequests: own.length,
      standingPatterns: own.filter(({ pattern }) => pattern !== '').length,
      awaitedPaths: awaiting.filter(({ requestId, reason }) => ids.has(requestId) && reason === 'UNKNOWN').length,
    };
    for (const [name, expected] of Object.entries(counts)) {
      const stored = quota[name as keyof typeof counts];
      if (stored === expected) continue;
      report('quota-counts', `the quota of ${quota.user} has ${name} ${stored}, its live requests say ${expected}`);
    }
    // what joins is taken in order, up to the first that does not fit; what is beyond a limit takes no room
    const next = awaiting.find(({ requestId, file, reason }) => ids.has(requestId) && file && reason !== 'LIMIT');
    if (next?.reason === 'QUOTA_FULL' && next.file && quota.used + next.file.size <= quota.size) {
      const room = quota.size - quota.used;
      const needs = `${next.file.size} bytes, and ${room} of the quota of ${quota.user} are free`;
      report('join-missed', `request ${next.requestId} has no room for ${next.path}: it needs ${needs}`);
    }
  }
}

function checkRecalls(facts: Facts, index: Index, report: Report): void {
  const waiting = groupBy(
    facts.holds.filter((hold) => hold.state === 'WAITING' && isLive(index.requests.get(hold.requestId))),
    (hold) => hold.fileId,
  );
  for (const recall of facts.recalls) {
    if (recall.state === 'RUNNING') report('recall-running', `the recall of file ${recall.fileId} is RUNNING`);
    else if (!waiting.has(recall.fileId)) {
      report('recall-unheld', `nobody waits for the recall of file ${recall.fileId}`);
    }
  }
}

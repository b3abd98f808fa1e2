/** Checks requests, their files, quotas, the audit, and recalls. */

import { onDiskStages } from '../../src/core/stages.js';
import { isBefore } from '../../src/core/time.js';
import type { RequestFile } from '../../src/generated/prisma/client.js';
import type { Report } from './checker.js';
import { type Facts, type FileFact, type Index, isLive, isWithdrawn, nameAction, type RequestFact } from './facts.js';

export function checkRequests(facts: Facts, index: Index, report: Report): void {
  for (const request of facts.requests) {
    const files = index.requestFilesOf.get(request.id) ?? [];
    if (isLive(request))
      for (const requestFile of files) checkRequestFile(requestFile, index.files.get(requestFile.fileId), report);
    if (isLive(request)) checkJoined(facts, index, request, report);
    checkCounts(request, files, report);
    checkState(request, report);
    checkTimes(facts, request, report);
  }
  for (const id of facts.observed.acknowledged) {
    if (!index.requests.has(id)) report('request-lost', `request ${id} was acknowledged and does not exist`);
  }
  checkWithdrawn(facts, index, report);
  checkHeld(facts, report);
  checkErrors(facts, index, report);
  checkQuotas(facts, index, report);
  checkRecalls(facts, index, report);
  checkAudit(facts, report);
}

export const sumOf = <T>(items: readonly T[], bytesOf: (item: T) => bigint) =>
  items.reduce((sum, item) => sum + bytesOf(item), 0n);

function checkRequestFile(requestFile: RequestFile, file: FileFact | undefined, report: Report): void {
  if (!file) return; // a foreign key ensures that the file exists
  const name = `the file of a request of request ${requestFile.requestId} on file ${requestFile.fileId}`;
  const isOnDisk = onDiskStages.includes(file.stage);
  if (requestFile.isEnded) report('request-file-lost', `${name} is marked as one of an ended request`);
  if (requestFile.size !== file.size)
    report('request-file-size', `${name} is charged ${requestFile.size} bytes, the file has ${file.size}`);
  if (requestFile.state === 'ON_DISK') {
    if (!isOnDisk) report('request-file-without-copy', `${name} is ON_DISK, and the file is ${file.stage}`);
  } else if (requestFile.state === 'FAILED') {
    if (!requestFile.errorClass || !requestFile.error)
      report('request-file-unexplained', `${name} is FAILED without a reason`);
    const hasOther = file.copyVolumeId !== null && file.copyError === null;
    if (hasOther && !isWithdrawn(file) && ['MEDIA', 'PERMANENT', 'TRANSIENT'].includes(requestFile.errorClass ?? '')) {
      report('copy-untried', `${name} is FAILED (${requestFile.error}), and the other copy was not tried`);
    }
    if (isOnDisk)
      report('request-file-not-satisfied', `${name} is FAILED (${requestFile.error}), and the file is ${file.stage}`);
  } else report('request-file-open', `${name} is ${requestFile.state}, the file is ${file.stage}`);
}

/**
 * Checks that a pattern takes each matching file, and that unresolved paths are not in the catalogue.
 * A full quota may exclude a file before a limit of the request does.
 */
function checkJoined(facts: Facts, index: Index, request: RequestFact, report: Report): void {
  const unresolved = facts.unresolved.filter((path) => path.requestId === request.id);
  const files = [...(index.requestFilesOf.get(request.id) ?? []), ...(index.releasedOf.get(request.id) ?? [])];
  const known = new Set(files.map((requestFile) => index.files.get(requestFile.fileId)?.path));
  for (const { path, reason } of unresolved) {
    known.add(path);
    const file = index.filesByPath.get(path);
    if (reason === 'UNKNOWN' && file && !isWithdrawn(file)) {
      report('join-missed', `request ${request.id} awaits ${path} as unknown, and the catalogue has it`);
    }
  }
  const overLimit = unresolved.filter(({ path, reason }) => reason === 'LIMIT' && index.filesByPath.has(path));
  const first = index.filesByPath.get(overLimit.map(({ path }) => path).sort()[0] ?? '');
  if (first && isWithinLimits(request, first.size)) {
    report('join-missed', `request ${request.id} has no room for ${first.path}, which is within its limits`);
  }
  const { pattern, excludedSize } = request;
  if (pattern === '') return;
  if (excludedSize !== null) {
    const quota = facts.quotas.find(({ user }) => user === request.user);
    if (!quota || quota.used + excludedSize > quota.size || !isWithinLimits(request, excludedSize)) return;
    report('join-missed', `request ${request.id} excluded files of ${excludedSize} bytes, for which there is room`);
    return;
  }
  for (const file of facts.files) {
    if (isWithdrawn(file) || !file.path.includes(pattern) || known.has(file.path)) continue;
    report('join-missed', `request ${request.id} matches ${file.path} and neither contains nor waits for it`);
  }
}

function isWithinLimits({ filesTotal, bytesTotal, maxFiles, maxBytes }: RequestFact, size: bigint): boolean {
  return (maxFiles === null || filesTotal < maxFiles) && (maxBytes === null || bytesTotal + size <= maxBytes);
}

/** Path prefix of purged files. */
const PURGED = /^\/\.tapegate-purged\/\d+/;

function checkWithdrawn(facts: Facts, index: Index, report: Report): void {
  for (const { requestId, path, reason } of facts.unresolved) {
    const isOfLive = isLive(index.requests.get(requestId));
    if (!isOfLive || reason === 'UNKNOWN' || !isWithdrawn(index.filesByPath.get(path))) continue;
    report('withdrawn-wanted', `request ${requestId} awaits ${path}, which is withdrawn, as ${reason}`);
  }
  for (const { fileId } of facts.recalls) {
    if (isWithdrawn(index.files.get(fileId)))
      report('withdrawn-wanted', `file ${fileId} is withdrawn, and is recalled`);
  }
  for (const { requestId, fileId, error } of facts.requestFiles) {
    const path = (index.files.get(fileId)?.path ?? '').replace(PURGED, '');
    if (!error?.startsWith('withdrawn from') || facts.observed.withdrawn.has(path)) continue;
    report('withdrawn-never', `the file of a request of request ${requestId} on ${path} has failed: ${error}`);
  }
}

/** Checks that each stage move for a request belongs to a file of the request. */
function checkHeld(facts: Facts, report: Report): void {
  const held = new Set<string>();
  for (const { requestId, fileId } of facts.requestFiles) {
    held.add(`${requestId}/${fileId}`);
  }
  const moved = facts.stageEvents.flatMap(({ fileId, requestIds }) => requestIds.map((id) => `${id}/${fileId}`));
  for (const key of new Set(moved)) {
    if (!held.has(key)) report('request-file-lost', `a file moved for a request that does not have it: ${key}`);
  }
}

/** A path through a file descriptor, which no operator can look up. */
const NAMELESS = /\/proc\/self\/fd\//;

/** Checks errors. If a rule of the site prevents a restore, the error contains the path on disk. */
function checkErrors({ requestFiles, disks, observed }: Facts, index: Index, report: Report): void {
  for (const { requestId, fileId, state, errorClass, error } of requestFiles) {
    if (state !== 'FAILED' || error === null || !isLive(index.requests.get(requestId))) continue;
    const isPlanned = /planned|^withdrawn from/.test(error);
    const isNamed = disks.some(({ mountpoint }) => error.includes(mountpoint)) && !NAMELESS.test(error);
    const path = index.files.get(fileId)?.path;
    const isChanged = disks.some(({ mountpoint }) => observed.changedPaths.has(`${mountpoint}${path}`));
    if (isPlanned || isNamed || (errorClass !== 'POLICY' && !(isChanged && NAMELESS.test(error)))) continue;
    report(
      'request-file-unnamed',
      `the file of a request of request ${requestId} on file ${fileId} has failed as ${errorClass}: ${error}`,
    );
  }
}

function compare<T extends object>(stored: T, expected: Partial<T>, differs: (text: string) => void): void {
  for (const [name, value] of Object.entries(expected)) {
    const has = stored[name as keyof T];
    if (has !== value) differs(`has ${name} ${has}, expected ${value}`);
  }
}

function checkCounts(request: RequestFact, files: readonly RequestFile[], report: Report): void {
  const at = (state: RequestFile['state']) => files.filter((requestFile) => requestFile.state === state);
  const counts = {
    filesTotal: files.length,
    filesOnDisk: at('ON_DISK').length,
    filesFailed: at('FAILED').length,
    bytesTotal: sumOf(files, ({ size }) => size),
    bytesOnDisk: sumOf(at('ON_DISK'), ({ size }) => size),
  };
  compare(request, counts, (text) => report('request-counts', `request ${request.id} (${request.state}) ${text}`));
}

function checkState(request: RequestFact, report: Report): void {
  const { id, state, filesOnDisk, filesFailed, filesTotal } = request;
  if (!isLive(request)) {
    if (!request.isReleased) report('request-unreleased', `request ${id} has ended as ${state} and is not released`);
    return;
  }
  if (state === (filesFailed > 0 ? 'PARTIAL' : 'COMPLETED')) return;
  report(
    'request-state',
    `request ${id} is ${state}, with ${filesOnDisk} on disk and ${filesFailed} failed of ${filesTotal}`,
  );
}

/** Checks the times of a request, which must be right even if the engines' clocks are wrong. */
function checkTimes({ now }: Facts, request: RequestFact, report: Report): void {
  const { id, state, requestDate: made, retention, filesOnDisk } = request;
  const {
    tapestoreRequestStart: start,
    tapestoreRequestEnd: end,
    firstFilesOnDisk: first,
    lastFilesOnDisk: last,
  } = request;
  const wrong = (text: string) => report('request-times', `request ${id} (${state}) ${text}`);
  const isReversed = (from: string | null, to: string | null) => from !== null && to !== null && isBefore(to, from);
  if (isReversed(made, start)) wrong(`starts at ${start}, before ${made}`);
  if (end !== null && start === null) wrong(`ends at ${end} and has never started`);
  if (isReversed(start, end)) wrong(`ends at ${end}, before its start at ${start}`);
  if (last !== null && first === null) wrong(`has its last file at ${last}, and never a first`);
  if (isReversed(first, last)) wrong(`has its last file at ${last}, before its first at ${first}`);
  if (filesOnDisk > 0 && first === null) wrong('has files on disk, and never a first one');
  if (isLive(request) && filesOnDisk > 0 && last === null) wrong('is done, and has no last file');
  if (isLive(request) && start !== null && end === null) wrong(`is done, started at ${start}, and has not ended`);
  const future = [made, start, end, first, last].find((time) => isReversed(time, now));
  if (future) wrong(`has the time ${future}, and it is ${now}`);
  if (state === 'EXPIRED' && isBefore(now, retention)) {
    report('request-early', `request ${id} is EXPIRED at ${now}, and its retention is ${retention}`);
  }
}

function checkQuotas(facts: Facts, index: Index, report: Report): void {
  for (const quota of facts.quotas) {
    const own = facts.requests.filter((request) => isLive(request) && request.user === quota.user);
    const ids = new Set(own.map(({ id }) => id));
    const unresolved = facts.unresolved.filter(({ requestId }) => ids.has(requestId));
    const files = own.flatMap(({ id }) => index.requestFilesOf.get(id) ?? []);
    compare(quota, { used: sumOf(files, ({ size }) => size) }, (text) =>
      report('quota-used', `the quota of ${quota.user} ${text}, as its live requests contain`),
    );
    const counts = { unresolvedPaths: unresolved.filter(({ reason }) => reason === 'UNKNOWN').length };
    compare(quota, counts, (text) => report('quota-counts', `the quota of ${quota.user} ${text}`));
    // files join in order until one exceeds the quota, except files that exceed a limit of their request
    const next = unresolved
      .map((path) => ({ ...path, file: index.filesByPath.get(path.path) }))
      .filter(({ file, reason }) => file && !isWithdrawn(file) && reason !== 'LIMIT')
      .sort((a, b) => a.requestId - b.requestId || (a.path < b.path ? -1 : 1))[0];
    const free = quota.size - quota.used;
    if (next?.reason !== 'QUOTA_FULL' || !next.file || next.file.size > free) continue;
    const needs = `${next.file.size} bytes, and ${free} of the quota of ${quota.user} are free`;
    report('join-missed', `request ${next.requestId} has no room for ${next.path}: it needs ${needs}`);
  }
}

function checkRecalls(facts: Facts, index: Index, report: Report): void {
  const waiting = facts.requestFiles.filter(
    ({ state, requestId }) => state === 'WAITING' && isLive(index.requests.get(requestId)),
  );
  const unresolved = new Set(waiting.map(({ fileId }) => fileId));
  for (const { fileId, state } of facts.recalls) {
    if (state === 'RUNNING') report('recall-running', `the recall of file ${fileId} is RUNNING`);
    else if (!unresolved.has(fileId))
      report('recall-unheld', `no file of a request waits for the recall of file ${fileId}`);
  }
}

/** Actions that may be confirmed without a row in the audit, because a repeated action changes nothing. */
const IDEMPOTENT = /^(cancelRequest|releaseFiles) /;

/**
 * Checks that the audit has a row for each confirmed change of a request or token.
 * A change whose response was lost may have a row.
 */
function checkAudit({ audit, requests, observed: { actions } }: Facts, report: Report): void {
  const rowsOf = new Map(audit.map(({ operation, id, rows }) => [nameAction(operation, id), rows]));
  for (const { id, state } of requests) {
    if (state === 'CANCELLED' && !rowsOf.has(nameAction('cancelRequest', id))) {
      report('audit-missing', `request ${id} is CANCELLED, and the audit has no cancellation`);
    }
    const rows = rowsOf.get(nameAction('createRequest', id)) ?? 0;
    if (rows === 0) report('audit-missing', `request ${id} exists, and the audit has no creation`);
    if (rows > 1) report('audit-twice', `request ${id} was created ${rows} times`);
  }
  for (const [name, { requested, confirmed }] of actions) {
    const rows = rowsOf.get(name) ?? 0;
    if (rows < confirmed && !IDEMPOTENT.test(name)) {
      report('audit-missing', `${name} was confirmed ${confirmed} times, and has ${rows} rows`);
    }
    if (rows > requested) report('audit-twice', `${name} was requested ${requested} times, and has ${rows} rows`);
  }
}

/**
 * Checks events: a request's progress never decreases, a file's stages form a chain, and watchers receive each event
 * once.
 */
import { moves } from '../../src/core/stages.js';
import type { Report } from './checker.js';
import {
  type Facts,
  groupBy,
  type Index,
  isLive,
  type ProgressEvent,
  progressFields,
  type StageEvent,
} from './facts.js';
import { findRecorded } from './removed-copies.js';

export function checkEvents(facts: Facts, index: Index, report: Report): void {
  const excused = [...facts.stageEvents.filter((event) => isExcuse(event, facts, index)), ...findRecorded(facts)];
  for (const request of facts.requests) {
    const events = index.progressOf.get(request.id) ?? [];
    checkProgress(request.id, events, { excused, facts, index }, report);
    const last = events.at(-1);
    if (!last) report('progress-last', `request ${request.id} has no progress event`);
    for (const name of progressFields) {
      if (!last || request[name] === last[name]) continue;
      report(
        'progress-last',
        `request ${request.id} has ${name} ${request[name]}, event ${last.number} has ${last[name]}`,
      );
    }
  }
  for (const [fileId, events] of groupBy(facts.stageEvents, (event) => event.fileId)) {
    checkStages(fileId, events, index, report);
  }
  for (const { id } of facts.unnumberedEvents) report('event-unnumbered', `the event with id ${id} is never published`);
}

/**
 * Returns whether a move to ONTAPE explains decreased progress.
 * The file was removed from its primary disk, the copy had an outdated version, or a changed copy has disappeared.
 */
function isExcuse({ fromStage, toStage, fileId }: StageEvent, { observed }: Facts, index: Index): boolean {
  if (toStage !== 'ONTAPE') return false;
  if (fromStage === 'ONDISK' || fromStage === 'UNVERIFIED') return true;
  return fromStage === 'RESTORED' && observed.versions.has(index.files.get(fileId)?.path ?? '');
}

/**
 * Checks that the number of files on disk or failed never decreases within one life of a request.
 * A life ends with EXPIRED or CANCELLED, or with a revival before the end was recorded.
 * A file may leave if the request releases the file, or if the copy was removed outside Tapegate.
 * A failed file may wait again after its position on tape has changed.
 */
function checkProgress(
  requestId: number,
  events: readonly ProgressEvent[],
  { excused, facts, index }: { excused: readonly StageEvent[]; facts: Facts; index: Index },
  report: Report,
): void {
  const { revivals, versions } = facts.observed;
  const excuses = excused.filter(({ requestIds }) => requestIds.includes(requestId));
  const files = [...(index.requestFilesOf.get(requestId) ?? []), ...(index.releasedOf.get(requestId) ?? [])];
  const moved = files.map(({ fileId }) => versions.get(index.files.get(fileId)?.path ?? '')?.length ?? 0);
  let retriesLeft = moved.reduce((sum, count) => sum + count, 0);
  let revivalsLeft = revivals.get(requestId) ?? 0;
  const done = (event: ProgressEvent) => event.filesOnDisk + event.filesFailed;
  for (const [at, event] of events.entries()) {
    const last = events[at - 1];
    if (!last || !isLive(last) || !isLive(event)) continue;
    const released = Math.max(last.filesTotal - event.filesTotal, 0);
    if (done(event) >= done(last) - released) continue;
    if (excuses.some(({ number }) => number > last.number && number < event.number)) continue;
    const retried = last.filesFailed - event.filesFailed;
    if (event.filesOnDisk >= last.filesOnDisk - released && retried <= retriesLeft) {
      retriesLeft -= retried;
      continue;
    }
    if (revivalsLeft-- > 0) continue;
    const step = `from ${done(last)} files (event ${last.number}) to ${done(event)} (event ${event.number})`;
    report('progress-back', `the progress of request ${requestId} goes back ${step}`);
  }
}

function checkStages(fileId: bigint, events: readonly StageEvent[], index: Index, report: Report): void {
  for (const [at, { number, fromStage, toStage }] of events.entries()) {
    const step = `event ${number} moves file ${fileId} from ${fromStage} to ${toStage}`;
    if (!moves.some(({ from, to }) => from === fromStage && to === toStage)) report('stage-illegal', step);
    const before = events[at - 1];
    if (before && before.toStage !== fromStage) {
      report('stage-chain', `${step}, after event ${before.number} to ${before.toStage}`);
    }
  }
  const stage = index.files.get(fileId)?.stage; // a purged file has no stage
  const last = events.at(-1);
  if (last && stage !== undefined && stage !== last.toStage) {
    report('stage-last', `file ${fileId} is ${stage}, and event ${last.number} led to ${last.toStage}`);
  }
}

export function checkWatches({ stageEvents, observed }: Facts, index: Index, report: Report): void {
  for (const { requestId, received, isOver, isCut } of observed.watches) {
    const events = requestId === undefined ? stageEvents : (index.progressOf.get(requestId) ?? []);
    const name = requestId === undefined ? 'the watch of all files' : `the watch of request ${requestId}`;
    if (isCut) report('watch-cut', `${name} was completed too early`);
    const seen = new Set(received);
    const last = received.at(-1) ?? 0n;
    // a finished request may have been revived after the end of the watch
    const missed = events.find(({ number }) => !seen.has(number) && !(isOver && number > last));
    if (missed) report('watch-missed', `${name} skipped event ${missed.number}`);
    const known = new Set(events.map(({ number }) => number));
    const unknown = received.find((number) => !known.has(number));
    if (unknown !== undefined) report('watch-unknown', `${name} received event ${unknown}, which does not exist`);
    for (const [at, number] of received.entries()) {
      const before = received[at - 1];
      if (before !== undefined && number <= before)
        report('watch-order', `${name} received event ${number} after ${before}`);
    }
  }
}

/** Events: what they tell of a request never goes back, and what they tell of a file is its way through the stages. */
import { moves } from '../../src/stages.js';
import { groupBy, type Index, isLive } from './fact-index.js';
import type { Facts, ProgressEventFact, RequestFact, StageEventFact } from './facts.js';
import type { Report } from './violations.js';

export function checkEvents(facts: Facts, index: Index, report: Report): void {
  const taken = facts.stageEvents.filter((event) => isTaken(event, facts, index));
  const progress = groupBy(facts.progressEvents, (event) => event.requestId);
  for (const request of facts.requests) {
    const events = progress.get(request.id) ?? [];
    const mine = taken.filter((event) => event.requestIds.includes(request.id));
    const revivals = facts.outside.revivals.get(request.id) ?? 0;
    checkProgress(request.id, events, { taken: mine, revivals, moved: countMoved(request.id, facts, index) }, report);
    checkLastProgress(request, events, report);
  }
  for (const [fileId, events] of groupBy(facts.stageEvents, (event) => event.fileId)) {
    checkChain(fileId, events, index, report);
  }
  for (const { id } of facts.unnumbered) report('event-unnumbered', `nobody is told of the event with the id ${id}`);
}

/** How often files of a request, also those that it let go later, were given another place on tape: what had failed at the one before waits again. */
function countMoved(requestId: number, { outside }: Facts, { holdsOf, releasedOf, files }: Index): number {
  const holds = [...(holdsOf.get(requestId) ?? []), ...(releasedOf.get(requestId) ?? [])];
  const paths = holds.map(({ fileId }) => files.get(fileId)?.path ?? '');
  return paths.reduce((sum, path) => sum + (outside.versions.get(path)?.length ?? 0), 0);
}

/** The primary copy was taken away, or the copy is that of an older version, or of a file that was touched and has gone. */
function isTaken({ from, to, fileId }: StageEventFact, facts: Facts, index: Index): boolean {
  if (to !== 'ONTAPE') return false;
  if (from === 'ONDISK' || from === 'UNVERIFIED') return true;
  return from === 'RESTORED' && facts.outside.versions.has(index.files.get(fileId)?.path ?? '');
}

/**
 * What is on disk or has failed grows within one life of a request. A life ends with EXPIRED or CANCELLED, or in one step
 * with its revival, when nobody had noticed its end. A file may leave only with its copy (`taken`), or when the request lets
 * it go, and has as many files less; and one that has failed waits again when it is `moved`.
 */
function checkProgress(
  requestId: number,
  events: readonly ProgressEventFact[],
  excuse: { taken: readonly StageEventFact[]; revivals: number; moved: number },
  report: Report,
): void {
  let before: ProgressEventFact | undefined;
  let { revivals, moved } = excuse;
  for (const event of events) {
    const last = before;
    before = event;
    if (!last || !isLive(last) || !isLive(event)) continue;
    const letGo = Math.max(last.filesTotal - event.filesTotal, 0);
    if (doneIn(event) >= doneIn(last) - letGo) continue;
    if (excuse.taken.some(({ id }) => id > last.id && id < event.id)) continue;
    const again = last.filesFailed - event.filesFailed;
    if (event.filesOnDisk >= last.filesOnDisk - letGo && again <= moved) {
      moved -= again;
      continue;
    }
    if (revivals-- > 0) continue;
    const step = `from ${doneIn(last)} files (event ${last.id}) to ${doneIn(event)} (event ${event.id})`;
    report('progress-back', `the progress of request ${requestId} goes back ${step}`);
  }
}

function doneIn(event: ProgressEventFact): number {
  return event.filesOnDisk + event.filesFailed;
}

const TOLD = ['state', 'filesTotal', 'filesOnDisk', 'filesFailed', 'bytesTotal', 'bytesOnDisk'] as const;

function checkLastProgress(request: RequestFact, events: readonly ProgressEventFact[], report: Report): void {
  const last = events.at(-1);
  if (!last) report('progress-last', `request ${request.id} has no progress event`);
  for (const name of TOLD) {
    if (!last || request[name] === last[name]) continue;
    report('progress-last', `request ${request.id} has ${name} ${request[name]}, event ${last.id} tells ${last[name]}`);
  }
}

function checkChain(fileId: bigint, events: readonly StageEventFact[], index: Index, report: Report): void {
  let before: StageEventFact | undefined;
  for (const event of events) {
    const step = `from ${event.from} to ${event.to}`;
    if (!moves.some((move) => move.from === event.from && move.to === event.to)) {
      report('stage-illegal', `event ${event.id} moves file ${fileId} ${step}`);
    }
    if (before && before.to !== event.from) {
      report('stage-chain', `event ${event.id} moves file ${fileId} ${step}, after event ${before.id} to ${before.to}`);
    }
    before = event;
  }
  const stage = index.files.get(fileId)?.stage;
  // one that is forgotten, and that nobody ever held, has gone
  if (before && stage !== undefined && stage !== before.to) {
    report('stage-last', `file ${fileId} is ${stage}, and event ${before.id} led to ${before.to}`);
  }
}

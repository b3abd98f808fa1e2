/** Checks staging libraries and stage requests of the WLCG Tape REST API. */
import type { RequestFileState } from '../../src/generated/prisma/enums.js';
import type { Report } from './checker.js';
import { type Facts, type Index, isLive } from './facts.js';

/**
 * Checks that staging systems hold no files when no request waits for files.
 * Files that the system itself removes at a recorded time may remain.
 */
export function checkStaging({ staging, observed }: Facts, report: Report): void {
  const recorded = new Map(staging.map((row) => [`${row.library} ${row.path}`, row]));
  for (const { library, path, state } of staging) {
    if (state !== 'KEPT') report('staging-open', `${path} is ${state} at ${library}, and no request waits for it`);
  }
  for (const { library, path, why, until } of observed.staged) {
    const row = recorded.get(`${library} ${path}`);
    if (row && row.state !== 'KEPT') continue; // reported above
    const name = `${path} is ${why} at ${library}`;
    if (!row) report('staging-left', `${name}, and nothing of it is recorded`);
    else if (until === null) report('staging-left', `${name}, and is recorded as kept only by the library`);
    else if (row.readyUntil === null || Date.parse(`${row.readyUntil}Z`) !== Date.parse(until)) {
      report('staging-kept', `${name} until ${until}, and ${row.readyUntil} is recorded`);
    }
  }
}

/** State of a stage request's file, by the state of the request file. */
const ENDS: Partial<Record<RequestFileState, string>> = {
  ON_DISK: 'COMPLETED',
  FAILED: 'FAILED',
  RELEASED: 'CANCELLED',
};

export function checkStageRequests(facts: Facts, index: Index, report: Report): void {
  const { stageRequests, stageRequestStatus } = facts.observed;
  const stored = new Set(facts.stageRequests.map(({ id }) => id));
  for (const { id, state, label } of facts.requests) {
    const stageId = /^stage (.*)$/.exec(label)?.[1];
    if (stageId === undefined || !stageRequests.has(stageId) || stored.has(stageId) || !isLive({ state })) continue;
    report('stage-request-lost', `request ${id} is ${state}, and its stage request ${stageId} does not exist`);
  }
  const shown = new Map(stageRequestStatus.map((status) => [status.id, status]));
  for (const { id, isOver, states } of stageRequestStatus) {
    const open = Object.entries(states).filter(([, state]) => state === 'SUBMITTED' || state === 'STARTED');
    for (const [path, state] of open) report('stage-request-open', `stage request ${id} says that ${path} is ${state}`);
    if (open.length === 0 && !isOver) report('stage-request-open', `stage request ${id} says that it is not complete`);
  }
  const files = new Map(facts.requestFiles.map((each) => [`${each.requestId}/${each.fileId}`, each]));
  for (const { stageRequestId, path, requestId, fileId, wasOnDisk } of facts.stageRequestFiles) {
    const requestFile = files.get(`${requestId}/${fileId}`);
    const name = `${path} of stage request ${stageRequestId}`;
    if (!requestFile) report('stage-request-file', `${name} is not in request ${requestId}`);
    const state = shown.get(stageRequestId)?.states[path];
    if (!requestFile || state === undefined || !isLive(index.requests.get(requestId))) continue;
    const expected = wasOnDisk ? 'COMPLETED' : ENDS[requestFile.state];
    if (expected === undefined || state === expected) continue;
    report(
      'stage-request-file',
      `${name} is ${requestFile.state} in request ${requestId}, and its client sees ${state}`,
    );
  }
}

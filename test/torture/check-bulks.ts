/** Bulks: what was staged under one id is there, and its client is told of each file what its request says of it. */
import { type Index, isLive } from './fact-index.js';
import type { Facts, HoldFact } from './facts.js';
import type { Report } from './violations.js';

export function checkBulks(facts: Facts, index: Index, report: Report): void {
  const { bulks, polls } = facts.outside;
  const stored = new Set(facts.bulks.map(({ id }) => id));
  for (const { id, state, label } of facts.requests) {
    const bulkId = /^stage (.*)$/.exec(label)?.[1];
    if (bulkId === undefined || !bulks.has(bulkId) || stored.has(bulkId) || !isLive({ state })) continue;
    report('bulk-lost', `request ${id} is ${state}, and the stage request ${bulkId} it is for is not there`);
  }
  const told = new Map(polls.map((poll) => [poll.id, poll]));
  for (const { id, isOver, states } of polls) {
    const open = Object.entries(states).filter(([, state]) => state === 'SUBMITTED' || state === 'STARTED');
    for (const [path, state] of open) report('bulk-open', `stage request ${id} says that ${path} is ${state}`);
    if (open.length === 0 && !isOver) report('bulk-open', `stage request ${id} says that it is not complete`);
  }
  const holds = new Map(facts.holds.map((hold) => [`${hold.requestId}/${hold.fileId}`, hold]));
  for (const { bulkId, path, requestId, fileId, wasOnDisk } of facts.bulkFiles) {
    const hold = holds.get(`${requestId}/${fileId}`);
    const name = `${path} of stage request ${bulkId}`;
    if (!hold) report('bulk-hold', `${name} is not in request ${requestId}`);
    const state = told.get(bulkId)?.states[path];
    if (!hold || state === undefined || !isLive(index.requests.get(requestId))) continue;
    const expected = wasOnDisk ? 'COMPLETED' : ENDS[hold.state];
    if (expected !== undefined && state !== expected)
      report('bulk-hold', `${name} is ${hold.state} in request ${requestId}, and ${state} for its client`);
  }
}

const ENDS: Partial<Record<HoldFact['state'], string>> = {
  ON_DISK: 'COMPLETED',
  FAILED: 'FAILED',
  RELEASED: 'CANCELLED',
};

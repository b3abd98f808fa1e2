/**
 * Short form of the torture test, which ends after a number of kills. The time limits are only upper limits.
 * `npm run torture` is the long form.
 */
import { expect, test } from 'vitest';
import { runTorture } from './run.js';

const MINUTE_MS = 60_000;

test('nothing is lost, duplicated or left over when everything is killed at any moment', {
  timeout: 7 * MINUTE_MS,
}, async () => {
  const options = {
    ...{ seed: 20261120, kills: 12, troubleMs: 2 * MINUTE_MS, settleMs: 3 * MINUTE_MS },
    ...{ files: 80, maxBytes: 300_000, lateTrees: 4, keepDir: false, signal: AbortSignal.timeout(6 * MINUTE_MS) },
  };
  const { violations, counts, facts } = await runTorture(options, () => {});
  expect(violations).toEqual([]);
  expect(counts.requests).toBeGreaterThan(0);
  expect(counts.stageRequests).toBeGreaterThan(0);
  const { clones, removedCopies, roleChanges } = counts;
  expect(Math.min(clones, removedCopies, roleChanges)).toBeGreaterThan(0);
  expect(facts.stageEvents.some(({ toStage }) => toStage === 'RESTORED')).toBe(true);
});

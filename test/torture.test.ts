import { expect, test } from 'vitest';
import { installExactJson } from '../src/json.js';
import { runTorture } from './torture/run.js';

const TIMEOUT_MS = 240_000;

test('nothing is lost, doubled or left behind when everything is killed at any moment', {
  timeout: TIMEOUT_MS,
}, async () => {
  installExactJson();
  const { violations, counts, facts } = await runTorture(
    {
      seed: 20261120,
      kills: 12,
      troubleMs: 60_000,
      settleMs: 90_000,
      files: 80,
      maxBytes: 300_000,
      lateTrees: 4,
      keepFolder: false,
      signal: AbortSignal.timeout(TIMEOUT_MS - 40_000),
    },
    () => {},
  );
  expect(violations).toEqual([]);
  expect(counts.requests).toBeGreaterThan(0);
  expect(facts.stageEvents.some((event) => event.to === 'RESTORED')).toBe(true);
});

/** The short form of the torture; `npm run torture` is the long one. It is bounded by what happens: times are limits. */
import { expect, test } from 'vitest';
import { installExactJson } from '../../src/json.js';
import { runTorture } from './run.js';

const MINUTE_MS = 60_000;
const LIMIT_MS = 7 * MINUTE_MS;
/** Leaves time to take everything down. */
const GIVE_UP_MS = 6 * MINUTE_MS;

test('nothing is lost, doubled or left behind when everything is killed at any moment', {
  timeout: LIMIT_MS,
}, async () => {
  installExactJson();
  const { violations, counts, facts } = await runTorture(
    {
      seed: 20261120,
      kills: 12,
      troubleMs: 2 * MINUTE_MS,
      settleMs: 3 * MINUTE_MS,
      files: 80,
      maxBytes: 300_000,
      lateTrees: 4,
      keepFolder: false,
      signal: AbortSignal.timeout(GIVE_UP_MS),
    },
    () => {},
  );
  expect(violations).toEqual([]);
  expect(counts.requests).toBeGreaterThan(0);
  expect(counts.bulks).toBeGreaterThan(0);
  expect(facts.stageEvents.some((event) => event.to === 'RESTORED')).toBe(true);
});

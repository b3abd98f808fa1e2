/** The set-up of the tests of the REST contract. */
import { beforeEach, expect } from 'vitest';
import type { TestApp } from './app.js';
import { addQuota } from './factories.js';
import { type Answer, errorBody } from './rest.js';
import { emptyTables } from './tables.js';
import { useApp } from './use-app.js';

/** The time at the start of each test. */
export const NOW = '2026-11-20T10:00:00.000007';

/**
 * Starts an app whose clock stands at `time.now`. Before each test the tables contain the quota of alice only, and the clock stands at `NOW`.
 * @param size of the quota, in bytes
 * @param prepare what else the tables contain
 */
export function useContract(size: bigint, prepare?: () => Promise<unknown>): { app: TestApp; time: { now: string } } {
  const time = { now: NOW };
  const app = useApp({ now: () => time.now });
  beforeEach(async () => {
    time.now = NOW;
    await emptyTables(app.ctx);
    await addQuota(app.ctx, 'alice', size);
    await prepare?.();
  });
  return { app, time };
}

/** Expects a response with this status and the body of this error. */
export async function expectError(answer: Promise<Answer>, status: number, message: string): Promise<void> {
  const found = await answer;
  expect([found.status, found.body]).toEqual([status, errorBody(message)]);
}

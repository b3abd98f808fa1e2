/** Setup of the REST contract tests. */
import { beforeEach, expect } from 'vitest';
import type { TestApp } from './app.js';
import { addQuota } from './factories.js';
import { type Answer, errorBody } from './rest.js';
import { emptyTables } from './tables.js';
import { useApp } from './use-app.js';

/** Time at the start of each test. */
export const NOW = '2026-11-20T10:00:00.000007';

/**
 * Starts an app whose clock shows `time.now`. Before each test, `time.now` is set to `NOW`, the tables are emptied,
 * and alice gets a quota.
 * @param size of alice's quota in bytes
 * @param prepare adds more rows before each test
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

/** Expects a response with this status and error message. */
export async function expectError(answer: Promise<Answer>, status: number, message: string): Promise<void> {
  const found = await answer;
  expect([found.status, found.body]).toEqual([status, errorBody(message)]);
}

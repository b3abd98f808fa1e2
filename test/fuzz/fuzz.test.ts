/**
 * Short form of the fuzz test, which ends after a number of inputs. The time limits are only upper limits.
 * `npm run fuzz` is the long form.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { runFuzz } from './run.js';

const SEED = 20261122;
const INPUTS = 4000;
let database: TestDatabase;

beforeEach(async () => {
  database = await createDatabase();
});
afterEach(() => database.drop());

test(`no input causes an internal error, an undocumented response or a wrong row, seed ${SEED}`, {
  timeout: 360_000,
}, async () => {
  const limits = { minutes: 5, maxFaults: 3, settleMs: 120_000, patienceMs: 25_000, slackBytes: 128_000_000 };
  const { signal } = new AbortController();
  const options = { seed: SEED, inputs: INPUTS, databaseUrl: database.url, signal, ...limits };
  const { faults, sent, outcomes, operations, rounds } = await runFuzz(options, () => {});
  expect(faults).toEqual([]);
  expect(sent).toBeGreaterThanOrEqual(INPUTS);
  expect(rounds).toBe(1);
  // many valid inputs must succeed, otherwise the fuzz tests only the validation
  for (const outcome of ['POST 200', 'PUT 200', 'GET 200', 'exchange', 'import', 'upload', 'stays', 'raw']) {
    expect(outcomes.get(outcome), outcome).toBeGreaterThan(5);
  }
  const succeeded = (names: readonly string[]) => names.filter((name) => operations.has(name));
  const ofUsers = ['createRequest', 'importRows', 'updateRequest'];
  expect(succeeded(ofUsers)).toEqual(ofUsers);
  // each of these operations succeeds about once in 2,000 inputs
  expect(succeeded(['cancelRequest', 'createToken', 'setQuota', 'suspend'])).not.toEqual([]);
});

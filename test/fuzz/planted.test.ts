/** Plants each kind of fault alone into the server, and shows that the fuzz finds it. */
import { expect, test } from 'vitest';
import { createDatabase } from '../support/database.js';
import { type FuzzOptions, type FuzzResult, runFuzz } from './run.js';

const LIMIT_MS = 6 * 60_000;

async function findPlanted(options: Pick<FuzzOptions, 'plant' | 'inputs'> & Partial<FuzzOptions>): Promise<FuzzResult> {
  const database = await createDatabase();
  try {
    const limits = { seed: 7, minutes: 5, maxFaults: 1, settleMs: 120_000, patienceMs: 0, slackBytes: 48_000_000 };
    const { signal } = new AbortController();
    return await runFuzz({ ...limits, databaseUrl: database.url, signal, ...options }, () => {});
  } finally {
    await database.drop();
  }
}

const kindsOf = ({ faults }: FuzzResult): string[] => [...new Set(faults.map(({ kind }) => kind))];

test('a server that ends is found, with the last inputs', { timeout: LIMIT_MS }, async () => {
  const result = await findPlanted({ plant: 'crash', inputs: 2000 });
  expect(kindsOf(result)).toEqual(['crash']);
  expect(result.faults[0]?.text).toMatch(/SyntaxError.*AT=\d+:\d+ [^\n]*%00/s);
});

test('a memory leak is found', { timeout: LIMIT_MS }, async () => {
  expect(kindsOf(await findPlanted({ plant: 'leak', inputs: 600 }))).toEqual(['memory']);
});

test('a wrong charge is found', { timeout: LIMIT_MS }, async () => {
  const result = await findPlanted({ plant: 'quota', inputs: 300 });
  expect(kindsOf(result)).toEqual(['invariant']);
  expect(result.faults[0]?.text).toMatch(/^quota-used: /);
});

test('an internal error is found, with a small input that causes it again', { timeout: LIMIT_MS }, async () => {
  // some need a request that earlier inputs created, and do not repeat alone
  const repeated: string[] = [];
  for (let seed = 7; seed < 12 && repeated.length === 0; seed++) repeated.push(...(await repeatPlanted(seed)));
  expect(repeated).toContain('internal-error');
});

/** @returns the kinds of the first fault that repeats */
async function repeatPlanted(seed: number): Promise<string[]> {
  // the engine fails, too, so nothing settles
  const result = await findPlanted({ plant: 'internal-error', inputs: 4000, seed, maxFaults: 16, settleMs: 0 });
  expect(kindsOf(result)).toContain('internal-error');
  for (const { kind, at = '' } of result.faults) {
    if (kind !== 'internal-error') continue;
    expect(at).toMatch(/^\d+:\d+/);
    const again = await findPlanted({ plant: 'internal-error', inputs: 1, seed, at, settleMs: 0 });
    if (again.faults.length > 0) return kindsOf(again);
  }
  return [];
}

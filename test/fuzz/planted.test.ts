/** Each kind of fault that the fuzz is to find, planted alone into its server. */
import { beforeAll, expect, test } from 'vitest';
import { installExactJson } from '../../src/json.js';
import { createDatabase } from '../support/database.js';
import type { PlantName } from './plants.js';
import { type FuzzResult, runFuzz } from './run.js';
import type { Fault } from './session.js';

/** On a machine that does much else; each takes some seconds. */
const LIMIT_MS = 6 * 60_000;

beforeAll(installExactJson);

async function findPlanted(
  plant: PlantName,
  inputs: number,
  {
    seed = 7,
    at,
    maxFaults = 1,
    settleMs = 120_000,
  }: { seed?: number; at?: string; maxFaults?: number; settleMs?: number } = {},
): Promise<FuzzResult> {
  const database = await createDatabase();
  try {
    return await runFuzz(
      {
        seed,
        inputs,
        minutes: 5,
        databaseUrl: database.url,
        plant,
        at,
        maxFaults,
        settleMs,
        patienceMs: 0,
        slackBytes: 48_000_000,
        signal: new AbortController().signal,
      },
      () => {},
    );
  } finally {
    await database.drop();
  }
}

const kindsOf = (faults: Fault[]): string[] => [...new Set(faults.map((fault) => fault.kind))];

test(
  'a server that ends is found, with what was on its way',
  async () => {
    const { faults } = await findPlanted('crash', 2000);
    expect(kindsOf(faults)).toEqual(['crash']);
    expect(faults[0]?.text).toMatch(/SyntaxError.*AT=\d+:\d+ [^\n]*%00/s);
  },
  LIMIT_MS,
);

test(
  'memory that is kept is found',
  async () => {
    const { faults } = await findPlanted('leak', 1000);
    expect(kindsOf(faults)).toEqual(['memory']);
  },
  LIMIT_MS,
);

test(
  'a quota that is charged wrongly is found',
  async () => {
    const { faults } = await findPlanted('quota', 300);
    expect(kindsOf(faults)).toEqual(['invariant']);
    expect(faults[0]?.text).toMatch(/^quota-used: /);
  },
  LIMIT_MS,
);

test(
  'an internal error is found, with a small input that brings it, and brings it again',
  async () => {
    // those that need a request, which others have made, bring nothing alone, and which come first is chance
    const repeated: string[] = [];
    for (let seed = 7; seed < 12 && repeated.length === 0; seed++) repeated.push(...(await repeatPlanted(seed)));
    expect(repeated).toContain('internal-error');
  },
  LIMIT_MS,
);

/** @returns the kinds of what the first of a run's internal errors that comes again has brought alone; none where none does */
async function repeatPlanted(seed: number): Promise<string[]> {
  // engines that meet such a text do not come to an end either
  const { faults } = await findPlanted('internal-error', 4000, { seed, maxFaults: 16, settleMs: 0 });
  expect(kindsOf(faults)).toContain('internal-error');
  for (const { at = '' } of faults.filter(({ kind }) => kind === 'internal-error')) {
    expect(at).toMatch(/^\d+:\d+/);
    const again = await findPlanted('internal-error', 1, { seed, at, settleMs: 0 });
    if (again.faults.length > 0) return kindsOf(again.faults);
  }
  return [];
}

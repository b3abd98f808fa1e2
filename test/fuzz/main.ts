/**
 * `npm run fuzz`: see run.ts. SEED, INPUTS and MINUTES choose how much happens, AT repeats one input of a SEED; exit code 1
 * tells of faults.
 */
import { environment } from '../../src/config.js';
import { installExactJson } from '../../src/json.js';
import { type PlantName, plantNames } from './plants.js';
import { describeFault, describeMemory, runFuzz } from './run.js';

const MAX_FAULTS = 50;
/** From so many inputs on, memory is to have come to rest after the first tenth. */
const LONG = 100_000;
const SLACK_BYTES = 64_000_000;

function numberOf(name: string, fallback: number): number {
  const value = Number(environment[name] || fallback);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new Error(`${name} must be a number that is not below 0, not ${JSON.stringify(environment[name])}`);
}

function plantOf(name: string | undefined): PlantName | undefined {
  const plant = plantNames.find((each) => each === name);
  if (name && !plant) throw new Error(`PLANT must be one of ${plantNames.join(', ')}, not ${JSON.stringify(name)}`);
  return plant;
}

installExactJson();
const seed = numberOf('SEED', Math.floor(Math.random() * 2 ** 31));
const inputs = numberOf('INPUTS', 1_000_000);
const giveUp = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => giveUp.abort());
const options = {
  seed,
  inputs,
  minutes: numberOf('MINUTES', 120),
  at: environment.AT || undefined,
  plant: plantOf(environment.PLANT),
  maxFaults: MAX_FAULTS,
  settleMs: 180_000,
  patienceMs: 25_000,
  slackBytes: inputs < LONG ? SLACK_BYTES : 0,
  signal: giveUp.signal,
  snapshots: environment.SNAPSHOTS || undefined,
};
console.log(`SEED=${seed} INPUTS=${inputs} MINUTES=${options.minutes}${options.at ? ` AT=${options.at}` : ''}`);
const result = await runFuzz(options, (line) => console.log(line));
const counts = [...result.outcomes].sort(([, a], [, b]) => b - a);
console.log(counts.map(([outcome, count]) => `${outcome}: ${count}`).join(', '));
console.log(`done, or refused: ${[...result.deeds].map(([operation, count]) => `${operation} ${count}`).join(', ')}`);
const times = [...result.times].map(([kind, ms]) => `${kind} ${(ms / (result.outcomes.get(kind) ?? 1)).toFixed(1)} ms`);
console.log(`on average: ${times.join(', ')}`);
for (const fault of result.faults) console.log(`\n${describeFault(fault, seed)}`);
console.log(
  [
    `${result.sent} inputs in ${Math.round(result.seconds)} s`,
    `${result.busy} told to come again`,
    `${result.rounds} looks at the database`,
    `after the first tenth ${describeMemory(result.memory[0])}`,
    `after the last ${describeMemory(result.memory.at(-1))}`,
    `${result.faults.length} faults`,
    `seed ${seed}`,
  ].join(', '),
);
process.exitCode = result.faults.length > 0 ? 1 : 0;
if (giveUp.signal.aborted) process.exitCode = 130;

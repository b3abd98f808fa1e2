/** Entry point of `npm run fuzz`, see README.md. The exit code is 1 if the fuzz test finds a fault. */
import { environment } from '../../src/core/environment.js';
import { numberOf } from '../torture/random.js';
import { describeFault, describeMemory, runFuzz } from './run.js';

const MAX_FAULTS = 50;
/** Minimum number of inputs for a check of memory growth. In shorter runs, memory still grows after the first tenth. */
const LONG = 100_000;
const SLACK_BYTES = 64_000_000;

const seed = numberOf(environment, 'SEED', Math.floor(Math.random() * 2 ** 31));
const inputs = numberOf(environment, 'INPUTS', 1_000_000);
const minutes = numberOf(environment, 'MINUTES', 120);
const { AT: at = '' } = environment;
const abort = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => abort.abort());
const options = {
  ...{ seed, inputs, minutes, maxFaults: MAX_FAULTS, settleMs: 180_000, patienceMs: 25_000, signal: abort.signal },
  at: at || undefined,
  slackBytes: inputs < LONG ? SLACK_BYTES : 0,
};
console.log(`SEED=${seed} INPUTS=${inputs} MINUTES=${minutes}${at ? ` AT=${at}` : ''}`);
const result = await runFuzz(options, (line) => console.log(line));
const { outcomes, operations, faults, sent, seconds, busy, rounds, memory } = result;
const counts = [...outcomes].sort(([, a], [, b]) => b - a);
console.log(counts.map(([outcome, count]) => `${outcome}: ${count}`).join(', '));
console.log(`operations: ${[...operations].map(([operation, count]) => `${operation} ${count}`).join(', ')}`);
for (const fault of faults) console.log(`\n${describeFault(fault, seed)}`);
console.log(
  [
    `${sent} inputs in ${Math.round(seconds)} s, ${busy} asked to retry, ${rounds} rounds`,
    `after the first tenth ${describeMemory(memory[0])}, after the last ${describeMemory(memory.at(-1))}`,
    `${faults.length} faults, seed ${seed}`,
  ].join(', '),
);
process.exitCode = faults.length > 0 ? 1 : 0;
if (abort.signal.aborted) process.exitCode = 130;

/** `npm run torture`: see run.ts. SEED, KILLS and MINUTES choose what happens; exit code 1 tells of violations. */
import { environment } from '../../src/config.js';
import { installExactJson } from '../../src/json.js';
import { describeResult } from './report.js';
import { runTorture } from './run.js';

const MAX_LISTED = 100;

function numberOf(name: string, fallback: number): number {
  const value = Number(environment[name] ?? fallback);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new Error(`${name} must be a number that is not below 0, not ${JSON.stringify(environment[name])}`);
}

installExactJson();
const seed = numberOf('SEED', Math.floor(Math.random() * 2 ** 32));
const totalMs = numberOf('MINUTES', 15) * 60_000;
const settleMs = Math.min(totalMs / 2, 240_000);
const giveUp = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => giveUp.abort());
const options = {
  seed,
  kills: numberOf('KILLS', 300),
  troubleMs: totalMs - settleMs,
  settleMs,
  files: 300,
  maxBytes: 3_000_000,
  lateTrees: 60,
  keepFolder: true,
  signal: giveUp.signal,
};
console.log(`SEED=${seed} KILLS=${options.kills} MINUTES=${totalMs / 60_000}`);
const result = await runTorture(options, (line) => console.log(line)).catch((error: unknown) => {
  if (!giveUp.signal.aborted) throw error;
  console.log('given up; nothing of it is left');
  process.exit(130);
});
const { violations } = result;
for (const { kind, text } of violations.slice(0, MAX_LISTED)) console.log(`${kind}: ${text}`);
for (const line of describeResult(result, seed)) console.log(line);
if (violations.length > 0) console.log(`what was left is in ${result.dir}`);
process.exitCode = violations.length > 0 ? 1 : 0;

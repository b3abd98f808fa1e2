/** Entry point of `npm run torture`, see README.md. The exit code is 1 if there are violations. */
import { environment } from '../../src/core/environment.js';
import { numberOf } from './random.js';
import { describeResult, runTorture } from './run.js';

const MAX_LISTED = 100;

const seed = numberOf(environment, 'SEED', Math.floor(Math.random() * 2 ** 32));
const totalMs = numberOf(environment, 'MINUTES', 15) * 60_000;
const settleMs = Math.min(totalMs / 2, 240_000);
const abort = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => abort.abort());
const options = {
  seed,
  kills: numberOf(environment, 'KILLS', 300),
  troubleMs: totalMs - settleMs,
  settleMs,
  files: 300,
  maxBytes: 3_000_000,
  lateTrees: 60,
  keepDir: true,
  signal: abort.signal,
};
console.log(`SEED=${seed} KILLS=${options.kills} MINUTES=${totalMs / 60_000}`);
const result = await runTorture(options, (line) => console.log(line)).catch((error: unknown) => {
  if (!abort.signal.aborted) throw error;
  console.log('interrupted; everything was removed');
  process.exit(130);
});
const { violations } = result;
for (const { kind, text } of violations.slice(0, MAX_LISTED)) console.log(`${kind}: ${text}`);
for (const line of describeResult(result, seed)) console.log(line);
if (violations.length > 0) console.log(`logs and facts.json are in ${result.dir}`);
process.exitCode = violations.length > 0 ? 1 : 0;

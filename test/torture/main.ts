/** `npm run torture`: see run.ts. SEED, KILLS and MINUTES choose what happens; exit code 1 tells of violations. */
import { environment } from '../../src/config.js';
import { installExactJson } from '../../src/json.js';
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
const { counts, facts, violations } = result;
for (const { kind, text } of violations.slice(0, MAX_LISTED)) console.log(`${kind}: ${text}`);
const restored = facts.stageEvents.filter((event) => event.to === 'RESTORED').length;
console.log(
  [
    `${counts.kills} kills`,
    `${counts.stops} stops`,
    `${counts.databaseRestarts} restarts of PostgreSQL`,
    `${counts.hangs} hangs`,
    `${counts.moves} files moved or replaced`,
    `${counts.strangeDeeds} deeds of a stranger`,
    `${counts.tokensShown} tokens shown`,
    `${counts.requests} requests`,
    `${restored} files restored`,
    `${facts.outside.mails.length} mails`,
    `${facts.outside.watches.reduce((sum, watch) => sum + watch.told.length, 0)} events watched`,
    `${Math.ceil(counts.silenceMs / 1000)} s without an answer at most`,
    `${violations.length} violations`,
    `seed ${seed}`,
  ].join(', '),
);
if (violations.length > 0) console.log(`what was left is in ${result.dir}`);
process.exitCode = violations.length > 0 ? 1 : 0;

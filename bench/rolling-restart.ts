/**
 * A rolling restart: CLIENTS (200) clients of graphql-sse as they come, a quarter of each kind (one connection for each
 * subscription or one for all, with the last event or without), watch a request; the gateway stops, is away for AWAY (18)
 * seconds besides its start, and comes back. Two of the six files come while it is away.
 *
 *   npm run compile && node dist/bench/rolling-restart.js
 */
import { startEngine } from '../src/engine/runner.js';
import { createMemoryBackend } from '../src/tape/memory.js';
import { startServer, stop } from '../test/support/process.js';
import { hasCaughtUp, hasLostNothing, KINDS, restartUnderWatchers } from '../test/support/rolling-restart.js';
import { withBench } from './kit.js';

const clients = Number(process.env.CLIENTS ?? 200);
const away = Number(process.env.AWAY ?? 18);
/** Five tries of graphql-sse take up to 46 s. */
const PATIENCE_MS = 120_000;

await withBench(
  async (ctx) => {
    const backend = createMemoryBackend();
    const engine = await startEngine(ctx, backend);
    const serve = async (port: number) => {
      const gateway = await startServer('serve', { env: { DATA_DIR: ctx.config.dataDir, PORT: String(port) } });
      return { url: gateway.url, stop: () => stop(gateway) };
    };
    const { watchers, events, endedEarly, files } = await restartUnderWatchers(
      { ctx, backend, serve },
      { ofEachKind: Math.ceil(clients / KINDS.length), awaySeconds: away, patienceMs: PATIENCE_MS },
    );
    await engine.stop();
    const resuming = watchers.filter(({ resumes }) => resumes);
    const others = watchers.filter(({ resumes }) => !resumes);
    const completed = watchers.filter(({ end }) => end === 'complete').length;
    const whole = resuming.filter((watcher) => hasLostNothing(watcher, events)).length;
    const present = others.filter((watcher) => hasCaughtUp(watcher, files)).length;
    console.log(`${watchers.length} clients, the gateway away for ${away} s besides its start`);
    console.log(`ended before the request   ${endedEarly}`);
    console.log(`told that it is complete   ${completed} of ${watchers.length}`);
    console.log(
      `with the last event        ${whole} of ${resuming.length} were told all ${events.length} events, each once`,
    );
    console.log(`without                    ${present} of ${others.length} were told the present state first`);
    const isRight = endedEarly === 0 && completed === watchers.length && whole + present === watchers.length;
    if (!isRight) process.exitCode = 1;
  },
  { DRIVES: '6' },
);

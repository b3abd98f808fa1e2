/** Program of an engine with a short lease and a library whose reads fail at random. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { environment } from '../../src/core/environment.js';
import { startEngine } from '../../src/engine/runner.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';
import { createRandom } from './random.js';
import { CALM_FILE, createFaultyLibrary } from './tape-faults.js';

const LEASE_SECONDS = 2;
const DRAIN_MS = 1000;

const config = readConfig(environment);
const calm = path.join(config.dataDir, CALM_FILE);
const runtime = await openRuntime(config);
await runtime.ctx.events.open();
const library = createFaultyLibrary(createFirstLibrary(config), createRandom(Number(environment.FAULT_SEED)), () =>
  existsSync(calm),
);
const engine = await startEngine(runtime.ctx, library, { leaseSeconds: LEASE_SECONDS, drainMs: DRAIN_MS });
process.stdout.write('works\n');
process.once('SIGTERM', async () => {
  await engine.stop();
  await runtime.close();
  process.exit(0);
});

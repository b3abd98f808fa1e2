/** Runs an engine in the test's process, with the settings of `work` in an environment. */

import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';

export interface LocalEngine {
  stop(): Promise<void>;
}

export async function workHere(
  env: Record<string, string>,
  { now, ...options }: EngineOptions & { now?: () => string } = {},
): Promise<LocalEngine> {
  const config = readConfig(env);
  const runtime = await openRuntime(config, 'schema');
  await runtime.ctx.events.open();
  const library = createFirstLibrary(config);
  const engine = await startEngine({ ...runtime.ctx, ...(now && { now }) }, library, { drainMs: 200, env, ...options });
  return {
    stop: async () => {
      await engine.stop();
      await runtime.close();
    },
  };
}

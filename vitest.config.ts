import { createRequire } from 'node:module';
import { defineConfig } from 'vitest/config';

const common = {
  // vitest would load the ES modules of graphql beside the CommonJS ones that its dependants load
  resolve: {
    alias: [{ find: /^graphql$/, replacement: createRequire(import.meta.url).resolve('graphql') }],
  },
};

/** The tests of a directory; test/README.md says what belongs where. */
function project(name: string, { isolate = false } = {}) {
  return {
    ...common,
    test: {
      name,
      include: [`test/${name}/**/*.test.ts`],
      pool: 'forks' as const,
      isolate,
      setupFiles: ['test/support/measure.ts'],
      // far beyond what any of them takes: it ends what hangs, and says nothing of how fast something is
      testTimeout: 180_000,
      hookTimeout: 180_000,
      expect: { poll: { timeout: 60_000 } },
    },
  };
}

export default defineConfig({
  test: {
    maxWorkers: 4, // many tests wait for processes and pauses
    globalSetup: ['test/support/global-setup.ts'],
    reporters: ['default', 'test/support/slowest.ts'],
    // one process loads the modules once for all files: most of the time of a short file goes there
    projects: [
      project('pure'),
      project('gateway'),
      project('process'),
      project('browser'),
      project('alone', { isolate: true }),
      project('torture', { isolate: true }),
      project('fuzz', { isolate: true }),
      // of programs that few machines have
      ...(process.env.CLIENTS === 'on' ? [project('clients', { isolate: true })] : []),
    ],
  },
});

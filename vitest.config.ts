import { createRequire } from 'node:module';
import { defineConfig } from 'vitest/config';

const common = {
  // vitest would load graphql as ES modules, while other packages load it as CommonJS
  resolve: {
    alias: [{ find: /^graphql$/, replacement: createRequire(import.meta.url).resolve('graphql') }],
  },
};

/** Configures the tests of a directory; test/README.md describes the directories. */
function project(name: string, { isolate = false, exclude = [] as string[] } = {}) {
  return {
    ...common,
    test: {
      name,
      include: [`test/${name}/**/*.test.ts`],
      exclude: ['**/node_modules/**', ...exclude],
      pool: 'forks' as const,
      isolate,
      setupFiles: ['test/support/measure.ts'],
      // ends tests that hang; much longer than any test takes, because the machine may be slow
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
    // one process loads the modules once for all files, which takes most of the time of a short file
    projects: [
      project('pure'),
      project('gateway'),
      project('process'),
      project('browser'),
      project('alone', { isolate: true }),
      project('torture', { isolate: true }),
      project('fuzz', { isolate: true }),
      // few machines have gfal2, davix and curl
      project('clients', {
        isolate: true,
        exclude: process.env.CLIENTS === 'on' ? [] : ['test/clients/clients.test.ts'],
      }),
    ],
  },
});

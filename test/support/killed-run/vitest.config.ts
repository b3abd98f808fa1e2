/** Configuration of the run that `sweeper.test.ts` kills. */
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/support/killed-run/killed.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: 60_000,
  },
});

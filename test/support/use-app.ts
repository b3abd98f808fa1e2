/** An app for all tests of a file, or of a `describe`. */
import { afterAll, beforeAll, expect } from 'vitest';
import { stepSize } from '../../src/domain/catalogue/chosen-files.js';
import { startApp, type TestApp, type TestAppOptions } from './app.js';
import { findFaults } from './faults.js';

/**
 * Starts an app before the tests and closes it after them. The returned object is empty until then.
 * @param prepare what all tests share
 */
export function useApp(options: TestAppOptions = {}, prepare?: () => Promise<unknown>): TestApp {
  const app = {} as TestApp;
  beforeAll(async () => {
    Object.assign(app, await startApp(options));
    await prepare?.();
  });
  afterAll(() => app.close?.());
  return app;
}

/** Files that an operation on the catalogue of `useCatalogue` changes in one step. */
export const STEP = 100;

/** Like `useApp`, with small steps of catalogue operations. Fails if the doctor finds something after the tests. */
export function useCatalogue(options: TestAppOptions = {}, prepare?: () => Promise<unknown>): TestApp {
  const before = stepSize.files;
  beforeAll(() => {
    stepSize.files = STEP;
  });
  const app = useApp(options, prepare);
  afterAll(async () => {
    stepSize.files = before;
    expect(await findFaults(app)).toEqual([]);
  });
  return app;
}

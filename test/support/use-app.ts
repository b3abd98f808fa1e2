/** Apps that all tests of a file or of a `describe` share. */
import { afterAll, beforeAll, expect } from 'vitest';
import { stepSize } from '../../src/domain/catalogue/chosen-files.js';
import { startApp, type TestApp, type TestAppOptions } from './app.js';
import { findFaults } from './faults.js';

/**
 * Starts an app before the tests, and closes the app after the tests. The returned object is empty until the app has
 * started.
 * @param prepare adds data that all tests share
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

/** Number of files that a catalogue operation of a `useCatalogue` app changes in one step. */
export const STEP = 100;

/** Like `useApp`, but catalogue operations take small steps. Fails if the doctor has findings after the tests. */
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

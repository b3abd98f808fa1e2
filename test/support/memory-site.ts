/** Shares one app with a memory library between all tests of a file, and offers the steps of most tests. */
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { startApp, type TestApp, type TestAppOptions } from './app.js';
import { type Clock, createClock } from './clock.js';
import { prepareIdle, restoreByHand } from './engine-by-hand.js';
import { findIllegalMoves } from './engine-watch.js';
import { addQuota, addTaped } from './factories.js';
import { createMemoryLibrary, type MemoryLibrary } from './memory-library.js';
import { waitForState } from './request-view.js';
import { makeRequest } from './rest.js';

interface SiteOptions extends Pick<TestAppOptions, 'engine' | 'siteSettings'> {
  drives?: number;
  /** Users with a quota of 1 GB each; default: alice. */
  users?: readonly string[];
  /** Whether engines run only inside `withEngine`. A drive and a restore disk are prepared. */
  isIdle?: boolean;
}

interface MemorySite {
  app: TestApp;
  library: MemoryLibrary;
  clock: Clock;
  /** Writes files of 1000 bytes in order to a new volume. @returns the bytes by path */
  tape(...files: string[]): Promise<Map<string, Uint8Array>>;
  /** Requests files for alice, with a retention in 2099. @returns the id of the request */
  ask(...files: string[]): Promise<number>;
  /** Writes files to tape, requests and restores the files. @returns the id of the request */
  restore(...files: string[]): Promise<number>;
  /** Returns the path of a file's copy on the first restore disk. */
  place(file: string): string;
  /** Counts the reads of a volume, or of all volumes, since the test began. */
  countReads(volume?: string): number;
  query<Row extends object = Record<string, unknown>>(sql: string, values?: unknown[]): Promise<Row[]>;
}

/**
 * Starts an app before the tests, and closes the app after the tests. `app` is empty until the app has started.
 * After each test, the library's hooks are reset and the library's log is emptied.
 * After all tests, an illegal stage move of a file fails the test file. Call the function before the file's own hooks.
 */
export function useMemorySite({
  drives,
  users = ['alice'],
  engine = {},
  isIdle = false,
  siteSettings = {},
}: SiteOptions = {}): MemorySite {
  const app = {} as TestApp;
  const library = createMemoryLibrary();
  const hooks = { onMount: library.onMount, onRead: library.onRead };
  const clock = createClock();
  let volumes = 0;

  beforeAll(async () => {
    const config = drives === undefined ? {} : { drives };
    Object.assign(app, await startApp({ now: clock.now, config, siteSettings, ...(!isIdle && { library, engine }) }));
    if (isIdle) await prepareIdle(app);
    for (const user of users) await addQuota(app.ctx, user, 10n ** 9n);
  });
  afterEach(() => {
    Object.assign(library, hooks);
    library.log.length = 0;
  });
  afterAll(async () => {
    if (!app.close) return; // the app did not start
    const illegal = await findIllegalMoves(app);
    await app.close();
    expect(illegal).toEqual([]);
  });

  async function tape(...files: string[]) {
    const volume = `TAPE${++volumes}`;
    const taped = files.map((file, index) => ({ path: file, volume, position: BigInt(index + 1) }));
    return await addTaped(app.ctx, library, taped);
  }

  const ask = (...files: string[]) => makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });

  async function restore(...files: string[]) {
    const contents = await tape(...files);
    const id = await ask(...files);
    if (isIdle) for (const [file, bytes] of contents) await restoreByHand(app, file, bytes);
    await waitForState(app, id, 'COMPLETED');
    return id;
  }

  return {
    ...{ app, library, clock, tape, ask, restore },
    place: (file) => path.join(app.restoreDir, file),
    countReads: (volume) =>
      library.log.filter((entry) => entry.what === 'read' && (volume ?? entry.volume) === entry.volume).length,
    query: async (sql, values) => (await app.ctx.db.pool.query(sql, values)).rows,
  };
}

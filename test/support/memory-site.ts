/** One app with a memory library for all tests of a file, and the steps that most tests take. */
import path from 'node:path';
import { afterAll, afterEach, expect } from 'vitest';
import { createMemoryBackend, type MemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp, type TestAppOptions } from './app.js';
import { type Clock, createClock } from './clock.js';
import { prepareIdle, withEngine } from './engine-by-hand.js';
import { findIllegalMoves } from './engine-watch.js';
import { addQuota, addTaped } from './factories.js';
import { waitForState } from './request-view.js';
import { makeRequest } from './rest.js';

interface SiteOptions extends Pick<TestAppOptions, 'config' | 'engine'> {
  drives?: number;
  /** Users with a quota of 1 GB each. Default: alice. */
  users?: readonly string[];
  /** Runs the engine only in `withEngine`, with one drive. */
  isIdle?: boolean;
}

export interface MemorySite {
  backend: MemoryBackend;
  clock: Clock;
  start(options?: SiteOptions): Promise<TestApp>;
  /** Puts files of 1000 bytes on a new volume, in order. @returns their bytes by path */
  tape(...files: string[]): Promise<Map<string, Uint8Array>>;
  /** Requests files for alice, with a retention until 2099. */
  ask(...files: string[]): Promise<number>;
  /** Puts files on tape, requests them, and waits for their copies. @returns the request */
  restore(...files: string[]): Promise<number>;
  /** Returns the path of a file's copy on the first restore disk. */
  place(file: string): string;
  query<Row extends object = Record<string, unknown>>(sql: string, values?: unknown[]): Promise<Row[]>;
}

/**
 * Call it once in a file, before the hooks of the file. After each test it restores the hooks of the library and empties its log. After
 * all tests it fails if a file has made an illegal move.
 */
export function createMemorySite(): MemorySite {
  const backend = createMemoryBackend();
  const hooks = { onMount: backend.onMount, onRead: backend.onRead };
  const clock = createClock();
  let started: TestApp | undefined;
  let isIdle = false;
  let volumes = 0;

  function appOf(): TestApp {
    if (!started) throw new Error('the site has not started');
    return started;
  }

  async function start({ drives, users = ['alice'], config, engine = {}, ...rest }: SiteOptions = {}) {
    isIdle = rest.isIdle ?? false;
    started = await startApp({
      now: clock.now,
      config: { ...(drives && { drives }), ...config },
      ...(!isIdle && { backend, engine }),
    });
    if (isIdle) await prepareIdle(started);
    for (const user of users) await addQuota(started.ctx, user, 10n ** 9n);
    return started;
  }

  async function tape(...files: string[]) {
    const volume = `TAPE${++volumes}`;
    const taped = files.map((file, index) => ({ path: file, volume, position: BigInt(index + 1) }));
    return await addTaped(appOf().ctx, backend, taped);
  }

  const ask = (...files: string[]) => makeRequest(appOf(), { quota: 'alice', files, retention: '2099-01-01' });

  async function restore(...files: string[]) {
    const app = appOf();
    await tape(...files);
    const id = await ask(...files);
    const complete = () => waitForState(app, id, 'COMPLETED');
    await (isIdle ? withEngine(app, backend, complete, { part: 'drive' }) : complete());
    return id;
  }

  afterEach(() => {
    Object.assign(backend, hooks);
    backend.log.length = 0;
  });
  afterAll(async () => {
    if (!started) return;
    const illegal = await findIllegalMoves(started);
    await started.close();
    expect(illegal).toEqual([]);
  });

  return {
    ...{ backend, clock, start, tape, ask, restore },
    place: (file) => path.join(appOf().restoreDir, file),
    query: async (sql, values) => (await appOf().ctx.db.pool.query(sql, values)).rows,
  };
}

/** The memory library for staging. */
import { expect, test } from 'vitest';
import { createMemoryStaging, type MemorySystemOptions, MemoryTapeSystem } from '../support/memory-staging.js';
import { ask, errorOf, makeReady, putFiles, readStaged, staged } from '../support/staging-bench.js';
import { describeStagingLibrary, type StagingBench } from '../support/staging-library.js';
import { quiet } from '../support/tape-backend.js';

function createBench(options: MemorySystemOptions): StagingBench & { system: MemoryTapeSystem } {
  const system = new MemoryTapeSystem(options);
  const reopen = () => createMemoryStaging(system);
  return {
    system,
    library: reopen(),
    reopen,
    put: async (path, bytes) => system.put(path, bytes),
    arrive: async (paths) => system.arrive(paths),
    spoil: async (path, how) => system.spoil(path, how),
    evict: async (path) => system.evict(path),
    forget: async () => system.forget(),
    lose: async (call) => system.lose(call),
    busy: async (seconds) => system.busy(seconds),
    isStaged: async (path) => system.isStaged(path),
    countReads: async () => system.reads,
    close: async () => {},
  };
}

describeStagingLibrary('memory', async () => createBench({}), { release: true, ids: true, until: false });
describeStagingLibrary(
  'memory without ids and releases',
  async () => createBench({ ids: false, releases: false, lifetimeMs: 3_600_000 }),
  { release: false, ids: false, until: true, readsAsAnother: true },
);

const never = new Promise<never>(() => {});

test('an endless call and an endless read end with their signals', async () => {
  const bench = createBench({});
  await makeReady(bench, await putFiles(bench, ['/a']));
  const reason = new Error('stop');
  bench.system.onCall = () => never;
  bench.system.onRead = () => never;
  for (const begin of [
    (signal: AbortSignal) => bench.library.stage([staged('/a')], signal),
    (signal: AbortSignal) => bench.library.read(staged('/a'), 0n, signal)[Symbol.asyncIterator]().next(),
  ]) {
    const abort = new AbortController();
    const call = begin(abort.signal);
    await Promise.resolve();
    abort.abort(reason);
    expect(await errorOf(call)).toBe(reason);
  }
});

test('a file in two requests stays until both have released it', async () => {
  const bench = createBench({});
  const files = await putFiles(bench, ['/a']);
  const first = await makeReady(bench, files);
  const second = await ask(bench.library, files);
  await bench.library.release(first.demand, quiet());
  expect(bench.system.isStaged('/a')).toBe(true);
  await bench.library.release(second.demand, quiet());
  expect(bench.system.isStaged('/a')).toBe(false);
});

test('a file expires after its lifetime', async () => {
  const bench = createBench({ lifetimeMs: 0 });
  const { demand } = await ask(bench.library, await putFiles(bench, ['/a']));
  await bench.arrive(['/a']);
  expect(await bench.library.poll(demand, quiet())).toEqual([{ path: '/a', state: 'forgotten' }]);
});

test('a test can inject errors and wrong bytes, and each call is recorded', async () => {
  const bench = createBench({});
  bench.system.onStaged = (paths) => bench.system.arrive(paths);
  const files = await putFiles(bench, ['/a']);
  const { demand, states } = await ask(bench.library, files);
  expect([...states.values()]).toEqual([{ path: '/a', state: 'ready', until: null }]);
  bench.system.onRead = async (path, bytes) => Buffer.from(`${path} ${bytes.length}`);
  expect((await readStaged(bench.library, staged('/a'), 1n)).toString()).toBe('a 15');
  bench.system.onCall = async (what, paths) => {
    throw new Error(`no ${what} of ${paths} today`);
  };
  await expect(bench.library.poll(demand, quiet())).rejects.toThrow('no poll of /a today');
  expect(bench.system.log).toEqual([
    { what: 'stage', paths: ['/a'] },
    { what: 'read', paths: ['/a'], from: 1n },
    { what: 'poll', paths: ['/a'], id: 'demand-1' },
  ]);
});

/** The memory library for staging keeps the contract, so that other tests may use it. */
import { createMemoryStaging, type MemorySystemOptions, MemoryTapeSystem } from '../support/memory-staging.js';
import { describeStagingLibrary, type StagingBench } from '../support/staging-library.js';

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

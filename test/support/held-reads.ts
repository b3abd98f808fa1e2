/** Blocks reads of a memory library until the test continues. */
import type { MemoryLibrary } from './memory-library.js';
import { createGate, type Gate, waitFor } from './wait.js';

/** Blocks reads until `open` is called or the library's `onRead` is replaced. */
export function holdReads(library: MemoryLibrary) {
  const all = createGate();
  const gates = new Map<string, Gate>();
  const gateOf = (volume: string) => {
    const gate = gates.get(volume) ?? createGate();
    gates.set(volume, gate);
    return gate;
  };
  library.onRead = async (volume) => {
    await Promise.race([all.opened, gateOf(volume).opened]);
  };
  return {
    /** Waits until the library has begun a read. */
    begun: () => waitFor('a read', async () => library.log.some((entry) => entry.what === 'read')),
    /** Unblocks current and later reads of a volume, or of all volumes. */
    open: (volume?: string): void => (volume === undefined ? all : gateOf(volume)).open(),
  };
}

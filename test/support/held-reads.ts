/** Reads of a memory library that wait for the test. */
import type { MemoryLibrary } from './memory-library.js';
import { createGate, type Gate, waitFor } from './wait.js';

/** Blocks reads until `open`, or until the hook of the library is replaced. */
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
    /** Waits until a read has begun. */
    begun: () => waitFor('a read', async () => library.log.some((entry) => entry.what === 'read')),
    /** Unblocks present and later reads of a volume, or of all. */
    open: (volume?: string): void => (volume === undefined ? all : gateOf(volume)).open(),
  };
}

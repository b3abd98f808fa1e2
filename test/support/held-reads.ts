/** Reads of a memory back end that wait for the test. */
import type { MemoryBackend } from '../../src/tape/memory.js';
import { createGate, type Gate, waitFor } from './wait.js';

export interface HeldReads {
  /** Waits until something is being read. */
  begun(): Promise<unknown>;
  /** Lets the reads of a volume go on, now and later; of all volumes unless one is given. */
  open(volume?: string): void;
}

/** Until the hooks of the back end are put back. */
export function holdReads(backend: MemoryBackend): HeldReads {
  const all = createGate();
  const gates = new Map<string, Gate>();
  const gateOf = (volume: string) => {
    const gate = gates.get(volume) ?? createGate();
    gates.set(volume, gate);
    return gate;
  };
  backend.onRead = async (volume, _position, bytes) => {
    await Promise.race([all.opened, gateOf(volume).opened]);
    return bytes;
  };
  return {
    begun: () => waitFor('a read', async () => backend.log.some((entry) => entry.what === 'read')),
    open: (volume) => (volume === undefined ? all : gateOf(volume)).open(),
  };
}

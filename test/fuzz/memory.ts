/** Measures how much memory a process really uses. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Bytes after garbage collection. */
export interface Memory {
  /** Includes what V8 and the allocator for threads keep free. */
  rss: number;
  /** Objects on V8's heap, and what they have elsewhere, such as buffers and compressors. */
  heap: number;
}

/** Some garbage is collected late: the least of some measurements counts. */
const MEASUREMENTS = 4;
const PAUSE_MS = 150;

export async function measureMemory(): Promise<Memory> {
  const all: Memory[] = [];
  for (let n = 0; n < MEASUREMENTS; n++) {
    globalThis.gc?.();
    await sleep(PAUSE_MS);
    const { rss, heapUsed, external } = process.memoryUsage();
    all.push({ rss, heap: heapUsed + external });
  }
  const least = (name: keyof Memory) => Math.min(...all.map((memory) => memory[name]));
  return { rss: least('rss'), heap: least('heap') };
}

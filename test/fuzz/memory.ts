/** Measures the memory that a process uses after garbage collection. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Bytes after garbage collection. */
export interface Memory {
  /** Resident size, including free memory that V8 and the allocator keep. */
  rss: number;
  /** V8's heap, and external memory of objects such as buffers and compressors. */
  heap: number;
}

/** Number of measurements. The smallest measurement counts, because some garbage is collected late. */
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

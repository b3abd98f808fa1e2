/** Measures how much memory a process really uses. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { getHeapStatistics } from 'node:v8';

/** Bytes after garbage collection. */
export interface Memory {
  rss: number;
  /** Resident memory without what V8 and the allocator for threads keep free. */
  inUse: number;
  /** Objects on V8's heap, and what they have elsewhere. */
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
    const { total_physical_size: heapResident } = getHeapStatistics();
    all.push({ rss, inUse: rss - (heapResident - heapUsed) - readArenas(), heap: heapUsed + external });
  }
  const least = (name: keyof Memory) => Math.min(...all.map((memory) => memory[name]));
  return { rss: least('rss'), inUse: least('inUse'), heap: least('heap') };
}

/** The address space of an arena, aligned to as much: a used part that can be read and written, and a rest that cannot. */
const ARENA_BYTES = 64 * 1024 * 1024;

interface Region {
  from: number;
  to: number;
  isUsed: boolean;
  isNamed: boolean;
  residentBytes: number;
}

/**
 * Sums up the arenas of glibc, which threads of V8 and libuv allocate from. They keep the most that was ever needed at a time. Allocations of the
 * program are on V8's heap or on that of the main thread.
 * @param smaps /proc/<pid>/smaps
 * @returns resident bytes
 */
function sumArenas(smaps: string): number {
  const regions: Region[] = [];
  for (const line of smaps.split('\n')) {
    const [, from, to, mode, name] = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+\s*(.*)$/.exec(line) ?? [];
    if (from && to) {
      const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
      regions.push({ from: start, to: end, isUsed: mode === 'rw-p', isNamed: name !== '', residentBytes: 0 });
    }
    const [, kilobytes] = /^Rss:\s+(\d+) kB$/.exec(line) ?? [];
    const last = regions.at(-1);
    if (kilobytes && last) last.residentBytes = Number(kilobytes) * 1024;
  }
  return regions.filter(isArena).reduce((sum, { residentBytes }) => sum + residentBytes, 0);
}

function isArena({ from, to, isUsed, isNamed }: Region, index: number, all: readonly Region[]): boolean {
  if (!isUsed || isNamed || from % ARENA_BYTES !== 0 || to - from > ARENA_BYTES) return false;
  const rest = all[index + 1];
  return to - from === ARENA_BYTES || (rest?.from === to && !rest.isUsed && rest.to >= from + ARENA_BYTES);
}

function readArenas(): number {
  try {
    return sumArenas(readFileSync('/proc/self/smaps', 'latin1'));
  } catch {
    return 0; // not on Linux
  }
}

/**
 * What the allocator of the C library keeps for threads (glibc's arenas): the threads of V8 that collect and compile have it, and those of
 * libuv. It comes to the most that any of them has needed at a time and is not given back; what belongs to the program is on V8's heap, or on
 * that of the main thread.
 */
import { readFileSync } from 'node:fs';

/** Of address space, aligned to as much: the part that is in use may be read and written, and the rest of it may not. */
const ARENA_BYTES = 64 * 1024 * 1024;

interface Region {
  from: number;
  to: number;
  isUsed: boolean;
  isNamed: boolean;
  resident: number;
}

/** @param smaps /proc/<pid>/smaps. @returns bytes that are resident */
export function sumArenas(smaps: string): number {
  const regions: Region[] = [];
  for (const line of smaps.split('\n')) {
    const [, from, to, mode, name] = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+\s*(.*)$/.exec(line) ?? [];
    if (from && to) {
      const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
      regions.push({ from: start, to: end, isUsed: mode === 'rw-p', isNamed: name !== '', resident: 0 });
    }
    const [, kilobytes] = /^Rss:\s+(\d+) kB$/.exec(line) ?? [];
    const last = regions.at(-1);
    if (kilobytes && last) last.resident = Number(kilobytes) * 1024;
  }
  return regions.filter(isArena).reduce((sum, { resident }) => sum + resident, 0);
}

function isArena({ from, to, isUsed, isNamed }: Region, index: number, all: readonly Region[]): boolean {
  if (!isUsed || isNamed || from % ARENA_BYTES !== 0 || to - from > ARENA_BYTES) return false;
  const rest = all[index + 1];
  return to - from === ARENA_BYTES || (rest?.from === to && !rest.isUsed && rest.to >= from + ARENA_BYTES);
}

/** Of this process; 0 where the system does not tell. */
export function readArenas(): number {
  try {
    return sumArenas(readFileSync('/proc/self/smaps', 'latin1'));
  } catch {
    return 0;
  }
}

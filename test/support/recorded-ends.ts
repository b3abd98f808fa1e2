/** Compares the estimated ends of requests with the real ends, under a load that arrives later. */
import { planAhead } from '../../src/planner/ahead.js';
import { type EndRange, rangeOf } from '../../src/planner/end-range.js';
import type { Medium } from '../../src/planner/media.js';
import {
  addFile,
  addMount,
  isMeasured,
  joinPaces,
  measuredMedium,
  measureOwn,
  type PaceSums,
  parsePace,
} from '../../src/planner/pace.js';
import type { WaitingVolume } from '../../src/planner/queue.js';
import { PlannedStrategy } from '../../src/simulator/planned.js';
import { type BusyDrive, simulate } from '../../src/simulator/simulate.js';
import type { Arrival } from '../../src/simulator/workload.js';

/** Estimated and real end of the files that a user requested at one time, in seconds from the start of the load. */
export interface ToldEnd {
  user: string;
  at: number;
  range: EndRange;
  end: number;
}

/** Simulates a load with Tapegate's planner, and estimates the end of each request on arrival. */
export function followEnds(
  arrivals: readonly Arrival[],
  options: { drives: number; medium: Medium; slowness?: readonly number[]; learnsFrom?: number },
): ToldEnd[] {
  const strategy = new PlannedStrategy(options.medium);
  const ranges = new Map<string, EndRange>();
  const paces = Array.from({ length: options.drives }, () => parsePace([]));
  let read = 0;
  const outcome = simulate(strategy, arrivals, {
    ...options,
    onRead: ({ size }, seconds, { index }) => {
      read++;
      const pace = paces[index] ?? parsePace([]);
      const mounted = seconds.mount > 0 ? addMount(pace, seconds.mount) : pace;
      paces[index] = addFile(mounted, { medium: options.medium, files: 30, bytes: size, seconds: seconds.read });
    },
    onAsked: (files, now, drives) => {
      if (read < (options.learnsFrom ?? 0)) return;
      const isKnown = options.learnsFrom !== undefined;
      const tell = createTeller(strategy, now, { busy: drives, paces: isKnown ? paces : [] });
      for (const [key, own] of groupBy(files, keyOf)) {
        const range = tell(own);
        if (range) ranges.set(key, range);
      }
    },
  });
  const ends = new Map<string, ToldEnd>();
  for (const wait of outcome.waits) {
    const range = ranges.get(keyOf(wait));
    const end = Math.max(ends.get(keyOf(wait))?.end ?? 0, wait.at + wait.seconds);
    if (range) ends.set(keyOf(wait), { user: wait.user, at: wait.at, range, end });
  }
  return [...ends.values()];
}

const keyOf = ({ user, at }: { user: string; at: number }): string => `${at} ${user}`;

function groupBy<Item>(items: readonly Item[], key: (item: Item) => string): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group) group.push(item);
    else groups.set(key(item), [item]);
  }
  return groups;
}

/** Id of the only library. All volumes and drives belong to the library. */
const LIBRARY = 1;

/** Returns a function that estimates ends from the current queue, as src/domain/plan does. */
function createTeller(
  strategy: PlannedStrategy,
  now: number,
  { busy, paces }: { busy: readonly BusyDrive[]; paces: readonly PaceSums[] },
) {
  const pace = joinPaces(paces);
  const state = strategy.stateAt(now);
  const ids = new Map<string, number>();
  const idOf = (volume: string): number => {
    const id = ids.get(volume) ?? ids.size + 1;
    ids.set(volume, id);
    return id;
  };
  const mounted = new Set(busy.map(({ drive }) => drive.volume));
  const queues: WaitingVolume[] = strategy.queues().map((queue) => ({
    ...queue,
    volumeId: idOf(queue.volume),
    libraryId: LIBRARY,
    isMounted: mounted.has(queue.volume),
    measured: measuredMedium(queue.medium, pace),
  }));
  const medium = queues[0]?.measured;
  const drives = busy.map(({ drive, freeAt }) => ({
    name: `drive-${drive.index}`,
    libraryId: LIBRARY,
    volumeId: drive.volume === undefined ? null : idOf(drive.volume),
    mounted: drive.volume === undefined ? undefined : medium,
    measure: measureOwn(paces[drive.index] ?? pace, pace),
    running: { files: 0, bytes: Math.max(freeAt - now, 0) * (medium?.streamBytesPerSecond ?? 0) },
  }));
  const ahead = planAhead({ queues, drives, ...state });
  const mountedIds = new Set(drives.flatMap(({ volumeId }) => volumeId ?? []));
  return (files: readonly Arrival[]): EndRange | undefined => {
    if (!medium) return undefined;
    const parts = [...groupBy(files, (file) => file.volume)].map(([volume, own]) => ({
      volumeId: idOf(volume),
      libraryId: LIBRARY,
      medium,
      isMeasured: isMeasured(pace),
      files: own.length,
      bytes: own.reduce((sum, file) => sum + file.size, 0),
      isReading: false,
      notBefore: undefined,
      staged: undefined,
    }));
    const plan = { now, ahead, drives: new Map([[LIBRARY, drives.length]]), staged: new Map(), mounted: mountedIds };
    return rangeOf(plan, files[0]?.user ?? '', parts);
  };
}

/**
 * Bursts: within hours, several users request parts of the same popular volumes, as at the start of a campaign. Files
 * are clustered, as they were written, and their sizes are log-normal, as archives report.
 */
import type { Medium } from '../src/planner/media.js';
import { type Arrival, createRandom } from '../src/simulator/workload.js';

/** Inclusive ranges of random parameters. */
const RANGES = { users: [6, 36], files: [1500, 9000], volumes: [4, 16], hours: [2, 8] } as const;

/** Clusters on a volume: campaigns that were archived together. */
const CLUSTERS = 6;

/** Bytes of a file, log-normal; the mean is about 1.3 GB. */
const SIZE = { median: 0.8e9, sigma: 1 };

/** Maximum files of a request, and the part of a cluster's files that it takes. */
const REQUEST = { files: 200, part: 0.3 };

/** A file of a cluster that has not been requested yet. */
type Extent = Pick<Arrival, 'start' | 'size'>;

/** Creates the same load for the same seed, in order of time. Each file is requested once. */
export function makeBursts(medium: Medium, { seed }: { seed: number }): Arrival[] {
  return new Bursts(medium, seed).make();
}

class Bursts {
  private readonly medium: Medium;
  private readonly random: () => number;
  /** By volume and cluster, in order of position. */
  private readonly clusters = new Map<string, Extent[]>();

  constructor(medium: Medium, seed: number) {
    this.medium = medium;
    this.random = createRandom(seed);
  }

  make(): Arrival[] {
    const [users, files, volumes] = [this.draw(RANGES.users), this.draw(RANGES.files), this.draw(RANGES.volumes)];
    const seconds = this.draw(RANGES.hours) * 3600;
    const arrivals: Arrival[] = [];
    while (arrivals.length < files) {
      const user = `user-${String(Math.floor(this.random() * users)).padStart(2, '0')}`;
      const at = Math.floor(this.random() * seconds);
      const volume = `V${String(this.drawPopular(volumes)).padStart(4, '0')}`;
      const count = Math.min(1 + Math.floor(this.random() * REQUEST.files), files - arrivals.length);
      for (const extent of this.takeFiles(volume, count)) arrivals.push({ at, user, volume, ...extent });
    }
    return arrivals.sort((a, b) => a.at - b.at);
  }

  /** Takes some of a cluster's files from a random position on; fewer if there are not enough. */
  private takeFiles(volume: string, count: number): Extent[] {
    const cluster = Math.floor(this.random() * CLUSTERS);
    const key = `${volume} ${cluster}`;
    const left = this.clusters.get(key) ?? this.makeCluster(cluster);
    const first = Math.floor(this.random() * left.length);
    const taken = new Set<Extent>();
    for (const extent of left.slice(first)) {
      if (taken.size === count) break;
      if (this.random() < REQUEST.part) taken.add(extent);
    }
    this.clusters.set(
      key,
      left.filter((extent) => !taken.has(extent)),
    );
    return [...taken];
  }

  private makeCluster(cluster: number): Extent[] {
    const room = this.medium.capacityBytes / CLUSTERS;
    const files: Extent[] = [];
    for (let start = room * cluster; ; ) {
      const size = this.drawSize();
      if (start + size > room * (cluster + 1)) return files;
      files.push({ start, size });
      start += size;
    }
  }

  private draw([from, to]: readonly [number, number]): number {
    return from + Math.floor(this.random() * (to - from + 1));
  }

  /** Zipf distribution: the second is requested half as often as the first, the third a third as often. */
  private drawPopular(count: number): number {
    const weights = Array.from({ length: count }, (_, n) => 1 / (n + 1));
    let left = this.random() * weights.reduce((sum, weight) => sum + weight, 0);
    for (const [n, weight] of weights.entries()) {
      left -= weight;
      if (left < 0) return n;
    }
    return 0;
  }

  /** Box-Muller transform. */
  private drawSize(): number {
    const normal = Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    return Math.max(Math.round(SIZE.median * Math.exp(SIZE.sigma * normal)), 1);
  }
}

/**
 * Load in bursts: within hours, several users request parts of the same popular volumes, as at the start of a campaign.
 * Each volume contains clusters of files, and file sizes are log-normal, as archives report.
 */
import type { Medium } from '../src/planner/media.js';
import { type Arrival, createRandom } from '../src/simulator/workload.js';

/** Inclusive ranges of random parameters. */
const RANGES = { users: [6, 36], files: [1500, 9000], volumes: [4, 16], hours: [2, 8] } as const;

/** Clusters on a volume. A cluster is a campaign that was archived as a whole. */
const CLUSTERS = 6;

/** Log-normal distribution of file sizes in bytes, with a mean of about 1.3 GB. */
const SIZE = { median: 0.8e9, sigma: 1 };

/** Maximum number of files in a request, and the fraction of a cluster's files that a request takes. */
const REQUEST = { files: 200, part: 0.3 };

/** Extent on tape of a file that has not been requested yet. */
type Extent = Pick<Arrival, 'start' | 'size'>;

/** Returns requested files in order of time. The same seed gives the same load, and each file is requested once. */
export function makeBursts(medium: Medium, { seed }: { seed: number }): Arrival[] {
  return new Bursts(medium, seed).make();
}

class Bursts {
  private readonly medium: Medium;
  private readonly random: () => number;
  /** Files that have not been requested yet, by volume and cluster, in order of position. */
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

  /** Takes up to `count` random files of one cluster, starting at a random position. */
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

  /** Draws an index from a Zipf distribution: index 1 is half as likely as index 0, index 2 a third as likely. */
  private drawPopular(count: number): number {
    const weights = Array.from({ length: count }, (_, n) => 1 / (n + 1));
    let left = this.random() * weights.reduce((sum, weight) => sum + weight, 0);
    for (const [n, weight] of weights.entries()) {
      left -= weight;
      if (left < 0) return n;
    }
    return 0;
  }

  /** Draws a file size with the Box-Muller transform. */
  private drawSize(): number {
    const normal = Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    return Math.max(Math.round(SIZE.median * Math.exp(SIZE.sigma * normal)), 1);
  }
}

/**
 * Planning a long queue: FILES (100,000) waiting recalls of 2.5 GB on VOLUMES (20) LTO-8 volumes, one user among ten.
 * Time and memory for choosing the next volume and for ordering the files of every volume.
 *
 *   npm run compile && node --expose-gc dist/bench/planner.js
 */
import { Backlog } from '../src/planner/backlog.js';
import { findMedium } from '../src/planner/media.js';
import { groupByVolume, orderRecalls, type QueuedRecall, type QueueEntry } from '../src/planner/queue.js';
import { chooseNext, defaultPolicy } from '../src/planner/schedule.js';
import { createRandom } from '../src/simulator/workload.js';

const files = Number(process.env.FILES ?? 100_000);
const volumes = Number(process.env.VOLUMES ?? 20);
const sizeBytes = 2_500_000_000;
const medium = findMedium('lto-8');
const random = createRandom(7);

const queues = Array.from({ length: volumes }, (): QueuedRecall[] => []);
for (let n = 0; n < files; n++) {
  const start = BigInt(Math.floor(random() * (medium.capacityBytes - sizeBytes)));
  const recall = { fileId: BigInt(n), start, size: BigInt(sizeBytes), user: `user-${n % 10}`, priority: 0 };
  queues[Math.floor(random() * volumes)]?.push(recall);
}
const entries: QueueEntry[] = queues.flatMap((queue, volumeId) =>
  Array.from({ length: 10 }, (_, user) => ({
    volumeId,
    libraryId: 1,
    volume: `V${volumeId}`,
    medium: medium.name,
    isMounted: false,
    user: `user-${user}`,
    files: queue.length / 10,
    bytes: BigInt((queue.length / 10) * sizeBytes),
    oldest: '2026-01-01T00:00:00',
    priority: 0,
  })),
);

globalThis.gc?.();
const before = process.memoryUsage();
const start = performance.now();
const choice = chooseNext(new Backlog(groupByVolume(entries)), {
  shares: new Map(),
  now: 1.8e9,
  policy: defaultPolicy,
});
const chosen = performance.now();
const first = orderRecalls(medium, 0, queues[choice?.queue.volumeId ?? 0] ?? []);
const firstOrdered = performance.now();
let ordered = 0;
let peak = process.memoryUsage().rss;
for (const queue of queues) {
  ordered += orderRecalls(medium, 0, queue).length;
  peak = Math.max(peak, process.memoryUsage().rss);
}
const end = performance.now();
console.log(`${files} waiting recalls on ${volumes} volumes`);
console.log(`next volume chosen        ${(chosen - start).toFixed(1)} ms`);
console.log(`its ${first.length} files ordered    ${(firstOrdered - chosen).toFixed(0)} ms`);
console.log(`all ${ordered} files ordered  ${((end - firstOrdered) / 1000).toFixed(2)} s`);
console.log(
  `memory above the queue    ${((peak - before.rss) / 1e6).toFixed(0)} MB (process ${(peak / 1e6).toFixed(0)} MB)`,
);

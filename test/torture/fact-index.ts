/** Facts by what they are looked up by, and small questions to them. */
import type { Facts, FileFact, HoldFact, RequestFact } from './facts.js';

export interface Index {
  requests: ReadonlyMap<number, RequestFact>;
  files: ReadonlyMap<bigint, FileFact>;
  filesByPath: ReadonlyMap<string, FileFact>;
  mountpoints: ReadonlyMap<number, string>;
  /** Those that count: a hold that was let go early is none any more. */
  holdsOf: ReadonlyMap<number, readonly HoldFact[]>;
  /** Those that were let go early: their files never join the request again. */
  releasedOf: ReadonlyMap<number, readonly HoldFact[]>;
}

export function indexFacts(facts: Facts): Index {
  const isReleased = (hold: HoldFact) => hold.state === 'RELEASED';
  return {
    requests: new Map(facts.requests.map((request) => [request.id, request])),
    files: new Map(facts.files.map((file) => [file.id, file])),
    filesByPath: new Map(facts.files.map((file) => [file.path, file])),
    mountpoints: new Map(facts.disks.map((disk) => [disk.id, disk.mountpoint])),
    holdsOf: groupBy(
      facts.holds.filter((hold) => !isReleased(hold)),
      (hold) => hold.requestId,
    ),
    releasedOf: groupBy(facts.holds.filter(isReleased), (hold) => hold.requestId),
  };
}

export function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group) group.push(item);
    else groups.set(keyOf(item), [item]);
  }
  return groups;
}

export function isLive(request: { state: RequestFact['state'] } | undefined): boolean {
  return request !== undefined && request.state !== 'EXPIRED' && request.state !== 'CANCELLED';
}

export function sumOf<T>(items: readonly T[], bytesOf: (item: T) => bigint): bigint {
  return items.reduce((sum, item) => sum + bytesOf(item), 0n);
}

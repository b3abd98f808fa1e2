/** The waiting files on one simulated volume, with totals for each user. */
import type { UserQueue } from '../planner/backlog.js';
import type { Arrival } from './workload.js';

interface UserFiles {
  files: Set<Arrival>;
  bytes: number;
  /** Number of waiting files, keyed by request time. */
  times: Map<number, number>;
}

export class WaitingFiles {
  private readonly users = new Map<string, UserFiles>();
  private readonly priorities: ReadonlyMap<string, number>;

  constructor(priorities: ReadonlyMap<string, number>) {
    this.priorities = priorities;
  }

  get isEmpty(): boolean {
    return this.users.size === 0;
  }

  add(file: Arrival): void {
    const entry = this.users.get(file.user) ?? { files: new Set(), bytes: 0, times: new Map() };
    entry.files.add(file);
    entry.bytes += file.size;
    entry.times.set(file.at, (entry.times.get(file.at) ?? 0) + 1);
    this.users.set(file.user, entry);
  }

  remove(file: Arrival): void {
    const entry = this.users.get(file.user);
    if (!entry?.files.delete(file)) return;
    entry.bytes -= file.size;
    const left = (entry.times.get(file.at) ?? 0) - 1;
    if (left > 0) entry.times.set(file.at, left);
    else entry.times.delete(file.at);
    if (entry.files.size === 0) this.users.delete(file.user);
  }

  of(users: readonly string[]): Arrival[] {
    return users.flatMap((user) => [...(this.users.get(user)?.files ?? [])]);
  }

  byUser(): UserQueue[] {
    return [...this.users].map(([user, { files, bytes, times }]) => ({
      user,
      files: files.size,
      bytes,
      oldest: Math.min(...times.keys()),
      priority: this.priorities.get(user) ?? 0,
    }));
  }
}

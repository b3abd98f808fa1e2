/**
 * Cleans up after recalls that did not put a copy in place. Removes the recalls' partial files, and the empty
 * directories that were created for the recalls.
 */

import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import { callDisk, type FailingDisks } from '../../restore-area/failures.js';
import type { OpenDirectories } from '../../restore-area/made-directories.js';
import { partialName, removePartial } from '../../restore-area/partial-file.js';
import type { HeldLease } from './lease.js';

/**
 * Milliseconds for which removals can continue after the lease ends. A limit is needed because a removal might wait for
 * an unresponsive database.
 */
const LEASE_MARGIN_MS = 1000;

/**
 * After the lease is lost, failed removals are retried for `CLEANUP_MS` milliseconds, with pauses of
 * `CLEANUP_PAUSE_MS`.
 */
const CLEANUP_MS = 60_000;
const CLEANUP_PAUSE_MS = 1000;

export class Remains {
  private readonly lease: HeldLease;
  private readonly disks: FailingDisks;
  private readonly directories: OpenDirectories;

  constructor(lease: HeldLease, { disks, directories }: { disks: FailingDisks; directories: OpenDirectories }) {
    this.lease = lease;
    this.disks = disks;
    this.directories = directories;
  }

  /**
   * Returns a function that cleans up after a failed recall. The function removes empty directories created for the
   * recall, and the partial file if it might exist (`isUnseen`). The function never rejects, and returns false if a
   * later job must remove the files.
   */
  createRemover(): (recall: RunningRecall, isUnseen: boolean) => Promise<boolean> {
    const directories = new Map<string, Promise<boolean>>();
    return async (recall, isUnseen) => {
      if (isUnseen) return await this.removeRemainsInTime(recall, isUnseen);
      const directory = path.join(recall.mountpoint, path.dirname(recall.path));
      const removed = directories.get(directory) ?? this.removeRemainsInTime(recall, isUnseen);
      directories.set(directory, removed);
      return await removed;
    };
  }

  private async removeRemainsInTime(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const done = new AbortController();
    const late = waitPast(this.lease.signal, done.signal);
    return await Promise.race([this.removeRemains(recall, isUnseen), late]).finally(() => done.abort());
  }

  /**
   * Removes a recall's partial file and empty directories. While the lease is held, a periodic job retries failed
   * removals. If the lease is lost, the job might already have run, so this engine itself retries the removals for a
   * minute.
   */
  private async removeRemains(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const until = performance.now() + CLEANUP_MS;
    const { calls: jobCalls } = this.disks;
    for (;;) {
      if (await this.removeRemainsOnce(recall, isUnseen)) return true;
      // do not retry after a hung call: the hung disk is suspended, and this process will exit
      const isHung = this.lease.calls.hasHung || jobCalls.hasHung;
      if (!this.lease.signal.aborted || isHung || performance.now() >= until) return false;
      await sleep(CLEANUP_PAUSE_MS, undefined, { ref: false });
    }
  }

  private async removeRemainsOnce(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const isLost = this.lease.signal.aborted;
    const calls = isLost ? this.disks.calls : this.lease.calls;
    try {
      const name = partialName({ ...this.lease, fileId: recall.fileId });
      if (isLost && isUnseen) await callDisk(calls, recall, () => removePartial(recall, name));
    } catch {
      return false;
    }
    return !this.directories.mayHaveCreated(recall) || (await this.directories.removeEmpty(recall, calls));
  }
}

async function waitPast(lease: AbortSignal, done: AbortSignal): Promise<false> {
  try {
    if (!lease.aborted) await once(lease, 'abort', { signal: done });
    await sleep(LEASE_MARGIN_MS, undefined, { signal: done });
  } catch {
    // ignore the error, because an abort of `done` only ends the wait
  }
  return false;
}

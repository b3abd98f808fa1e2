/**
 * What the recalls of a batch leave on their disks, removed when they end: folders that were made for a copy that did not come, and
 * partial files that could not be removed before.
 *
 * As long as the lease is held, what cannot be removed is left to whoever looks for what recalls have left. Once it is over, others have
 * looked already: an engine that stood still removes by itself what it has made since, and goes on with that for a while. Nobody else
 * has its partial files, and an empty folder may go whoever has made it.
 */
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import type { CallWatch } from '../calls.js';
import { ofDisk } from '../disk/failures.js';
import type { OpenFolders } from '../disk/open-folders.js';
import { removePartial } from '../disk/partial-file.js';
import { partialName } from '../disk/partial-name.js';
import type { HeldLease } from './lease.js';

/** How long it is waited for when the lease is over: the database may hang. */
const WAIT_MS = 1000;

/** How long, and at what pauses, it goes on then. */
const GO_ON_MS = 60_000;
const PAUSE_MS = 1000;

interface Ended {
  recall: RunningRecall;
  /** Its partial file may be there. */
  isUnseen: boolean;
}

export class Leftovers {
  private readonly lease: HeldLease;
  private readonly folders: OpenFolders;
  private readonly passes: CallWatch;

  /** @param passes follows the calls that belong to no drive */
  constructor(lease: HeldLease, folders: OpenFolders, passes: CallWatch) {
    this.lease = lease;
    this.folders = folders;
    this.passes = passes;
  }

  /**
   * For recalls that end together: a folder is looked at once for all of them.
   * @returns what removes that of one of them; it never rejects, and returns false where that is left to others
   */
  ofMany(): (ended: Ended) => Promise<boolean> {
    const folders = new Map<string, Promise<boolean>>();
    return async (ended) => {
      if (ended.isUnseen) return await this.inTime(this.remove(ended));
      const { mountpoint, path: file } = ended.recall;
      const folder = path.join(mountpoint, path.dirname(file));
      const removed = folders.get(folder) ?? this.inTime(this.remove(ended));
      folders.set(folder, removed);
      return await removed;
    };
  }

  private async inTime(removed: Promise<boolean>): Promise<boolean> {
    const done = new AbortController();
    return await Promise.race([removed, waitPast(this.lease.signal, done.signal)]).finally(() => done.abort());
  }

  private async remove(ended: Ended): Promise<boolean> {
    const until = performance.now() + GO_ON_MS;
    for (;;) {
      if (await this.removeOnce(ended)) return true;
      const isHung = this.lease.calls.hasHung || this.passes.hasHung; // the disk is out of service, and this process is ended
      if (!this.lease.signal.aborted || isHung || performance.now() >= until) return false;
      await sleep(PAUSE_MS, undefined, { ref: false });
    }
  }

  private async removeOnce({ recall, isUnseen }: Ended): Promise<boolean> {
    const isOver = this.lease.signal.aborted;
    const calls = isOver ? this.passes : this.lease.calls;
    if (isOver && isUnseen && !(await this.removePartialOf(recall))) return false;
    return !this.folders.hasTried(recall) || (await this.folders.tidy(recall, calls));
  }

  private async removePartialOf(recall: RunningRecall): Promise<boolean> {
    const name = partialName({ ...this.lease, fileId: recall.fileId });
    const removed = ofDisk(this.passes, recall, () => removePartial(recall, name));
    return await removed.then(
      () => true,
      () => false,
    );
  }
}

/** Until it is too late to wait for more. @param done ends it earlier @returns false */
async function waitPast(lease: AbortSignal, done: AbortSignal): Promise<false> {
  try {
    if (!lease.aborted) await once(lease, 'abort', { signal: done });
    await sleep(WAIT_MS, undefined, { signal: done });
  } catch {
    // it was done in time
  }
  return false;
}

/** What a drive of an engine needs to know: its lease, its signals, and what it shares with the engine's other drives. */
import type { DriveRange } from '../../operations/recalls/drives.js';
import type { FailingDisks } from '../disk/failures.js';
import type { DiskGauge } from '../disk/space.js';
import type { LinkKeeper } from '../links/pass.js';
import type { Waker } from '../passes.js';
import type { VolumeFailures } from './drive-failures.js';
import type { DriveShare } from './share.js';

/** Enough to claim a drive and put it in order. */
export interface LeaseOptions {
  engineId: string;
  leaseSeconds: number;
  /** Drives that the engine holds just now. */
  held: Set<number>;
  /** No new work after this. */
  stop: AbortSignal;
  /** Work in hand is given up after this. */
  abort: AbortSignal;
  /** Nothing is waited for after this: what has not ended by then hangs. */
  leave: AbortSignal;
  disks: FailingDisks;
  /** Called when a call of the drive hangs, once that is written down and the drive is given back. */
  onHang: () => void;
}

/** Enough to work with a drive; one value serves all drives of a library. */
export interface DriveOptions extends LeaseOptions {
  /** Whose drives these are: no drive has to do with another library. */
  library: DriveRange;
  /** When other engines go first. */
  share: DriveShare;
  /** Rings when there may be work. */
  work: Waker;
  running: RunningRecalls;
  failures: VolumeFailures;
  /** How long a drive without work sleeps when no bell rings: recalls whose pause has ended ring none. */
  idleMs: number;
  /** How long a drive that this host cannot use is left to others. */
  leftMs: number;
  /** How often a drive without work looks for tape copies that are to be confirmed. */
  verifyMs: number;
  gauge: DiskGauge;
  links: LinkKeeper;
}

/** The recalls that this process runs, by batches, so that single ones can be stopped. */
export class RunningRecalls {
  private readonly recalls = new Map<bigint, { abort: AbortController; batch: BatchAbort }>();

  /**
   * Signals for the recalls of a batch: each aborts with `outer`, and when the recall is stopped by itself.
   * @returns `signals` in the order of `fileIds`; `signal`, which aborts when nothing of the batch is left to do; and
   *   what ends the batch
   */
  begin(fileIds: readonly bigint[], outer: AbortSignal) {
    const aborts = fileIds.map(() => new AbortController());
    const batch: BatchAbort = { abort: new AbortController(), left: fileIds.length };
    // one listener for all: a signal made of two others for each file costs more than reading it, when it is small
    const abortAll = () => {
      batch.abort.abort(outer.reason);
      for (const abort of aborts) abort.abort(outer.reason);
    };
    if (outer.aborted) abortAll();
    outer.addEventListener('abort', abortAll);
    for (const [index, abort] of aborts.entries()) this.recalls.set(fileIds[index] as bigint, { abort, batch });
    return {
      signals: aborts.map((abort) => abort.signal),
      signal: batch.abort.signal,
      end: () => {
        outer.removeEventListener('abort', abortAll);
        for (const fileId of fileIds) this.recalls.delete(fileId);
      },
    };
  }

  get isEmpty(): boolean {
    return this.recalls.size === 0;
  }

  stop(fileIds: readonly bigint[]): void {
    for (const fileId of fileIds) {
      const recall = this.recalls.get(fileId);
      if (!recall || recall.abort.signal.aborted) continue;
      const reason = new Error(
        'the recall is not to go on: nobody waits for it, what it uses is held, or its file was changed by an import',
      );
      recall.abort.abort(reason);
      if (--recall.batch.left === 0) recall.batch.abort.abort(reason);
    }
  }
}

interface BatchAbort {
  abort: AbortController;
  /** Recalls that have not been stopped. */
  left: number;
}

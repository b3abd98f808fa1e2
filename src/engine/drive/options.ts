/** Options for a drive: the lease, the signals, and the state that the engine's drives share. */
import type { DriveRange } from '../../domain/recalls/drives.js';
import type { FailingDisks } from '../../restore-area/failures.js';
import type { LinkKeeper } from '../../restore-area/links/keeper.js';
import type { DiskGauge } from '../../restore-area/space.js';
import type { WorkSignal } from '../jobs/jobs.js';
import type { VolumeFailures } from './drive-failures.js';
import type { DriveShare } from './share.js';

export interface LeaseOptions {
  engineId: string;
  leaseSeconds: number;
  held: Set<number>;
  stop: AbortSignal;
  abort: AbortSignal;
  /**
   * Signal after which the engine no longer waits for aborted work. A disk or tape call that is still running when this
   * signal aborts is considered hung.
   */
  leave: AbortSignal;
  disks: FailingDisks;
  /** Called when a disk or tape call has hung, after the failure is recorded and the drive is released. */
  onHang: () => void;
}

export interface DriveOptions extends LeaseOptions {
  library: DriveRange;
  share: DriveShare;
  work: WorkSignal;
  running: RunningRecalls;
  failures: VolumeFailures;
  /**
   * Maximum time in milliseconds between an idle drive's polls for work. Polls are needed because no signal is sent
   * when a failed recall's pause ends.
   */
  idleMs: number;
  /**
   * Milliseconds for which this host does not claim a drive that it could not use, so that another host can claim the
   * drive.
   */
  unusablePauseMs: number;
  /** Interval in milliseconds at which an idle drive looks for tape copies to verify. */
  verifyMs: number;
  gauge: DiskGauge;
  links: LinkKeeper;
}

/** This process's running recalls, in batches. Each recall in a batch can be stopped separately. */
export class RunningRecalls {
  private readonly recalls = new Map<bigint, { abort: AbortController; batch: BatchAbort }>();

  /**
   * Registers a batch.
   * @returns `signals`, one for each recall; `signal`, which aborts when all recalls are stopped; `end`, which
   *   unregisters the batch
   */
  begin(fileIds: readonly bigint[], outer: AbortSignal) {
    const aborts = fileIds.map(() => new AbortController());
    const batch: BatchAbort = { abort: new AbortController(), remaining: fileIds.length };
    // use one abort listener for the whole batch, because a combined signal for each file would take longer to create
    // than a small file takes to read
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
        'the recall was cancelled because no request needs the file, the volume or the restore disk is suspended, or an import changed the file',
      );
      recall.abort.abort(reason);
      if (--recall.batch.remaining === 0) recall.batch.abort.abort(reason);
    }
  }
}

interface BatchAbort {
  abort: AbortController;
  remaining: number;
}

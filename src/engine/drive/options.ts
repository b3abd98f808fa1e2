/** Options of a drive: its lease, its signals, and the state that all drives of the engine share. */
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
  /** Prevents new work. */
  stop: AbortSignal;
  /** Aborts running work. */
  abort: AbortSignal;
  /** Ends all waiting. A call that is still running then counts as hung. */
  leave: AbortSignal;
  disks: FailingDisks;
  /** Called after a hung call was recorded and its drive was released. */
  onHang: () => void;
}

/** Options of the drives of one library. */
export interface DriveOptions extends LeaseOptions {
  library: DriveRange;
  share: DriveShare;
  work: WorkSignal;
  running: RunningRecalls;
  failures: VolumeFailures;
  /** Maximum sleep of an idle drive. The end of a recall's pause sends no signal, so the drive must poll. */
  idleMs: number;
  /**
   * Pause before this host again claims a drive that the host could not use. Another host may use the drive meanwhile.
   */
  unusablePauseMs: number;
  /** Interval at which an idle drive looks for tape copies to verify. */
  verifyMs: number;
  gauge: DiskGauge;
  links: LinkKeeper;
}

/** Running recalls of this process, in batches. Each recall can be stopped separately. */
export class RunningRecalls {
  private readonly recalls = new Map<bigint, { abort: AbortController; batch: BatchAbort }>();

  /**
   * Registers a batch. @returns `signals`: one per recall. `signal`: aborts when all recalls are stopped. `end`:
   * unregisters the batch
   */
  begin(fileIds: readonly bigint[], outer: AbortSignal) {
    const aborts = fileIds.map(() => new AbortController());
    const batch: BatchAbort = { abort: new AbortController(), remaining: fileIds.length };
    // one listener for the batch, because a combined signal per file costs more than reading a small file
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
        'the recall was cancelled: no request needs it, its volume or disk is suspended, or an import changed its file',
      );
      recall.abort.abort(reason);
      if (--recall.batch.remaining === 0) recall.batch.abort.abort(reason);
    }
  }
}

interface BatchAbort {
  abort: AbortController;
  /** Number of recalls that have not been stopped. */
  remaining: number;
}

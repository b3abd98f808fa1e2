/** What a reader reads next, of what is ready at its library. */
import type { Context } from '../../context.js';
import { readShares } from '../../operations/quotas/shares.js';
import { type ReadyFile, readReady } from '../../operations/staging/ready.js';
import { batchFilesAfter, takeBatch } from '../../planner/queue.js';

/** How often a plan is made anew at most: more becomes ready, and others read of the same. */
const REPLAN_MS = 2000;

/** Files planned together at most. */
const PLANNED_FILES = 1000;

/** Empty until `renew`. */
export class ReadyPlan {
  private readonly ctx: Context;
  private readonly libraryId: number;
  private readonly isShuffled: boolean;
  private files: ReadyFile[] = [];
  private madeAt = 0;
  private batchFiles: number | undefined;

  /** @param of.isShuffled in no order: of many files that could not be read, those that can be are found sooner so */
  constructor(ctx: Context, { libraryId, isShuffled }: { libraryId: number; isShuffled: boolean }) {
    this.ctx = ctx;
    this.libraryId = libraryId;
    this.isShuffled = isShuffled;
  }

  get isEmpty(): boolean {
    return this.files.length === 0;
  }

  get isOver(): boolean {
    return this.isEmpty || performance.now() - this.madeAt >= REPLAN_MS;
  }

  async renew(): Promise<void> {
    const shares = await readShares(this.ctx);
    const { libraryId, isShuffled } = this;
    this.files = await readReady(this.ctx, { libraryId, shares, isShuffled, limit: PLANNED_FILES });
    this.madeAt = performance.now();
  }

  takeFiles(): bigint[] {
    const files = takeBatch(this.files, this.batchFiles);
    this.files = this.files.slice(files.length);
    return files.map(({ fileId }) => fileId);
  }

  noteRead(files: number, seconds: number): void {
    this.batchFiles = batchFilesAfter(files, seconds);
  }

  drop(): void {
    this.files = [];
  }
}

/** Calls that a restore disk has refused since it takes no more, and which recalls are not to be read for it. */
import type { Context } from '../../context.js';
import { messageOf, TapeError } from '../../errors.js';
import { describeFull, noteFull } from '../../operations/disks/full.js';
import type { MarkedDisk } from './marker.js';

/** A call on a restore disk has failed since the disk takes no more, whatever it says to have free. */
export class FullError extends TapeError {
  constructor(cause: unknown) {
    super('SPACE', messageOf(cause), { cause });
  }
}

/** One for all drives of an engine. */
export class FullDisks {
  private readonly ctx: Context;
  /** By the ids of disks: when one was noted last, by the process's own clock, and what it said. */
  private readonly noted = new Map<number, { at: number; error: string }>();

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** When this returns nothing new is put on the disk. */
  async note({ diskId, mountpoint }: MarkedDisk, { message }: FullError): Promise<void> {
    await noteFull(this.ctx, diskId, message);
    this.noted.set(diskId, { at: performance.now(), error: `${mountpoint} is ${describeFull(message)}` });
  }

  /**
   * Of what was to be started at that time: has its disk turned out to be full since? Then it would be read for nothing.
   * @param at by the process's own clock; what is started later has been given its disk by whoever knows better
   * @returns what is told of it
   */
  findSince({ diskId }: Pick<MarkedDisk, 'diskId'>, at: number): string | undefined {
    const noted = this.noted.get(diskId);
    return noted && noted.at >= at ? noted.error : undefined;
  }
}

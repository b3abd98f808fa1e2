/**
 * Calls on restore disks that are waited for a while only. One that hangs keeps a thread of the few that a process has, so
 * a disk is not asked again before it has answered.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../../errors.js';

/** One for each kind of call. */
export class BoundedCalls {
  private readonly open = new Set<number>();

  /** @returns what was wrong, also when the disk was silent for so long; undefined when all went well */
  async run(
    answerMs: number,
    disk: { id: number; mountpoint: string },
    call: () => Promise<void>,
  ): Promise<string | undefined> {
    const silent = `the restore disk ${disk.mountpoint} does not answer`;
    if (this.open.has(disk.id)) return silent;
    this.open.add(disk.id);
    const answer = call()
      .then(
        () => undefined,
        (error: unknown) => messageOf(error),
      )
      .finally(() => this.open.delete(disk.id));
    const timer = new AbortController();
    const late = sleep(answerMs, silent, { signal: timer.signal, ref: false }).catch(() => silent); // in time after all
    const problem = await Promise.race([answer, late]);
    timer.abort();
    return problem;
  }
}
